"""Whatever fails, whenever the controller dies: one address for each living node, none for the dead, none forgotten.

Nor is one bound before it was announced, nor a node opened before a pod on it has seen its address, where this is set.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.anycast_ip import BOUND
from controllers.anycast_ip.claim import NODE_NAME
from controllers.anycast_ip.reconciler import UNPROVEN
from kube.errors import ServerError, Unreachable
from tests.anycast_world import Killed, Lab, plenty, run_with_deaths
from tests.test_anycast_allow_list import published
from tests.test_anycast_announcements import Watched, listing
from tests.test_anycast_egress import CHECKING, EgressLab, elsewhere, honest, never
from tests.test_anycast_pool import idle, pooling, stored, unaccounted
from tests.test_anycast_terms import WIDE, with_entries

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["join", "leave", "kill", "end", "widen"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["wait", "die", "fail"]), st.integers(1, 12)),
        st.tuples(st.just("pool"), st.integers(0, 8)),
        st.tuples(st.just("see"), st.integers(0, 2)),
    ),
    max_size=16,
)
KNOBS = st.sampled_from(
    [
        {},
        {"lost": 0.3, "bind_fails": 0.15},
        {"throttled": 0.3},
        {"server_errors": 0.2, "html": 0.1},
        {"internal_errors": 0.2, "errors_after_commit": True},
        {"tag_lag_seconds": 30.0, "stale_rows": True, "lost": 0.1},
        {"filter_lag_seconds": 30.0, "stale_rows": True, "bind_fails": 0.2},
        {"new_tag_seconds": 5.0},
        {"instance_shown_after_unbinding": True},
        {"token_busy_while_creating": True, "lost": 0.1},
        {"already_bound_while_binding": False, "bind_fails": 0.3},
        {"allocate_seconds": 60.0, "unbind_seconds": 60.0},
        {"bandwidth_seconds": 30.0, "lost": 0.1},
    ]
)
SWITCHED_ON = st.fixed_dictionaries(
    {}, optional={"allow_list": st.just(listing(8)), "egress_check": st.just(CHECKING)}
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    knobs=KNOBS,
    seed=st.integers(0, 1000),
    sizes=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    switched_on=SWITCHED_ON,
)
def test_whatever_happens_each_address_is_bound_promised_idle_or_being_released(
    steps: list[tuple[str, int]],
    knobs: dict[str, Any],
    seed: int,
    sizes: tuple[int, int],
    switched_on: dict[str, Any],
) -> None:
    switched_on = {**switched_on, "addresses": with_entries(WIDE).addresses}
    lab = EgressLab(plenty(**knobs, seed=seed), pooling(*sizes, **switched_on))
    watched, unseen = Watched(lab), unseen_in(lab)
    for verb, number in steps:
        if verb == "pool":
            lab.settings = pooling(*divmod(number, 3), **switched_on)
        elif verb == "see":
            lab.kubelet = (honest, never, elsewhere)[number]
        happen(lab, verb, number)
        assert not unaccounted(lab)
    lab.kubelet, lab.sender.before, lab.kube.after = honest, (lambda verb: None), (lambda verb: None)
    run_with_deaths(
        lab, lambda: lab.all_open() and lab.is_settled() and has_widths(lab), UNPROVEN + 2500, "settled"
    )
    run_with_deaths(lab, lambda: not lab.pods(), 310, "no pod is left")
    lab.run_for(30)

    living = sorted(f"ins-{each.metadata.name}" for each in lab.nodes())
    assert sorted(each.instance_id for each in lab.elastic() if each.status == "BIND") == living
    assert len(lab.elastic()) == len(living) + len(idle(lab))
    assert lab.settings.pool.min_idle <= len(idle(lab)) <= lab.settings.pool.size
    assert not unaccounted(lab)
    assert_tags_are_known(lab)
    if "allow_list" in switched_on:
        assert watched.wrong == []
        states = {each.ip: "idle" if each.id in idle(lab) else "in use" for each in lab.elastic()}
        assert published(lab) == states
    assert unseen == [] or "egress_check" not in switched_on


def has_widths(lab: Lab) -> bool:
    nodes = {node.metadata.name: node.metadata.labels for node in lab.nodes()}
    return all(
        [each.bandwidth for each in lab.on(name)] == [500 if "net" in labels else 100]
        for name, labels in nodes.items()
    )


def assert_tags_are_known(lab: Lab) -> None:
    """A tag is deleted with the claim that has it, if no other claim has it."""
    known = {value for claim in stored(lab) for key, value in claim.tags if key == NODE_NAME}
    assert {each.tags[NODE_NAME] for each in lab.elastic()} <= lab.tag_values(NODE_NAME) <= known


def unseen_in(lab: EgressLab) -> list[str]:
    """Nodes that open from now on though no pod on them has seen their address."""
    unseen = list[str]()

    def record(name: str, written: Any) -> None:
        proof = written["metadata"].get("annotations", {}).get(BOUND)
        if proof and proof.partition("/")[0] not in lab.seen:
            unseen.append(name)

    lab.kube.before_write = record
    return unseen


def happen(lab: Lab, verb: str, number: int) -> None:
    name, there = f"n{number}", {each.metadata.name for each in lab.nodes()}
    if verb == "join" and name not in there:
        lab.join(name)
    elif verb == "leave" and name in there:
        lab.leave(name)
    elif verb == "end" and name in there:
        lab.leave(name)
        lab.world.end_instance(f"ins-{name}")
        lab.world.ended_instances.discard(f"ins-{name}")
    elif verb == "widen" and name in there:
        lab.edit(name, {"metadata": {"labels": WIDE["nodeSelector"]}})
    elif verb == "kill":
        lab.start()
    elif verb == "die":
        die_at_write(lab, number)
    elif verb == "fail":
        lose_answers(lab, number)
    elif verb == "wait":
        end = lab.clock() + number
        run_with_deaths(lab, lambda: lab.clock() >= end, 600, "time")


def die_at_write(lab: Lab, number: int) -> None:
    """The *number*-th call or write from now on is the last that this controller makes."""
    left = iter(range(number))

    def die(verb: str) -> None:
        if verb != "list" and next(left, None) is None:
            lab.sender.before = lab.kube.after = lambda verb: None
            raise Killed

    lab.sender.before = lab.kube.after = die


def lose_answers(lab: Lab, number: int) -> None:
    """Those of so many writes to the API server, each second one from now on."""
    turns = iter(range(2 * number))

    def fail(verb: str) -> None:
        if verb != "list" and next(turns, 0) % 2:
            raise Unreachable("reset") if number % 2 else ServerError(500, "InternalError", "etcd")

    lab.kube.after = fail
