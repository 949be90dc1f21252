"""`drawbridge explain` and `simulate` write nothing, as the API server's audit log shows; and a change of values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from cli.app import drawbridge
from lab import cli_page, install
from lab.bootstrap import running
from lab.session import Lab
from tests import audit
from tests.cluster import elasticity, ingress_daemonset, workloads
from tests.cluster.elasticity import Shop
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.test_cli import shown
from tests.cluster.workloads import SECONDS

pytestmark = pytest.mark.nightly

ALL_FEATURES: dict[str, Any] = install.merged(
    install.merged(elasticity.VALUES, ingress_daemonset.VALUES),
    {"ipReservation": {"enabled": True}, "config": workloads.CONFIG},
)
READER = "reader"
PODS = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Things:
    """Something of each kind to ask about."""

    lab: Lab
    redis: str
    edge: str
    shop: str
    node: str
    ip: str


@pytest.fixture(scope="module")
def things() -> Iterator[Things]:
    with running(values=ALL_FEATURES, nodes=2, kwok_nodes=1, cloud={}) as lab:
        redis = workloads.reserved_namespace(lab.client, "redis")
        running_pods = [workloads.running_pod(lab, redis, name) for name in PODS]
        shop = Shop(lab)
        shop.deploy("web", 3, elasticity.template(elasticity.keeping(2)))
        shop.settle("web", 3)
        edge = Edge(lab, "a", "b")
        edge.create(rolling=ingress_daemonset.detaching(1))
        edge.settle("a", "b")
        [ip] = running_pods[0].status.addresses
        yield Things(lab, redis, edge.namespace, shop.namespace, running_pods[0].spec.node_name, ip)


def questions(things: Things, values: Path) -> dict[str, tuple[str, ...]]:
    """By the commands that they ask."""
    return {
        "explain pod": ("a", "-n", things.redis),
        "explain ip": (things.ip,),
        "explain node": (things.node,),
        "explain ingressdaemonset": ("web", "-n", things.edge),
        "simulate drain": (things.node,),
        "simulate delete": ("a", "b", "-n", things.redis),
        "simulate scale": ("web", "5", "-n", things.shop),
        "simulate rollout": ("web", "--image", "proxy:2", "-n", things.edge),
        "simulate join": ("3",),
        "simulate values": (str(values),),
    }


def reader_kubeconfig(lab: Lab, directory: Path) -> Path:
    """Of a user who may do anything, and whose requests are in the audit log."""
    lab.kubectl("create", "serviceaccount", READER, "-n", "default")
    account = f"--serviceaccount=default:{READER}"
    lab.kubectl("create", "clusterrolebinding", READER, "--clusterrole=cluster-admin", account)
    user = f"--as=system:serviceaccount:default:{READER}"
    lab.wait(
        lambda: lab.kubectl("auth", "can-i", "*", "*", "-A", user, check=False).returncode == 0,
        SECONDS,
        "the permission of the reader to count",
    )
    token = lab.kubectl("create", "token", READER, "-n", "default").stdout.strip()
    config = yaml.safe_load(lab.kubeconfig.read_text())
    for each in config["users"]:
        each["user"] = {"token": token}
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def requests(logs: Path, lab: Lab) -> list[tuple[str, str]]:
    """Verb and path of all that the reader asked for."""
    log = next(logs.rglob(f"{lab.directory.name}.log"))
    whole, _, _in_writing = log.read_bytes().rpartition(b"\n")
    lines = [msgspec.json.decode(line, type=audit.Line) for line in whole.splitlines()]
    ours = (each for each in lines if each.user.username == f"system:serviceaccount:default:{READER}")
    return [(each.verb, each.request_uri) for each in ours]


def test_no_explanation_and_no_simulation_writes_anything(
    things: Things, audit_logs: Path, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("config: {ipReserveMaxCount: 1}\nelasticity: {excludedNamespaces: [default]}\n")
    asked = questions(things, values)
    known = {path.removeprefix("drawbridge ") for path, _ in cli_page.commands()}
    assert asked.keys() == {each for each in known if each.startswith(("explain ", "simulate "))}
    kubeconfig = reader_kubeconfig(things.lab, tmp_path)

    for command, arguments in asked.items():
        before = len(requests(audit_logs, things.lab))
        call = ["--kubeconfig", str(kubeconfig), *command.split(), *arguments]
        result = CliRunner().invoke(drawbridge, call)
        assert result.exit_code == 0, (command, result.output)
        made = things.lab.wait(
            lambda: requests(audit_logs, things.lab)[before:],  # noqa: B023
            SECONDS,
            "the audit log to have the requests",
        )
        assert [each for each in made if each[0] not in audit.READS] == [], command


def test_the_ips_that_a_smaller_count_would_release_are_those_that_it_releases(
    things: Things, tmp_path: Path
) -> None:
    lab, change = things.lab, {"config": {"ipReserveMaxCount": 1}}
    for name in PODS:
        lab.client.delete(workloads.PODS, name, things.redis)
    # The leader stores them together, up to a minute later.
    lab.wait(lambda: ended(lab) == len(PODS), 3 * SECONDS, "the ends of their pods to be stored")
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(change))
    released = {each["ip"] for each in shown(lab, "simulate", "values", str(values))["released"]}
    before = addresses(lab)
    assert len(released) == len(before) - 1 == len(PODS) - 1

    install.upgrade(lab, change)

    lab.wait(lambda: addresses(lab) == before - released, 3 * SECONDS, "the leader to release them")


def addresses(lab: Lab) -> set[str]:
    return {each.cidr.partition("/")[0] for each in workloads.all_records(lab, "v3")}


def ended(lab: Lab) -> int:
    return sum(each.ended is not None for each in workloads.all_records(lab, "v3"))
