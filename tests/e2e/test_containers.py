"""Drawbridge runs in real containers as the chart says, and is called by its Service while it is upgraded."""

from __future__ import annotations

import json
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from kube.errors import ApiError, KubeError
from lab.install import NAMESPACE, RELEASE
from tests.cluster.workloads import PODS, namespace
from tests.e2e.cluster import FIRST
from tests.e2e.real import Real

WEBHOOK = f"{RELEASE}-webhook"
CALLERS = 4
PATIENCE = 30
LOOK = """\
import base64, json, os, pathlib
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
token = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/token").read_text().split(".")[1]
def writes(path):
    try:
        pathlib.Path(path).write_text("")
    except OSError as error:
        return error.strerror
    return "written"
print(json.dumps({
    "uid": os.getuid(),
    "seccomp": status["Seccomp"].strip(),
    "capabilities": int(status["CapBnd"], 16),
    "noNewPrivileges": status["NoNewPrivs"].strip(),
    "root": writes("/written"),
    "home": writes("/var/tmp/written"),
    "claims": json.loads(base64.urlsafe_b64decode(token + "==")),
}))
"""


def seen_in(cluster: Real, place: str, pod: str) -> dict[str, Any]:
    output = cluster.kubectl("--namespace", place, "exec", pod, "--", "python", "-c", LOOK).stdout
    found: dict[str, Any] = json.loads(output)
    return found


def test_programs_run_unprivileged_on_a_read_only_root_with_tokens_that_rotate(real_nodes: Real) -> None:
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
    run = ("run", "plain", f"--image={FIRST}", "--", "python", "-m", "http.server")
    real_nodes.wait(
        lambda: real_nodes.kubectl("--namespace", place, *run, check=False).returncode == 0, 60, "an account"
    )
    real_nodes.kubectl("--namespace", place, "wait", "pod/plain", "--for=condition=Ready", "--timeout=60s")

    seen = seen_in(real_nodes, place, "plain")

    assert seen["seccomp"] == "0"
    assert seen["capabilities"] != 0
    assert seen["home"] == "written"
    real_nodes.kubectl("delete", "namespace", place, "--wait=false")


def test_an_upgrade_of_the_webhook_fails_no_call(real_nodes: Real) -> None:
    before = webhook_pods(real_nodes)
    with calls(real_nodes) as counted:
        values = real_nodes.helm(
            "get", "values", RELEASE, "--namespace", NAMESPACE, "--output", "yaml"
        ).stdout
        changed = yaml.safe_load(values) | {"podAnnotations": {"tests/upgrade": "1"}}
        upgrade = ("upgrade", RELEASE, str(real_nodes.chart), "--namespace", NAMESPACE, "--values", "-")
        real_nodes.helm(*upgrade, "--wait", "--timeout", "300s", stdin=yaml.safe_dump(changed))
        real_nodes.wait(lambda: not before & webhook_pods(real_nodes), 180, "the former pods to be gone")

    assert counted.keys() == {"answered"}, counted
    assert counted["answered"] > 100


def test_calls_fail_while_no_webhook_server_runs(real_nodes: Real) -> None:
    """The control of the test above."""
    with calls(real_nodes) as counted:
        selector = f"--selector=app.kubernetes.io/component=webhook,app.kubernetes.io/instance={RELEASE}"
        real_nodes.kubectl(
            "--namespace", NAMESPACE, "delete", "pods", selector, "--force", "--grace-period=0"
        )
        real_nodes.wait(lambda: counted["failed"], PATIENCE, "a call to fail")
    status = ("rollout", "status", f"deployment/{WEBHOOK}", "--timeout=180s")
    real_nodes.kubectl("--namespace", NAMESPACE, *status)


def webhook_pods(cluster: Real) -> set[str]:
    labels = f"app.kubernetes.io/component=webhook,app.kubernetes.io/instance={RELEASE}"
    found = cluster.client.list(PODS, NAMESPACE, label_selector=labels).items
    return {each["metadata"]["uid"] for each in found}


@contextmanager
def calls(cluster: Real) -> Iterator[Counter[str]]:
    """While the block runs, evictions that the API server asks the webhook about, one after the other in threads."""
    place = namespace(cluster.client, f"calls-{secrets.token_hex(3)}")
    cluster.kubectl("label", "namespace", place, "ip-reserve=enabled")
    counted: Counter[str] = Counter()
    ended = threading.Event()

    def call() -> None:
        while not ended.is_set():
            counted[outcome(cluster, place)] += 1

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for each in callers:
        each.start()
    try:
        yield counted
    finally:
        ended.set()
        for each in callers:
            each.join()
        cluster.kubectl("delete", "namespace", place, "--wait=false")
    print(f"calls: {dict(counted)}")


def outcome(cluster: Real, place: str) -> str:
    """Admission comes before the look-up of the pod, which is not there."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "absent"}}
    try:
        cluster.client.request("POST", PODS.path(place, "absent", "eviction"), body=eviction)
    except ApiError as error:
        return "failed" if error.status >= 500 else "answered"
    except KubeError:
        return "failed"
    return "answered"
