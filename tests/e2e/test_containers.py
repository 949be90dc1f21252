"""Drawbridge runs in real containers as the chart says, and is called by its Service while it is upgraded."""

from __future__ import annotations

import json

import yaml

from dev.lab.install import NAMESPACE, RELEASE
from dev.lab.waiting import at_most
from kube.resources import PODS
from tests.cluster.workloads import namespace
from tests.e2e.calls import SERVERS, calls
from tests.e2e.cluster import FIRST
from tests.e2e.inside import seen_in
from tests.e2e.real import Real

WEBHOOK = f"{RELEASE}-webhook"
OURS = ("--namespace", NAMESPACE)
PATIENCE = 30


def test_programs_run_unprivileged_on_a_read_only_root(real_nodes: Real) -> None:
    for program in ("webhook", "controllers"):
        seen = seen_in(real_nodes, NAMESPACE, f"deployment/{RELEASE}-{program}")
        claims = seen.pop("claims")

        assert seen == {
            "uid": 65532,
            "seccomp": "2",
            "capabilities": 0,
            "noNewPrivileges": "1",
            "root": "Read-only file system",
            "home": "Read-only file system",
        }
        # The kubelet requests a token of an hour, which the API server lets outlive its rotation.
        assert {"exp", "kubernetes.io"} <= claims.keys()
        assert claims["kubernetes.io"]["pod"]["name"].startswith(f"{RELEASE}-{program}")


def test_a_pod_that_asks_for_none_of_it_is_seen_to_have_none_of_it(real_nodes: Real) -> None:
    """The control of the test above."""
    place = namespace(real_nodes.client, "plain")
    as_root = json.dumps({"spec": {"securityContext": {"runAsUser": 0}}})
    run = ("run", "plain", f"--image={FIRST}", f"--overrides={as_root}", "--", "python", "-m", "http.server")
    real_nodes.wait(
        lambda: real_nodes.kubectl("--namespace", place, *run, check=False).returncode == 0, 60, "an account"
    )
    real_nodes.kubectl("--namespace", place, "wait", "pod/plain", "--for=condition=Ready", at_most(60))

    seen = seen_in(real_nodes, place, "plain")

    assert seen["capabilities"] != 0
    assert {key: seen[key] for key in ("uid", "seccomp", "noNewPrivileges", "root", "home")} == {
        "uid": 0,
        "seccomp": "0",
        "noNewPrivileges": "0",
        "root": "written",
        "home": "written",
    }
    real_nodes.kubectl("delete", "namespace", place, "--wait=false")


def test_an_upgrade_of_the_webhook_fails_no_call(real_nodes: Real) -> None:
    before = webhook_pods(real_nodes)
    with calls(real_nodes) as counted:
        values = real_nodes.helm("get", "values", RELEASE, *OURS, "--output", "yaml").stdout
        changed = yaml.safe_load(values) | {"podAnnotations": {"tests/upgrade": "1"}}
        upgrade = ("upgrade", RELEASE, str(real_nodes.chart), *OURS, "--values", "-")
        real_nodes.helm(*upgrade, "--wait", "--timeout", "300s", stdin=yaml.safe_dump(changed))
        real_nodes.wait(lambda: not before & webhook_pods(real_nodes), 180, "the former pods to be gone")

    assert counted.keys() == {"answered"}, counted
    assert counted["answered"] > 100


def test_calls_fail_while_no_webhook_server_runs(real_nodes: Real) -> None:
    """The control of the test above."""
    with calls(real_nodes) as counted:
        delete = ("delete", "pods", f"--selector={SERVERS}", "--force", "--grace-period=0")
        real_nodes.kubectl(*OURS, *delete)
        real_nodes.wait(lambda: counted["failed"], PATIENCE, "a call to fail")
    await_rollout(real_nodes)


def await_rollout(cluster: Real) -> None:
    cluster.kubectl(*OURS, "rollout", "status", f"deployment/{WEBHOOK}", at_most(180))


def webhook_pods(cluster: Real) -> set[str]:
    found = cluster.client.list(PODS, NAMESPACE, label_selector=SERVERS).items
    return {each["metadata"]["uid"] for each in found}
