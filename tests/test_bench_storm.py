"""What a storm of deletions cost is counted, judged, and shown as figures, a page and a picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import ip_reservation, processes
from bench.ip_reservation import Plan, page
from bench.ip_reservation.deployments import program_spec
from bench.ip_reservation.figures import figures
from bench.ip_reservation.judge import MOST, judged
from bench.ip_reservation.rows import LOST, P99, REFUSED, Rows, quantile_of, rows
from bench.ip_reservation.runs import CLUSTER, Assigned, Counted, Run, Setting
from bench.ip_reservation.side_load import side_load
from bench.ip_reservation.storm import Load, Storm
from bench.ip_reservation.variants import NO_OP, NO_OP_CONDITIONS, NONE, OURS, Variant
from bench.picture import Group, Panel, svg
from bench.processes import Usage
from bench.report import Figure
from calico.segment import IPReservation, ReservationSpec
from kube.types import ObjectMeta, Pod, PodStatus
from lab.history import Observation
from tests.factories import NOW

STORM, ONE, STEADY = Load(10, 4), Load(10, 1), Load(10, 4, rate=5)
SETTINGS = [Setting(STORM), Setting(STORM, busy=True), Setting(ONE), Setting(STEADY)]
ALLOCATING = Setting(STORM, allocating=True)


def test_a_load_and_a_setting_have_names() -> None:
    assert str(Setting(Load(1000, 64), busy=True)) == "busy, 1,000 deletions, 64 at once"
    assert str(Setting(ONE)) == "quiet, 10 deletions, one at a time"
    assert str(Setting(STEADY, allocating=True)) == "quiet, 10 deletions, 5 per second, allocating"
    assert [each.is_storm for each in (STORM, ONE, STEADY)] == [True, False, False]


# The judge


def pod(name: str, revision: int, namespace: str = "storm") -> Observation:
    """That it is gone."""
    metadata = ObjectMeta(name=name, namespace=namespace, uid=name, resource_version=str(revision))
    return Observation(Pod(metadata, status=PodStatus(pod_ip=name)), True, NOW)


def segment(name: str, revision: int, *ips: str, gone: bool = False) -> Observation:
    metadata = ObjectMeta(name=name, resource_version=str(revision))
    spec = ReservationSpec([f"{ip}/32" for ip in ips])
    return Observation(IPReservation(metadata, spec), gone, NOW)


A, B = "10.0.0.1", "10.0.0.2"
MANY = [f"10.1.{number >> 8}.{number & 255}" for number in range(MOST)]
GONE = "10.0.0.1/32 of 10.0.0.1"


@pytest.mark.parametrize(
    ("observations", "lost"),
    [
        pytest.param([pod(A, 5), segment("x", 3, A)], [], id="reserved before, however late it was seen"),
        pytest.param([pod(A, 5)], [f"{GONE} was not reserved when the pod was gone"], id="never reserved"),
        pytest.param(
            [pod(A, 5), segment("x", 7, A)],
            [f"{GONE} was not reserved when the pod was gone"],
            id="reserved too late",
        ),
        pytest.param(
            [segment("x", 3, A), segment("x", 4), pod(A, 5)],
            [f"{GONE} was not reserved when the pod was gone"],
            id="given up before",
        ),
        pytest.param(
            [segment("x", 3, A, B), pod(A, 5), segment("x", 6, B)],
            [f"{GONE} was released early"],
            id="released while few are reserved",
        ),
        pytest.param(
            [segment("x", 3, A), pod(A, 5), segment("x", 6, A, gone=True)],
            [f"{GONE} was released early"],
            id="its object is deleted",
        ),
        pytest.param(
            [segment("x", 3, A), pod(A, 5), segment("all", 6, A, *MANY), segment("x", 7, A, gone=True)],
            [],
            id="compacted: added before it is deleted",
        ),
        pytest.param(
            [segment("x", 3, A), segment("all", 4, *MANY), pod(A, 5), segment("x", 6, A, gone=True)],
            [],
            id="released because many are reserved",
        ),
        pytest.param(
            [
                segment("x", 3, A),
                segment("all", 4, *MANY),
                pod(A, 5),
                segment("x", 6, A, gone=True),
                segment("y", 7, A),
            ],
            [f"{GONE} was free for a while"],
            id="compacted: deleted before it is added",
        ),
        pytest.param([pod(A, 5, "other")], [], id="of another namespace"),
    ],
)
def test_an_address_is_lost_that_was_free_at_any_revision_of_its_hold(
    observations: list[Observation], lost: list[str]
) -> None:
    assert judged(observations, "storm").lost == lost


def test_the_objects_are_counted_at_each_revision() -> None:
    found = judged([segment("x", 1, A), segment("y", 2), segment("x", 3, A, gone=True)], "storm")

    assert (found.peak, found.rest) == (2, 1)


# Figures


def a_run(variant: str, setting: Setting, seconds: float, **counted: float) -> Run:
    """Ten deletions that each waited a hundredth of the time, but for one that waited a tenth."""
    name = f'{{name="{variant}.example"}}'
    registration = {"webhooks": [{"name": f"{variant}.example"}]} if variant != NONE else None
    grown = {
        f"apiserver_admission_webhook_request_total{name}": counted.get("calls", 10.0),
        f"apiserver_admission_webhook_admission_duration_seconds_sum{name}": seconds / 10,
        f"apiserver_admission_webhook_admission_duration_seconds_count{name}": 10.0,
        'apiserver_request_total{resource="ipreservations",verb="POST"}': counted.get("writes", 0.0),
        'apiserver_request_total{resource="ipreservations",verb="WATCH"}': 100.0,
        'apiserver_request_total{resource="pods",verb="DELETE"}': 100.0,
    }
    servers = "webhook server" if variant == OURS else "no-op"
    used = {f"{servers} {number}": Usage(seconds / 20, 50 << 20) for number in (1, 2)}
    control_plane = {"kube-apiserver": Usage(seconds, 1 << 30), "etcd": Usage(seconds / 10, 1 << 20)}
    others = {"leader": Usage(0.1, 60 << 20), "standby": Usage(0.1, 50 << 20)} if variant == OURS else {}
    whole = {CLUSTER: Usage(2 * seconds, 0)}
    later = Counted(
        {'apiserver_request_total{resource="ipreservations",verb="DELETE"}': counted.get("deletes", 0.0)},
        {CLUSTER: Usage(0.5 if variant == OURS else 0.1, 0)},
    )
    waited = [seconds / 100] * 9 + [seconds / 10]
    return Run(
        Variant(variant, {}, registration),
        setting,
        Storm(seconds, int(counted.get("refused", 0)), waited),
        Counted(grown, {**used, **control_plane, **others, **whole}),
        later,
        judged([segment("x", 1, A)] * 2 + [pod(B, 2)] * int(counted.get("lost", 0)), "storm"),
        Assigned([0.1], [seconds / 10]),
    )


SECONDS = {NONE: (2.0, 1.0, 9.0), NO_OP_CONDITIONS: (3.0, 2.5, 9.0), OURS: (3.0, 4.0, 9.0)}
"""Of three rounds of each variant, one of them an outlier for all."""


def all_rows(settings: list[Setting] = SETTINGS, **counted: float) -> Rows:
    return rows(
        [
            a_run(variant, setting, seconds, **(counted if variant == OURS else {}))
            for setting in settings
            for variant, rounds in SECONDS.items()
            for seconds in rounds
        ]
    )


def of_setting(found: list[Figure], setting: Setting) -> dict[str, Figure]:
    return {
        each.name.removeprefix(f"{setting}: "): each for each in found if each.name.startswith(f"{setting}: ")
    }


OF_STORM: dict[str, tuple[float, float | None, bool | None]] = {
    "time until all are gone, ours against no webhook": (4.0, 1.5, False),
    "time until all are gone, ours against no-op, our match conditions": (4.0, 1.0, True),
    "time until all are gone, no-op, our match conditions against no webhook": (3.0, 1.5, None),
    "request p50, ours against no-op, our match conditions": (40.0, 1.0, None),
    "request p99, ours against no-op, our match conditions": (400.0, 1.0, None),
    "webhook call mean, ours against no-op, our match conditions": (40.0, 1.0, True),
    "CPU of the whole cluster, ours against no webhook": (800.0, 1.5, None),
    "CPU of the whole cluster with what it does later, ours against no webhook": (840.0, 1.6, False),
    "of it kube-apiserver, ours against no-op, our match conditions": (400.0, 1.0, None),
    "of it webhook servers, ours against no-op, our match conditions": (40.0, 1.0, None),
    "of it controllers": (20.0, None, None),
    "IPReservation writes per pod": (0.2, None, None),
    "webhook calls per pod": (1.2, None, False),
    "most IPReservation objects at once": (1.0, None, True),
    "memory of the leader": (60.0, None, None),
    "memory of a webhook server": (50.0, None, None),
}


def test_the_figures_of_a_storm_are_those_of_its_runs() -> None:
    found = all_rows(calls=12, writes=1, deletes=1)
    quiet, busy = (of_setting(figures(found, SETTINGS), each) for each in SETTINGS[:2])

    for name, (value, ratio, met) in OF_STORM.items():
        assert quiet[name].value == pytest.approx(value), name
        assert quiet[name].ratio == pytest.approx(ratio), name
        assert quiet[name].met is met, name
    assert busy["time until all are gone, ours against no webhook"].met is True
    assert not any(name.endswith("against no-op") for name in quiet)


@pytest.mark.parametrize(("refused", "lost"), [(0, 0), (1, 2)])
def test_what_is_refused_and_lost_is_counted_over_all_settings_and_rounds(refused: int, lost: int) -> None:
    found = figures(all_rows(refused=refused, lost=lost), SETTINGS)[-2:]

    assert [(each.name, each.value, each.met) for each in found] == [
        ("all 120 deletions: requests refused", 12 * refused, not refused),
        ("all 120 deletions: pods whose IP was lost", 12 * lost, not lost),
    ]


def test_single_deletions_are_judged_by_what_their_clients_waited() -> None:
    found = figures(all_rows(), SETTINGS)
    one, steady = (of_setting(found, each) for each in SETTINGS[2:])
    p50, p99 = (f"request {each}, ours against no-op, our match conditions" for each in ("p50", "p99"))

    assert [(each[p50].target, each[p99].target) for each in (one, steady)] == [
        ("<= 1.8", None),
        ("<= 2", "<= 2.5"),
    ]


def test_the_allocator_is_compared_with_itself_at_rest_and_in_a_storm_without_a_webhook() -> None:
    found = of_setting(figures(all_rows([ALLOCATING]), [ALLOCATING]), ALLOCATING)
    rest, storm = (
        found[f"Calico's allocator for one IP, storm against {each}"]
        for each in ("rest", "one without webhook")
    )

    assert (rest.value, rest.ratio, rest.met) == (400.0, 4.0, False)
    assert (storm.value, storm.ratio, storm.met) == (400.0, 1.5, None)


def test_a_no_op_without_our_conditions_is_compared_where_it_ran() -> None:
    runs = [a_run(variant, SETTINGS[0], 2.0) for variant in (NONE, NO_OP, NO_OP_CONDITIONS, OURS)]

    found = of_setting(figures(rows(runs), SETTINGS[:1]), SETTINGS[0])

    assert found["time until all are gone, ours against no-op"].ratio == 1.0


def test_without_a_webhook_there_is_nothing_to_call_and_nothing_to_lose() -> None:
    measures = {each.measure for each in all_rows().all if each.variant == NONE}

    assert REFUSED in measures
    assert LOST not in measures
    assert not any("webhook" in each for each in measures)


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.99, 4.0), (0.0, 1.0)])
def test_a_quantile_is_one_of_the_values(share: float, value: float) -> None:
    assert quantile_of([4.0, 3.0, 2.0, 1.0], share) == value


# What runs


def test_by_default_all_run_quiet_and_busy_and_some_only_in_one_storm() -> None:
    plan = Plan([ONE, STORM, Load(20, 4)])
    variants = {name: plan.of(Variant(name)) for name in (NONE, NO_OP, NO_OP_CONDITIONS, OURS)}

    assert variants[NONE] == variants[OURS] == plan.settings
    assert variants[NO_OP] == [Setting(STORM)]
    assert variants[NO_OP_CONDITIONS] == [each for each in plan.settings if each != ALLOCATING]
    assert len(plan.settings) == 2 * 3 + 1


def test_another_variant_comes_first_in_each_round() -> None:
    variants = [Variant(name) for name in "abc"]

    orders = ["".join(each.name for each in ip_reservation.in_turn(variants, number)) for number in range(4)]

    assert orders == ["abc", "bca", "cab", "abc"]


def test_a_program_takes_the_place_of_the_server_in_its_pod() -> None:
    container = {
        "name": "webhook",
        "image": "drawbridge",
        "command": ["gunicorn"],
        "env": [{"name": "POD_IP"}],
        "ports": [{"name": "webhook", "containerPort": 9443}, {"name": "health", "containerPort": 8081}],
        "volumeMounts": [],
        "resources": {},
        "livenessProbe": {"httpGet": {"port": "health"}},
    }
    spec = {"replicas": 0, "template": {"metadata": {}, "spec": {"containers": [container]}}}

    [made] = program_spec(spec, Path("/bin/program"))["template"]["spec"]["containers"]

    assert made["command"][:2] == ["/bin/program", "$(POD_IP):9443"]
    assert "livenessProbe" not in made
    assert made["readinessProbe"] == {"httpGet": {"port": "webhook", "scheme": "HTTPS"}}


# Processes


def test_a_busy_machine_has_a_loop_for_every_second_core_while_it_is_busy() -> None:
    def loops() -> int:
        return len(processes.below(os.getpid())) - 1

    before = loops()
    with side_load(busy=False):
        assert loops() == before
    with side_load(busy=True):
        assert loops() == before + max(1, (os.cpu_count() or 1) // 2)
    assert loops() == before


PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]])
print("done", flush=True)
input()
"""
WORK = "import time\nwhile time.process_time() < 0.35: pass\n"
"""The kernel counts user and system time in ticks of 10 ms, and cuts off the last one of each."""


def test_the_cpu_of_a_tree_has_that_of_children_that_have_ended() -> None:
    command = [sys.executable, "-c", PARENT, WORK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        used = processes.seconds_of_tree(process.pid)
        process.kill()

    assert used >= 0.3


# Page and picture


def elements(drawn: str, name: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(drawn)  # noqa: S314 - of our own making
    return list(root.iter(f"{{http://www.w3.org/2000/svg}}{name}"))


def texts(drawn: str) -> list[str]:
    return [each.text or "" for each in elements(drawn, "text")]


def widths(drawn: str) -> list[float]:
    return [float(each.attrib["width"]) for each in elements(drawn, "rect") if each.get("height") == "14"]


def test_a_picture_has_a_bar_and_a_number_for_each_value() -> None:
    panel = Panel(
        "Time, s", [Group("a & b", [("none", 5.0), ("ours", 10.0)]), Group("c", [("ours", 1234.5)])]
    )

    drawn = svg("It", [panel], ["none", "ours"])

    assert texts(drawn) == ["none", "ours", "Time, s", "a & b", "5", "10", "c", "1,234"]
    none, ours, most = widths(drawn)
    assert ours == pytest.approx(2 * none, rel=0.1)
    assert most == max(widths(drawn))
    assert "prefers-color-scheme: dark" in drawn


def test_the_page_and_its_picture_are_made_of_the_same_rows(tmp_path: Path) -> None:
    settings = [*SETTINGS, ALLOCATING]
    found = all_rows(settings)

    written = page.write(found, settings, figures(found, settings), tmp_path)

    text = written.read_text()
    assert "| **not held** |" in text
    assert "| held |" in text
    assert "## Busy, 10 deletions, 4 at once" in text
    assert f"| {P99} | 200 | 300 | 400 |" in text
    assert (written.parent / "../images/storm.svg").resolve().exists()
    drawn = (tmp_path / "images" / "storm.svg").read_text()
    assert {"busy, 10 deletions, 4 at once", "quiet, 10 deletions, one at a time"} <= {*texts(drawn)}
