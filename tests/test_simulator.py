"""The whole platform on a virtual clock, judged from outside: by seed, and in the histories that once went wrong."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import click
import pytest

from api.ingress_daemonset import DETACHED_BY, FINALIZER, INGRESS_DAEMONSETS
from dev.fake_api import FakeAPI
from dev.fake_api.server import DEFAULT_KINDS, Denied
from dev.simulator import helm, objects, policies
from dev.simulator.core.kernel import Kernel
from dev.simulator.histories import HISTORIES
from dev.simulator.models import calico
from dev.simulator.product import Network
from dev.simulator.scenario import FEATURES, HARD_BUSY, HARD_COUNT, drawn
from dev.simulator.terminals import Terminals, called
from kube.client import Client
from kube.errors import KubeError
from kube.resources import NODES
from kube.types import rfc3339
from tests.factories import NOW
from tests.tables import table

SEEDS = 40
OPEN: dict[str, str] = {}
"""Histories that still break a promise, and what is known of it."""


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dev.simulator", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1500)


@pytest.fixture(scope="module")
def histories() -> str:
    """What was found in them."""
    return simulate("--histories", "--jobs", "2").stdout


@pytest.mark.group("histories of the simulated world")
@pytest.mark.parametrize("name", HISTORIES)
def test_no_promise_is_broken_when(histories: str, name: str, request: pytest.FixtureRequest) -> None:
    if name in OPEN:
        request.applymarker(pytest.mark.xfail(reason=OPEN[name], strict=True))
    broken = [line for line in histories.splitlines() if line.startswith(f"{name}: ")]
    assert not broken


def test_no_seed_breaks_a_promise() -> None:
    done = simulate("--seeds", str(SEEDS), "--jobs", "2")
    assert (done.returncode, done.stdout) == (0, "")


def test_no_promise_is_broken_when_a_leader_dies_right_after_a_write() -> None:
    """A sample: `make verify` plays a death after each write of each walk."""
    done = simulate("--crashes", "25", "--jobs", "2")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, second = (simulate("--seed", "5", "--whole") for _ in range(2))
    assert len(first.stdout.splitlines()) > 50
    assert (first.stdout, first.stderr) == (second.stdout, second.stderr)


def test_hard_seeds_are_crowded_and_many_have_all_features() -> None:
    found = [drawn(seed, hard=True) for seed in range(20)]
    assert found == [drawn(seed, hard=True) for seed in range(20)]
    assert all(each.busy <= HARD_BUSY[1] and len(each.operations) >= HARD_COUNT[0] for each in found)
    assert sum({*FEATURES} <= {*each.features} for each in found) >= 5


def test_each_of_two_people_reads_what_their_own_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    monkeypatch.setattr(sys, "stdout", Terminals(kernel, sys.stdout))

    @click.command()
    @click.argument("seconds", type=float)
    def wait(seconds: float) -> None:
        click.echo(f"{seconds} begins")
        kernel.sleep(seconds)
        click.echo(f"{seconds} ends")

    read = dict[float, tuple[int, str]]()
    for seconds in (2.0, 3.0):
        work = partial(lambda each: read.update({each: called(kernel, wait, [str(each)], None)}), seconds)
        kernel.spawn(work, "person")
    kernel.run(10)
    assert read == {each: (0, f"{each} begins\n{each} ends\n") for each in (2.0, 3.0)}


@pytest.mark.parametrize("stops", [False, True])
def test_a_late_write_is_lost_with_the_api_servers(stops: bool) -> None:
    """https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster"""
    kernel, api = Kernel(), FakeAPI(*DEFAULT_KINDS)
    network = Network(api, kernel, kernel.dice)
    network.delay(until=1.0, share=1.0, latest=5.0)
    client = Client(network.connection("drawbridge-controllers", "drawbridge-controllers-0"))

    def write() -> None:
        with suppress(KubeError):
            client.create(NODES, {"metadata": {"name": "node-1"}}, timeout=1.0)

    kernel.spawn(write, "leader")
    kernel.run(1.0)
    assert not api.find(NODES, "node-1")
    if stops:
        network.restart()
    kernel.run(30.0)
    assert bool(api.find(NODES, "node-1")) is not stops


@pytest.mark.parametrize(
    ("condition", "validation", "refused"),
    [
        ("true", "true", ""),
        ("true", "false", "no"),
        ("false", "false", ""),
        ("true", "object.a == 1", "no"),
        ("object.a == 1", "true", "only-then"),
    ],
)
def test_a_policy_refuses_also_what_it_cannot_judge(condition: str, validation: str, refused: str) -> None:
    """https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#failure-policy"""
    spec = {
        "matchConditions": [{"name": "only-then", "expression": condition}],
        "validations": [{"message": "no", "expression": validation}],
    }
    with pytest.raises(Denied, match=f"{refused}$") if refused else nullcontext():
        policies.check(spec, {"object": {}, "oldObject": None, "request": {}})


@table(
    "minutes, held",
    {
        "which was there before": (-1, ["node-1 is detached", "finalizer of edge"]),
        "which a person created meanwhile, and is theirs to free": (1, []),
    },
)
def test_an_uninstall_leaves_nothing_held_by_an_ingress_daemon_set(minutes: int, held: list[str]) -> None:
    api, resource = FakeAPI(*DEFAULT_KINDS, *calico.KINDS), objects.ingress_daemon_set("edge")
    created = rfc3339(NOW + timedelta(minutes=minutes))
    resource["metadata"] |= {"uid": "u", "creationTimestamp": created, "finalizers": [FINALIZER]}
    api.put(INGRESS_DAEMONSETS, resource)
    marks = {DETACHED_BY: '{"u": {}}', "node-detacher.variant.run/detached": "true"}
    api.put(NODES, {"metadata": {"name": "node-1", "annotations": marks}})
    world = SimpleNamespace(api=api, calico=SimpleNamespace(held={}))

    assert helm.held(world, NOW, NOW) == held  # type: ignore[arg-type]
