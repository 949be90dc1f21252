"""Directed histories: what once went wrong, in the world in which seeds play, under a sentence as its name.

A history acts between waits; all else is as in a scenario: the judge asks every invariant at every instant, then comes
the rest, then a fresh start.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from prometheus_client import REGISTRY

from api.anycast_ip import ADDRESS, ADDRESS_ID, NODE_ADDRESS, WAIT
from api.elasticity import DS_INJECTION, LOCAL_REPLICAS, PLACEMENT, SWITCH
from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL
from api.ip_reservation import PATH, RESERVE, RESERVE_FINISHED
from api.standing import RESERVED
from calico.segment import LEVEL, MANAGED_BY, MANAGER, METADATA, PREFIX, Record, body
from cli.explain.matching import ApiRequest
from cli.installation import CONFIGURATIONS
from controllers.anycast_ip.claim import NODE_INSTANCE, NODE_NAME
from controllers.elasticity.eligibility import CLAIMS
from controllers.elasticity.planner import CAPPED
from dev.judge.edge import DETACHED_BY, DRAIN, EXCLUDED
from dev.judge.observation import (
    ADDRESS_READY,
    condition,
    is_open,
    is_open_without,
    is_ready,
    is_super,
    notes,
)
from dev.judge.observation import (
    name as named,
)
from dev.judge.placement import is_gated
from dev.judge.truth import WaitsSayWhy
from dev.lab.cloud.values import Address, Target
from dev.simulator import helm, objects
from dev.simulator.admission import Away
from dev.simulator.machines import check_wait, drain, excuse
from dev.simulator.memory import remembered
from dev.simulator.models.calico import POOL, RESERVATIONS
from dev.simulator.models.cloud import QUOTA
from dev.simulator.models.cluster import JOBS, REPLICA_SETS
from dev.simulator.models.load_balancer import is_excluded
from dev.simulator.models.stateful_sets import POD_NAME
from dev.simulator.operations import (
    create_the_webhook_configuration_again,
    empty_bundles,
    is_home,
    kill_the_leader,
    labels,
    no_webhook_server_answers,
)
from dev.simulator.operator import restored
from dev.simulator.outside import SECRETS
from dev.simulator.scenario import SELF_MANAGED, Scenario, values_of
from dev.simulator.world import World
from kube.errors import KubeError
from kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFUL_SETS,
)
from settings.anycast_ip import NEED_LABEL

Raw = dict[str, Any]
Script = Callable[[World], Iterator[float]]
"""Acts, and yields the seconds until it acts again."""
RELEASING = '"releasing":true'
"""In an address claim."""
EDGE = "edge"
DETACH_KEY = "node-detacher.variant.run/detached"
PAST_DEADLINE = "edge: no node stays detached past progressDeadlineSeconds for a template that is refused"
LEFT_DETACHED = "edge: no node stays detached when the feature is off"
ENDS_ANYWAY = "ip: each reservation ends, compaction or not"
IP_RESERVATIONS = RESERVATIONS[0]
NOT_BEFORE = "placement: no pod goes home before homeAfter"
AFTER = "placement: a pod that super nodes do not take goes home after homeAfter"
SHARED = "ip: no pod waits for an address that is reserved beyond maxPoolShare"
ADMITTED = "ip: deletions at one moment are all admitted"
IN_FEW, FEW_OBJECTS = "ip: a minute later, reservations are in few objects", 16
EXHAUSTED = "address: a node that is refused by a quota opens in the end, and stays open"
FEW_UNBOUND = "address: few addresses of machines that run are unbound in an hour"
CLAIMS_END = "address: each claim of a node that is gone ends"
SAID_WHEN = "truth: an Event says when an address that is announced will be bound"
MOVED = "truth: an Event says that a user moved an address"
KEPT = "address: as many idle addresses are kept as the pool says"
KNOWN = "address: a pod that waits for the address of its node has it"
KEPT_OPEN = "address: a node that was open with its address stays so"
HOME = "placement: pods that went away because local nodes were full return when they have room"
STAYS = "placement: no pod goes home where none like it fits"
SAID = "truth: a pod that waits says for what by an Event"
GO_ON = "leadership: nothing stops the other features"
FORGED, FEW_FORGED = "ip: reviews that no API server sent hold few addresses", 40
CLOSED, WINDOW = "Sat", "edge: no pod is replaced while the window is closed"
TO_AND_FRO, FEW_RETURNS = "placement: no pod goes home and back more than a few times", 5
ONE_HANG = "ip: one write that hangs refuses no deletion"
FORGOTTEN, ROUND = "leadership: memory is bounded", 5
PLACES = "placement: each pod is where its annotations and its spec say"
ENDED_BY_ITSELF = "ip: the addresses of pods that finished are reserved where their namespace asks for it"
LATEST = "ip: of too many reservations the latest stay"
SAME = "ip: with sameAddress, a pod has its former address where any node may have that"
CAUSES = "truth: a metric says why reservations were released early"
FOLLOWED = "ip: addresses of pods are reserved whose workload asks for it, and no others"
ABORTED = "edge: what abort restores is what ran before"
ASKED = "truth: what was asked is what runs in the end"
IN_ORDER = "edge: a template reaches the nodes of one wave after the other"
OPENED = (
    "edge: a rollout that waits for its window begins when that opens, and takes no longer than any other"
)
PAUSED = "edge: while a rollout is paused, no further node gets its template"
WHOLE = "edge: in a rollout a node is attached when its new pods are available"
MENDED = "edge: what is unavailable anyway gets a template that mends it"
BY_NODE = {"byLabel": "kubernetes.io/hostname"}
LEFT = "edge: in the end a node that is selected no more has no pods"
EVICTED_LATER = "edge: a node is detached before its pods are evicted"
UNSERVED = "edge: no node without pods has a weight"
EXCLUSION = "edge: in the end those nodes are excluded that others exclude"
RESTORED = "edge: in the end each node has its former weight"
BALANCER = "lb-1a2b3c4d"
BALANCED = {"enabled": True, "loadBalancers": [{"id": BALANCER, "namespaces": [objects.SHOP]}]}
BREATH = 30.0
"""Seconds from the last act of a history until the world is left alone."""
REST, FOR_EVER = 600.0, 1e9
LATE = 30.0
"""Seconds for which a write is on its way: another one leads meanwhile, and has decided."""

HISTORIES: dict[str, Scenario] = {}
Keep = Callable[[Script], Script]


def written_as(book: dict[str, Scenario]) -> Callable[..., Keep]:
    """A decorator that keeps a script in *book*, with its first line as its name."""

    def history(
        *features: str,
        nodes: int = 4,
        lasts: float = 300.0,
        values: Raw | None = None,
        skews: Sequence[float] = (0.0,) * 4,
    ) -> Keep:
        """*lasts* is for how many seconds the script acts at most; *skews* are of two controllers and two servers."""

        def keep(script: Script) -> Script:
            assert script.__doc__ is not None
            name = script.__doc__.strip().removesuffix(".")
            installed = values_of(features, values or {})
            busy = lasts + BREATH
            book[name] = Scenario(0, features, installed, nodes, skews, (), busy, REST, script, name)
            return script

        return keep

    return history


history = written_as(HISTORIES)


def need_addresses(world: World) -> None:
    for node in world.api.list(NODES):
        world.patch(NODES, named(node), labels({NEED_LABEL: "true"}))


def register_again(world: World, name: str) -> None:
    """The machine of a Node comes under a second name, too."""
    number = int(name.rpartition("-")[2])
    again = objects.node(f"{name}-again", number, {NEED_LABEL: "true"}, instance=f"ins-{number:08d}")
    world.kubectl_create(NODES, again)


def leaves(world: World, name: str) -> None:
    """As when its pool is scaled in."""
    if not name.endswith("-again"):
        world.end_machine(name)
    world.kubectl_delete(NODES, world.api.get(NODES, name))


@history("anycast_ip", nodes=2)
def second_node(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the second Node leaves."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    leaves(world, "node-1-again")


@history("anycast_ip", nodes=2)
def first_node_leaves(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the first Node leaves."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    world.kubectl_delete(NODES, world.api.get(NODES, "node-1"))


@history("anycast_ip", nodes=2, values={"anycastIP": {"podAddress": {"enabled": True}}})
def pods_wait(world: World) -> Iterator[float]:
    """A pod that waits for the address of its node is bound when the node's status shows that."""
    world.patch(NAMESPACES, objects.SHOP, labels({NODE_ADDRESS: WAIT}))
    need_addresses(world)
    yield 60.0
    world.kubectl_create(DEPLOYMENTS, objects.deployment("game", 2))
    yield 30.0
    if early := [each for each in shop_pods(world) if of_app(each, "game") and each["spec"].get("nodeName")]:
        broken(world, KNOWN, f"{len(early)} pods did not wait")
    for node in world.api.list(NODES):
        ip = {"type": "ExternalIP", "address": notes(node)[ADDRESS]}
        change = {"status": {"addresses": [*node["status"]["addresses"], ip]}}
        world.api.edit(NODES, named(node), change, manager="cloud-controller-manager")
    yield 60.0
    known = [notes(each).get(NODE_ADDRESS) for each in shop_pods(world) if of_app(each, "game")]
    if len(known) != 2 or not all(known):
        broken(world, KNOWN, f"pods have {known}")


@history("anycast_ip", nodes=3)
def wrong_keys(world: World) -> Iterator[float]:
    """Keys of another account for a minute while a node leaves do not leak its address."""
    need_addresses(world)
    yield 60.0
    world.cloud.use_keys_of_the_other_account(world.kernel.now + 60.0)
    leaves(world, "node-2")
    yield 90.0


@history("anycast_ip", nodes=3)
def wrong_keys_with_an_order(world: World) -> Iterator[float]:
    """Keys of another account, in which an address was ordered for a node that joins, close no node."""
    need_addresses(world)
    yield 60.0
    world.cloud.use_keys_of_the_other_account(world.kernel.now + 200.0)
    number = world.next_number()
    world.kubectl_create(NODES, objects.node(f"node-{number}", number, {NEED_LABEL: "true"}))
    yield 15.0
    for each in world.product.controllers:  # the next leader looks at all nodes
        world.product.kill(each)
    yield 150.0
    nodes = [each for each in world.api.list(NODES) if not is_open(each)]
    if closed := [name for each in nodes if (name := named(each)) != f"node-{number}"]:
        broken(world, KEPT_OPEN, ", ".join(closed))
    yield 120.0


@history("anycast_ip", nodes=2)
def wrong_keys_after_an_order(world: World) -> Iterator[float]:
    """An address that comes late, once keys of another account have ordered one, too, is used in the end."""
    need_addresses(world)
    yield 60.0
    heard = world.cloud.on_arrival

    def hear(*call: Any) -> None:
        if "CreateTags" in call:
            world.cloud.delay_changes(1.0, 0.0)
        heard(*call)

    world.cloud.on_arrival = hear
    number = world.next_number()
    world.kubectl_create(NODES, objects.node(f"node-{number}", number, {NEED_LABEL: "true"}))
    yield 3.0
    world.cloud.on_arrival = heard
    world.cloud.delay_changes(0.0, 0.0)
    world.cloud.use_keys_of_the_other_account(world.kernel.now + 40.0)
    yield 240.0


@history("anycast_ip", nodes=3)
def wrong_keys_while_releasing(world: World) -> Iterator[float]:
    """Keys of another account for a minute while a release is under way do not leak its address."""
    need_addresses(world)
    yield 60.0
    leaves(world, "node-2")
    while not any(RELEASING in str(each.get("data")) for each in world.api.peek(CONFIG_MAPS)):
        yield 0.005
    world.cloud.use_keys_of_the_other_account(world.kernel.now + 60.0)
    yield 90.0


def wrong_keys_once_released(world: World) -> Iterator[float]:
    """Those of another account, for a minute, when the first of three addresses is released."""
    need_addresses(world)
    yield 60.0
    leaves(world, "node-2")
    while len(world.cloud.addresses) == 3:
        yield 0.005
    world.cloud.use_keys_of_the_other_account(world.kernel.now + 60.0)


@history("anycast_ip", nodes=3)
def wrong_keys_while_untagging(world: World) -> Iterator[float]:
    """Keys of another account for a minute, once an address is released, leave none of its tags behind."""
    yield from wrong_keys_once_released(world)
    yield 150.0


@history("anycast_ip", nodes=3)
def right_keys_after_untagging(world: World) -> Iterator[float]:
    """Keys of another account that end right after its answers leave none of the tags that it did not know."""
    yield from wrong_keys_once_released(world)
    asked: list[str] = []
    heard = world.cloud.on_arrival

    def hear(*call: Any) -> None:
        asked.extend(each for each in call if each == "DeleteTags")
        heard(*call)

    world.cloud.on_arrival = hear
    while len(asked) < 3:  # both tags, then each by itself
        yield 0.005
    world.cloud.use_keys_of_the_other_account(world.kernel.now)
    yield 150.0


@history("anycast_ip", nodes=1)
def dies_while_releasing(world: World) -> Iterator[float]:
    """A leader that dies when the cloud has released the last address leaves a claim that ends in minutes."""
    need_addresses(world)
    yield 60.0
    leaves(world, "node-1")
    while any(each.status != "OFFLINING" for each in world.cloud.addresses):
        yield 0.001
    kill_the_leader(world, world.kernel.dice)
    yield 180.0
    if claims := world.claims:
        broken(world, CLAIMS_END, f"{', '.join(claims)} is left")


@history("anycast_ip", nodes=2, values={"anycastIP": {"releaseOnLabelRemoval": True}})
def second_node_unlabelled(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the second Node loses its label."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    world.patch(NODES, "node-1-again", labels({NEED_LABEL: None}))
    yield 60.0


@history("anycast_ip", nodes=2, lasts=600.0)
def first_node_unlabelled(world: World) -> Iterator[float]:
    """A second Node of a machine gets the address that the first one, without its label, keeps though it is unbound."""
    need_addresses(world)
    yield 60.0
    world.patch(NODES, "node-1", labels({NEED_LABEL: None}))
    register_again(world, "node-1")
    yield 30.0
    address = next(each for each in world.cloud.addresses if each.instance_id == "ins-00000001")
    world.outside.disturb(address.id, address.instance_id)
    world.cloud.account.alter(address.id, status="UNBIND")
    yield 400.0


@history("anycast_ip", nodes=2)
def second_node_corrected(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the second Node names another one."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    other = {objects.INSTANCE_LABEL: "ins-00000099"}
    world.patch(NODES, "node-1-again", {"metadata": {"labels": other}})
    yield 60.0


@history("anycast_ip", nodes=2)
def names_another_instance(world: World) -> Iterator[float]:
    """A node that names another instance gets an address there, and gives back its former one."""
    need_addresses(world)
    yield 60.0
    world.outside.disturb("node-1", "ins-00000001")
    other = {objects.INSTANCE_LABEL: "ins-00000099"}
    world.patch(NODES, "node-1", {"metadata": {"labels": other}})
    yield 60.0


@history("anycast_ip", nodes=2)
def second_node_stays(world: World) -> Iterator[float]:
    """A second Node of a machine stays closed, and says why."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0


@history("anycast_ip", nodes=2)
def refused_by_its_instance(world: World) -> Iterator[float]:
    """A node whose instance takes no address for now says so, and is opened later."""
    world.cloud.account.add_instance("ins-00000009", state="PENDING")
    world.kubectl_create(NODES, objects.node("node-9", 9, {NEED_LABEL: "true"}))
    yield 60.0
    says_why(world)
    world.cloud.account.add_instance("ins-00000009", state="RUNNING")
    yield 60.0


@history("anycast_ip", nodes=2)
def late_changes(world: World) -> Iterator[float]:
    """What a leader has asked the cloud is carried out before another one may lead, however long the call hangs."""
    world.cloud.knobs.allocate_seconds = 10.0
    for number in range(11, 21):
        world.kubectl_create(NODES, objects.node(f"node-{number}", number, {NEED_LABEL: "true"}))
        yield 0.5
    yield 1.0
    world.cloud.delay_changes(1.0, 0.0)
    world.network.cut(world.leader().partition("_")[0], world.kernel.now + 30.0)
    yield 40.0


def with_two_addresses(world: World, *, blocked: bool) -> Generator[float, None, Address]:
    """Of a machine before its Node comes: the one that was ordered for it; the other may be *blocked*."""
    need_addresses(world)
    yield 60.0
    tags = {**world.cloud.addresses[0].tags, NODE_NAME: "node-9", NODE_INSTANCE: "ins-00000009"}
    bound = {"status": "BIND", "instance_id": "ins-00000009"}
    world.cloud.account.add_address(type="AnycastEIP", blocked=blocked, **bound)  # of another interface, say
    own = world.cloud.account.add_address(type="AnycastEIP", tags=tags, **bound)
    kill_the_leader(world, world.kernel.dice)  # the next one lists the addresses before it sees the node
    yield 60.0
    return own


@history("anycast_ip", nodes=2)
def opened_by_the_original(world: World) -> Iterator[float]:
    """A node that the original has opened keeps its address, and stays open."""
    own = yield from with_two_addresses(world, blocked=True)
    node = objects.node("node-9", 9, {NEED_LABEL: "true"})
    node["metadata"]["annotations"] = {ADDRESS_ID: own.id}
    known = {each.id for each in world.cloud.addresses}
    world.api.put(NODES, node)
    for _ in range(100):
        yield 0.5
        if not is_open(world.api.get(NODES, "node-9")):
            broken(world, KEPT_OPEN, "node-9 is closed")
    if known != {each.id for each in world.cloud.addresses}:
        broken(world, KEPT_OPEN, "another address is ordered")


@history("anycast_ip", nodes=2)
def has_two_addresses(world: World) -> Iterator[float]:
    """Of two addresses on a machine, its node adopts the one that was ordered for it, and gives that back."""
    yield from with_two_addresses(world, blocked=False)
    world.kubectl_create(NODES, objects.node("node-9", 9, {NEED_LABEL: "true"}))
    yield 60.0
    leaves(world, "node-9")
    yield 60.0


@history("anycast_ip", nodes=2)
def copied_node(world: World) -> Iterator[float]:
    """A second Node of a machine that comes open, as a copy of the first one, is closed."""
    need_addresses(world)
    yield 60.0
    node = world.api.get(NODES, "node-1")
    about = {key: node["metadata"][key] for key in ("labels", "annotations")}
    world.api.put(NODES, {**node, "metadata": {**about, "name": "node-1-again"}})
    yield 60.0


@history("anycast_ip", nodes=2)
def joins_without_admission(world: World) -> Iterator[float]:
    """Nodes that join while no webhook server answers are closed by the leader, or by the next one."""
    world.cloud.go_away(world.kernel.now + 150.0)
    for first, seconds in ((3, 0.0), (13, 30.0)):
        no_webhook_server_answers(world, world.kernel.dice)
        for each in world.product.controllers:
            world.network.cut(each.name, world.kernel.now + seconds)
        for number in range(first, first + 10):
            world.kubectl_create(NODES, objects.node(f"node-{number}", number, {NEED_LABEL: "true"}))
            yield 0.1
        yield 70.0
    yield 60.0


@history("anycast_ip", nodes=2, values={"admission": {"mutations": "policy"}})
def joins_closed_without_servers(world: World) -> Iterator[float]:
    """Nodes that join while no webhook server answers are closed by the API server, where a policy taints them."""
    yield from joins_without_admission(world)


@history("anycast_ip", nodes=3, lasts=800.0)
def taken_away_at_the_console(world: World) -> Iterator[float]:
    """A node whose address a user unbinds while it is blocked says so and waits; a released one is replaced."""
    need_addresses(world)
    yield 60.0
    blocked, released = world.cloud.addresses[:2]
    world.outside.disturb(blocked.id, blocked.instance_id)
    world.cloud.account.alter(blocked.id, status="UNBIND", blocked=True)
    release(world, released)
    yield 340.0
    says_why(world)
    world.cloud.account.alter(blocked.id, blocked=False)
    yield 60.0


def release(world: World, address: Address) -> None:
    """By a user, at the console."""
    world.outside.disturb(address.id, address.instance_id)
    with world.cloud.account.advanced() as now:
        world.cloud.account.history.end(address.id, now)


@history("anycast_ip", nodes=2, lasts=500.0)
def replaced_after_the_backup(world: World) -> Iterator[float]:
    """A node whose address was replaced after the backup from which etcd is restored opens with the present one."""
    need_addresses(world)
    yield 60.0
    world.kernel.spawn(partial(release, world, world.cloud.addresses[0]), "console", after=1.0)
    restored(world, 340.0, world.dice("restored"))
    yield 60.0
    if len(found := world.cloud.addresses) > 2:
        broken(world, KEPT, f"{len(found)} addresses for two nodes")


@history("anycast_ip", nodes=2)
def has_other_addresses(world: World) -> Iterator[float]:
    """A node whose machine has another address says of which kind, and is opened when that is gone."""
    reasons = {"node-8": ("WanIP", "AlreadyHasPublicIp"), "node-9": ("EIP", "AlreadyHasAnycastIp")}
    others = []
    for name, (kind, _) in reasons.items():
        number = int(name[-1])
        bound = {"status": "BIND", "instance_id": f"ins-{number:08d}"}
        others.append(world.cloud.account.add_address(type=kind, **bound))
        world.kubectl_create(NODES, objects.node(name, number, {NEED_LABEL: "true"}))
    yield 60.0
    for name, (kind, reason) in reasons.items():
        said = condition(world.api.get(NODES, name), ADDRESS_READY).get("reason")
        if said != reason:
            broken(world, WaitsSayWhy.name, f"{name} has an address of type {kind}, and says {said}")
    for each in others:
        release(world, each)
    yield 100.0


@history("anycast_ip", nodes=2)
def leaves_while_ordering(world: World) -> Iterator[float]:
    """A node that leaves while the answer to its order is lost leaves no address behind."""
    known = {each.id for each in world.cloud.addresses}
    world.cloud.knobs.faulty_actions, world.cloud.knobs.lost = ["AllocateAddresses"], 1.0
    world.kubectl_create(NODES, objects.node("node-9", 9, {NEED_LABEL: "true"}))
    while known == {each.id for each in world.cloud.addresses}:
        yield 0.1
    leaves(world, "node-9")
    yield 60.0


@history("anycast_ip", nodes=2)
def list_of_others(world: World) -> Iterator[float]:
    """A node says why its address is not in the allow-list, then that it is, and is opened after that."""
    others = {"metadata": {"name": "addresses", "namespace": "drawbridge"}, "data": {}}
    world.api.put(CONFIG_MAPS, others)
    announced = {"allowList": {"enabled": True, "configMap": "addresses", "announceBefore": "10s"}}
    world.install({**world.values, "anycastIP": {**world.values["anycastIP"], **announced}})
    yield 30.0
    world.kubectl_create(NODES, objects.node("node-9", 9, {NEED_LABEL: "true"}))
    yield 30.0
    says_why(world)
    world.api.remove(CONFIG_MAPS, "addresses", "drawbridge")
    yield 60.0
    if "AnycastIpAnnounced" not in events(world):
        broken(world, SAID_WHEN, "node-9")


def events(world: World) -> set[str]:
    """Their reasons."""
    return {each["reason"] for each in world.api.peek(EVENTS)}


def says_why(world: World) -> None:
    if silent := next(WaitsSayWhy().rest(world.outside.observation()), ""):
        broken(world, WaitsSayWhy.name, silent)


@history("anycast_ip", nodes=8, lasts=600.0)
def copy_of_a_control_plane(world: World) -> Iterator[float]:
    """A copy of a control plane, whose Nodes go while their machines run, takes few of their addresses in all."""

    def bound() -> int:
        return sum(each.status == "BIND" for each in world.cloud.addresses)

    need_addresses(world)
    yield 60.0
    for number in range(1, 9):
        world.kubectl_delete(NODES, world.api.get(NODES, f"node-{number}"))
    while bound() == 8:
        yield 0.1
    kill_the_leader(world, world.kernel.dice)
    yield 400.0
    if bound() < 5:
        broken(world, FEW_UNBOUND, f"{bound()} of 8 addresses are bound")


@history("anycast_ip", nodes=2, lasts=600.0)
def moved_address(world: World) -> Iterator[float]:
    """The claim of a node that is gone ends although a user moved its address to another machine."""
    need_addresses(world)
    yield 60.0
    moved = next(each for each in world.cloud.addresses if each.instance_id == "ins-00000002")
    world.outside.disturb(moved.id, moved.instance_id)
    world.cloud.account.alter(moved.id, instance_id="nat-1")
    yield 340.0
    leaves(world, "node-2")
    yield 120.0
    if len(claims := world.claims) > 1:
        broken(world, CLAIMS_END, f"there are {len(claims)} claims for one node")
    if "AnycastIpMoved" not in events(world):
        broken(world, MOVED, moved.id)
    world.cloud.account.alter(moved.id, tags={})
    yield 60.0


@history(
    "anycast_ip",
    nodes=5,
    values={"anycastIP": {"pool": {"minIdle": 2, "retain": {"enabled": True, "count": 3}}}},
)
def spares_and_kept(world: World) -> Iterator[float]:
    """Spares take no place of addresses that are kept, and a slip in their type costs none of them."""
    need_addresses(world)
    yield 60.0
    for number in range(1, 6):
        leaves(world, f"node-{number}")
    yield 120.0
    kept = {each.id for each in world.cloud.addresses}
    if len(kept) != 5:
        broken(world, KEPT, f"{len(kept)} of 5 addresses are there")
    anycast = world.values["anycastIP"]
    for kind in ("EIP", "AnycastEIP"):
        world.install({**world.values, "anycastIP": {**anycast, "addressType": kind}})
        yield 100.0
    if lost := kept - {each.id for each in world.cloud.addresses}:
        broken(world, KEPT, f"{', '.join(sorted(lost))} were released")


@history("anycast_ip", nodes=1, lasts=700.0)
def late_spares(world: World) -> Iterator[float]:
    """Spares of a leader that has died, which are stored after the next one has its own, do not stay."""
    anycast = world.values["anycastIP"]
    world.network.delay(world.kernel.now + 3.0, 1.0, LATE, LATE)
    world.install({**world.values, "anycastIP": {**anycast, "pool": {"minIdle": 2}}})
    world.promise(world.values)
    yield 3.0
    kill_the_leader(world, world.kernel.dice)
    yield 500.0


@history("anycast_ip", nodes=2, lasts=1500.0, values={"anycastIP": {"whenExhausted": "release"}})
def fewer_addresses_than_nodes(world: World) -> Iterator[float]:
    """A node that a quota refuses opens without an address under any leader, and gets the next one while it is open."""
    need_addresses(world)
    yield 60.0
    world.cloud.knobs.quota_total = 0
    world.kubectl_create(NODES, objects.node("node-9", 9, {NEED_LABEL: "true"}))
    yield 300.0
    kill_the_leader(world, world.kernel.dice)
    yield 800.0
    if not is_open_without(world.api.get(NODES, "node-9")):
        broken(world, EXHAUSTED, "node-9 is still closed")
    world.cloud.knobs.quota_total = QUOTA
    for _ in range(320):
        if not is_open(world.api.get(NODES, "node-9")):
            broken(world, EXHAUSTED, "node-9 is closed again")
        yield 1.0


def broken(world: World, promise: str, message: str) -> None:
    world.outside.judge.find(promise, world.kernel.now, message)


# The edge.


def give_template(world: World, image: str) -> None:
    world.patch_template(INGRESS_DAEMONSETS, EDGE, [{"name": "main", "image": image}])


def edge_spec(world: World, **changes: Any) -> None:
    world.patch(INGRESS_DAEMONSETS, EDGE, {"spec": changes})


def rolling(world: World, **changes: Any) -> None:
    edge_spec(world, updateStrategy={"rollingUpdate": changes})


@history("ingress_daemonset", nodes=6, lasts=600.0)
def crash_after_availability(world: World) -> Iterator[float]:
    """Pods that become available and crash 15 s later take no more nodes off than the budget allows."""
    yield 120.0
    give_template(world, "crashing:2")
    yield 400.0


@history("ingress_daemonset", nodes=6, lasts=600.0)
def crash_with_rollback(world: World) -> Iterator[float]:
    """With autoRollback, pods that crash after they were available are rolled back, and all nodes serve again."""
    rolling(world, autoRollback=True)
    yield 120.0
    give_template(world, "crashing:2")
    yield 400.0


@history("ingress_daemonset", nodes=5, lasts=600.0)
def joins_before_the_first_crash(world: World) -> Iterator[float]:
    """A node that joins before the first pods of a template crash does not get it, nor between two crashes."""
    yield 120.0
    give_template(world, "crashing:2")
    for numbers in ((6, 7), (8, 9)):
        while not any(image(each) == "crashing:2" and is_ready(each) for each in edge_pods(world)):
            yield 0.1
        yield 4.0
        for each in numbers:
            world.kubectl_create(NODES, objects.node(f"node-{each}", each, {objects.INGRESS_LABEL: "true"}))
        yield 60.0
    yield 180.0


@history("ingress_daemonset", nodes=3, lasts=500.0)
def joins_without_others(world: World) -> Iterator[float]:
    """Where all nodes have left, a new template waits for its turn on those that come."""
    rolling(world, canary={"nodes": 1})
    yield 120.0
    names = [named(each) for each in world.api.list(NODES)]
    for value, template, lasts in (
        (None, "proxy:1", 60.0),
        (None, "proxy:2", 60.0),
        ("true", "proxy:2", 150.0),
    ):
        for name in names:
            world.patch(NODES, name, labels({objects.INGRESS_LABEL: value}))
        give_template(world, template)
        yield lasts
    if images(world) != {"proxy:1", "proxy:2"}:
        broken(world, IN_ORDER, f"the pods have {images(world)} before the canary is promoted")


@history("ingress_daemonset", nodes=3, lasts=500.0)
def joins_a_paused_failure(world: World) -> Iterator[float]:
    """A node that joins while a template that fails is paused does not get it, though all others have it."""
    yield 120.0
    give_template(world, "crashing:2")
    yield 60.0
    edge_spec(world, paused=True)
    for value in (None, "true"):
        world.patch(NODES, "node-3", labels({objects.INGRESS_LABEL: value}))
        yield 60.0
    yield 150.0


@history("ingress_daemonset", nodes=4, lasts=400.0)
def crash_before_availability(world: World) -> Iterator[float]:
    """Pods that become ready and crash before minReadySeconds are over are rolled back at the deadline."""
    rolling(world, autoRollback=True)
    edge_spec(world, minReadySeconds=30)
    yield 150.0
    give_template(world, "crashing:2")


@history("ingress_daemonset", nodes=4, lasts=900.0)
def installed_again_in_a_failure(world: World) -> Iterator[float]:
    """A release that is installed again gives no node a template with which a node failed before."""
    yield 120.0
    give_template(world, "never-ready:2")
    yield 60.0
    values = world.values
    helm.uninstall(world, 20.0)
    helm.install_again(world, values)
    yield 60.0
    world.patch(NODES, "node-4", {"spec": {"unschedulable": True}})
    yield 300.0


@history("ingress_daemonset", nodes=4)
def detached_in_a_halt(world: World) -> Iterator[float]:
    """A node that is detached when its rollout halts keeps the template that it has."""
    rolling(world, annotateNodeToDetach={"gracePeriodSeconds": 60})
    edge_spec(world, progressDeadlineSeconds=60)
    yield 60.0
    give_template(world, "never-ready:2")
    while "never-ready:2" not in images(world):
        yield 1.0
    yield 50.0
    rolling(world, maxUnavailableNodes=2)
    yield 150.0


@history("ingress_daemonset", nodes=4, lasts=400.0)
def drained_beside_a_failure(world: World) -> Iterator[float]:
    """A node that is drained while another one fails with a new template keeps the one that it has."""
    yield 120.0
    give_template(world, "never-ready:2")
    yield 60.0
    drain(world, "node-4", pause=20.0, leaves=False)
    yield 300.0


@history("ingress_daemonset", nodes=5, lasts=400.0)
def deleted_of_a_dead_node(world: World) -> Iterator[float]:
    """A node that is dead holds no rollout up once a person has deleted its Deployment."""
    yield 60.0
    name = edge_pods(world)[0]["spec"]["nodeName"]
    world.end_machine(name)
    yield 70.0
    give_template(world, "proxy:2")
    yield 100.0
    world.kubectl_delete(DEPLOYMENTS, world.api.get(DEPLOYMENTS, f"edge-{name}", objects.SHOP))
    yield 150.0


@history("ingress_daemonset", nodes=3, lasts=400.0)
def drained_beside_failures(world: World) -> Iterator[float]:
    """A node that was drained while all others failed gets the next template after them, as the last that serves."""
    for each in world.api.list(NODES):
        world.patch(NODES, named(each), labels({objects.INGRESS_LABEL: "true"}))
    yield 120.0
    give_template(world, "crashing:2")
    yield 65.0
    (last,) = {each["spec"]["nodeName"] for each in edge_pods(world) if image(each) == "proxy:1"}
    drain(world, last, pause=20.0, leaves=False)
    yield 1.0
    while world.api.get(NODES, last)["spec"].get("unschedulable"):
        yield 0.1
    give_template(world, "crashing:3")
    yield 150.0


@history("ingress_daemonset", nodes=4, lasts=500.0)
def more_pods_per_node(world: World) -> Iterator[float]:
    """Raising podsPerNode takes no more nodes off than the budget allows."""
    yield 150.0
    edge_spec(world, podsPerNode=3)
    yield 200.0


@history("ingress_daemonset", nodes=4, lasts=500.0)
def fewer_pods_per_node(world: World) -> Iterator[float]:
    """Lowering podsPerNode stops no pod on a node that the load balancer uses."""
    yield 150.0
    edge_spec(world, podsPerNode=1)
    yield 200.0


@history("ingress_daemonset", nodes=5, lasts=500.0)
def label_off_and_on(world: World) -> Iterator[float]:
    """A node whose label goes and comes back at once does not free its place in the budget."""
    rolling(world, maxUnavailableNodes=2)
    yield 150.0
    give_template(world, "proxy:2")
    for _ in range(3):
        yield 6.0
        off = [
            each
            for each in world.api.list(NODES)
            if DETACH_KEY in (each["metadata"].get("annotations") or {})
        ]
        for value in (None, "true"):
            for each in off:
                world.patch(NODES, named(each), labels({objects.INGRESS_LABEL: value}))
            yield 0.1
    yield 200.0


@history("ingress_daemonset", nodes=6, lasts=600.0)
def evictions_from_many_nodes(world: World) -> Iterator[float]:
    """Evictions take no more nodes off than the budget, and where it has room their nodes are detached before."""
    rolling(world, maxUnavailableNodes=2)
    yield 150.0
    first, second, *others = sorted({each["spec"]["nodeName"] for each in edge_pods(world)})
    pods = edge_pods(world)
    for number in range(24):
        asked = {first} | ({second} if number > 2 else set()) | ({*others} if 4 < number < 20 else set())
        for pod in pods:
            if pod["spec"]["nodeName"] in asked:
                with suppress(KubeError):
                    uid, name = pod["metadata"]["uid"], named(pod)
                    world.kubectl.evict(name, objects.SHOP, preconditions={"uid": uid})
        yield 5.0
    yield 200.0


@history("ingress_daemonset", nodes=4, skews=(0.0, 0.0, -140.0, 140.0))
def evictions_by_two_clocks(world: World) -> Iterator[float]:
    """No pod is evicted before its node is detached while clocks of servers differ by less than five minutes."""
    yield 60.0
    node = edge_pods(world)[0]["spec"]["nodeName"]
    first = {named(pod) for pod in edge_pods(world, node)}
    drain(world, node, pause=20.0, leaves=False)
    for _ in range(120):
        left = {named(pod) for pod in edge_pods(world, node) if "deletionTimestamp" not in pod["metadata"]}
        evictable = world.api.peek(INGRESS_DAEMONSETS)[0].get("status", {}).get("evictableNodes") or {}
        if not first <= left and node not in evictable:
            broken(world, EVICTED_LATER, ", ".join(sorted(first - left)))
        yield 0.5


@history("ingress_daemonset", nodes=4, lasts=500.0)
def evictions_beside_a_node_without_pods(world: World) -> Iterator[float]:
    """No node is detached for an eviction while another one lacks pods, and evictions pass after the timeout."""
    yield 120.0
    lacking, evicted = sorted(edge_pods(world), key=lambda each: each["spec"]["nodeName"])[::3][:2]
    world.refuse_image("proxy:1", world.kernel.now + 200.0)
    node = lacking["spec"]["nodeName"]
    names = [named(each) for each in edge_pods(world, node)]
    world.outside.disturb(node, *names)
    delete_pods(world, *names)
    yield 60.0
    began = world.kernel.now
    while world.api.find(PODS, named(evicted), objects.SHOP):
        if world.kernel.now >= began + DRAIN:
            world.outside.disturb(named(evicted), evicted["spec"]["nodeName"])
        with suppress(KubeError):
            world.kubectl.evict(named(evicted), objects.SHOP, preconditions={})
        check_wait(world, named(evicted), world.kernel.now - began)
        yield 5.0
    yield 150.0


@history("ingress_daemonset", nodes=4, lasts=600.0)
def correction_beside_a_silent_node(world: World) -> Iterator[float]:
    """A node that has lost its pods gets the template that mends it although another one is NotReady."""
    yield 120.0
    silent, lost = sorted({each["spec"]["nodeName"] for each in edge_pods(world)})[:2]
    world.kubernetes.kubelets.silence(silent, world.now())
    world.network.cut(f"health-checker-{silent}", world.kernel.now + 300.0)
    excuse(world, [silent, lost], 300.0)
    yield 70.0
    give_template(world, "proxy:2")
    yield 30.0
    world.refuse_image("proxy:1", world.kernel.now + 200.0)
    delete_pods(world, *(named(each) for each in edge_pods(world, lost)))
    yield 100.0
    if not any(image(each) == "proxy:2" and is_ready(each) for each in edge_pods(world)):
        broken(world, MENDED, f"{lost} has no pods with it")
    world.kubernetes.kubelets.recover(silent, world.now())
    yield 60.0


@history("ingress_daemonset", nodes=3, lasts=500.0)
def deleted_with_the_first_mark(world: World) -> Iterator[float]:
    """An IngressDaemonSet that is deleted when a node is just detached, and its own writes take long, leaves none."""
    yield 120.0
    world.network.hang("PATCH", f"ingressdaemonsets/{EDGE}", world.kernel.now + 5.0, 1.0)
    give_template(world, "proxy:2")
    while not any(DETACHED_BY in notes(each) for each in world.api.peek(NODES)):
        yield 0.001
    excuse(world, [named(each) for each in world.api.list(NODES)], 90.0)
    yield 0.0
    world.kubectl_delete(INGRESS_DAEMONSETS, world.api.get(INGRESS_DAEMONSETS, EDGE, objects.SHOP))
    yield 60.0
    world.kubectl_create(INGRESS_DAEMONSETS, objects.ingress_daemon_set(EDGE))
    yield 90.0


@history("ingress_daemonset", nodes=4, lasts=500.0)
def late_health_checker(world: World) -> Iterator[float]:
    """The next node is not detached before the health checker of the last one has seen that it is attached."""
    yield 150.0
    give_template(world, "proxy:2")
    yield 5.0
    detached = next(named(each) for each in world.api.list(NODES) if DETACH_KEY in notes(each))
    world.network.cut(f"health-checker-{detached}", world.kernel.now + 40.0)
    yield 100.0
    if images(world) != {"proxy:2"}:
        broken(world, ASKED, f"the pods have {images(world)}")


@history("ingress_daemonset", nodes=4, lasts=500.0)
def cordoned_node(world: World) -> Iterator[float]:
    """While a cordoned node uses up the budget, it is updated, and no other one is detached."""
    yield 150.0
    world.patch(NODES, "node-1", {"spec": {"unschedulable": True}})
    yield 40.0
    give_template(world, "proxy:2")
    yield 100.0
    if (found := images(world, "node-1")) != {"proxy:2"}:
        broken(world, ASKED, f"the pods of the cordoned node have {found}")
    world.patch(NODES, "node-1", {"spec": {"unschedulable": None}})
    yield 100.0


def new_template(image: str, **rolling: Any) -> Raw:
    """Of the edge, with other fields of rollingUpdate in the same write."""
    template = {"spec": {"containers": [{"name": "main", "image": image}]}}
    return {"spec": {"template": template, "updateStrategy": {"rollingUpdate": rolling}}}


def waves_in_order(world: World, wanted: str, seconds: int) -> Iterator[float]:
    """By the names of nodes."""
    for _ in range(seconds):
        pods = edge_pods(world)
        having = {each["spec"]["nodeName"] for each in pods if image(each) == wanted}
        waiting = {each["spec"]["nodeName"] for each in pods} - having
        if having and waiting and max(having) > min(waiting):
            broken(world, IN_ORDER, f"{max(having)} has {wanted}, and {min(waiting)} has not")
        yield 1.0


@history("ingress_daemonset", nodes=6, lasts=600.0)
def waves_beside_a_lost_pod(world: World) -> Iterator[float]:
    """Waves keep their order while a node of a later one lacks a pod, and the budget has room."""
    rolling(world, maxUnavailableNodes=0, maxDegradedNodes=2, waves=BY_NODE)
    yield 150.0
    last = max(edge_pods(world), key=lambda each: each["spec"]["nodeName"])
    world.outside.disturb(last["spec"]["nodeName"], last["metadata"]["name"])
    delete_pods(world, last["metadata"]["name"])
    yield 1.0
    give_template(world, "proxy:2")
    yield from waves_in_order(world, "proxy:2", 200)


@history("ingress_daemonset", nodes=6, lasts=600.0)
def waves_after_a_superseded_template(world: World) -> Iterator[float]:
    """Waves keep their order though a node of a later one lost a pod when it was detached for the template before."""
    rolling(world, maxUnavailableNodes=3)
    yield 150.0
    give_template(world, "proxy:2")
    yield 8.0
    _, _, third, *_ = sorted({each["spec"]["nodeName"] for each in edge_pods(world)})
    world.outside.disturb(third)
    delete_pods(
        world,
        next(named(each) for each in edge_pods(world, third)),
    )
    yield 0.5
    world.patch(INGRESS_DAEMONSETS, EDGE, new_template("proxy:3", waves=BY_NODE))
    yield from waves_in_order(world, "proxy:3", 200)


@history("ingress_daemonset", nodes=4, lasts=700.0)
def correction_for_others_first(world: World) -> Iterator[float]:
    """A node that lost a pod for good when it was detached gets the correction, though that is for others first."""
    yield 150.0
    give_template(world, "proxy:2")
    yield 5.0
    detached = next(named(each) for each in world.api.list(NODES) if DETACH_KEY in notes(each))
    pods = [named(each) for each in edge_pods(world, detached)]
    world.outside.disturb(detached, pods[0])
    world.refuse_image("proxy:1", FOR_EVER)
    delete_pods(world, pods[0])
    yield 1.0
    others = {"nodeSelector": {"kubernetes.io/hostname": "node-4"}, "pause": {"durationSeconds": 30}}
    world.patch(INGRESS_DAEMONSETS, EDGE, new_template("proxy:3", canary=others))
    yield 300.0


@history("ingress_daemonset", nodes=6, lasts=600.0)
def joins_a_good_rollout(world: World) -> Iterator[float]:
    """A node that joins when the new template has lasted for progressDeadlineSeconds gets that at once."""
    edge_spec(world, progressDeadlineSeconds=30)
    yield 150.0
    give_template(world, "proxy:2")
    yield 60.0
    world.kubectl_create(NODES, objects.node("node-9", 9, {objects.INGRESS_LABEL: "true"}))
    for _ in range(30):
        if former := [each for each in edge_pods(world, "node-9") if image(each) != "proxy:2"]:
            broken(world, ASKED, f"node-9 has {image(former[0])} first")
        yield 1.0
    yield 150.0


@history("ingress_daemonset", nodes=3, lasts=400.0)
def attached_when_available(world: World) -> Iterator[float]:
    """A node is attached when its new pods are available, not before."""
    yield 120.0
    give_template(world, "proxy:2")
    before = set[str]()
    for _ in range(1000):
        detached = {named(each) for each in world.api.peek(NODES) if DETACH_KEY in notes(each)}
        for node in before - detached:
            ready = [image(each) for each in edge_pods(world, node) if is_ready(each)]
            if ready.count("proxy:2") < 2:
                broken(world, WHOLE, f"{node} has {ready}")
        before = detached
        yield 0.2


@history("ingress_daemonset", nodes=6, lasts=600.0)
def joins_a_paused_rollout(world: World) -> Iterator[float]:
    """A node that joins while a rollout is paused that goes well does not get its template until it goes on."""
    edge_spec(world, progressDeadlineSeconds=30)
    yield 150.0
    give_template(world, "proxy:2")
    yield 60.0
    edge_spec(world, paused=True)
    yield 60.0
    world.kubectl_create(NODES, objects.node("node-9", 9, {objects.INGRESS_LABEL: "true"}))
    yield 60.0
    found = images(world), images(world, "node-9")
    if found != ({"proxy:1", "proxy:2"}, {"proxy:1"}):
        broken(world, PAUSED, f"pods have {found[0]}, and those of the node that has joined {found[1]}")
    edge_spec(world, paused=False)
    yield 200.0


@history("ingress_daemonset", nodes=4, lasts=200.0)
def back_in_a_paused_rollout(world: World) -> Iterator[float]:
    """While a rollout is paused, the failure of a node that has come back late is forgotten in time, as documented."""
    yield 60.0
    give_template(world, "proxy:2")
    while not (updated := [each for each in edge_pods(world) if image(each) == "proxy:2"]):
        yield 1.0
    edge_spec(world, paused=True)
    yield 60.0
    name = updated[0]["spec"]["nodeName"]
    world.kubernetes.kubelets.reboot(name, world.now(), 200.0)
    excuse(world, [name], 200.0)
    yield 60.0


@history("ingress_daemonset", nodes=4, lasts=600.0, values={"ingressDaemonSet": {"clb": BALANCED}})
def leaves_while_weights_are_refused(world: World) -> Iterator[float]:
    """The pods of a node that leaves stay until its weight is 0, and it has no weight until they are back."""
    names = [named(each) for each in world.api.list(NODES)]
    instances = {each: f"ins-{int(each.rpartition('-')[2]):08d}" for each in names}
    targets = [Target(listener="lbl-1", instance=each, port=443) for each in instances.values()]
    world.cloud.account.put_load_balancer(BALANCER, targets)
    rolling(world, setWeightToDetach={"loadBalancers": [BALANCER], "gracePeriodSeconds": 5})
    yield 120.0
    name = min(each["spec"]["nodeName"] for each in edge_pods(world))
    world.cloud.go_away(world.kernel.now + 90.0)
    world.patch(NODES, name, labels({objects.INGRESS_LABEL: None}))
    for _ in range(250):
        if (
            not any(each["spec"]["nodeName"] == name for each in edge_pods(world))
            and world.cloud.weights[instances[name]]
        ):
            broken(world, UNSERVED, name)
        yield 1.0
    if any(each["spec"]["nodeName"] == name for each in edge_pods(world)):
        broken(world, LEFT, name)
    if world.cloud.weights[instances[name]]:
        broken(world, UNSERVED, f"{name} after its pods have gone")
    world.patch(NODES, name, labels({objects.INGRESS_LABEL: "true"}))
    yield 60.0
    if {*world.cloud.weights.values()} != {10}:
        broken(world, RESTORED, str(world.cloud.weights))
    give_template(world, "proxy:2")
    yield 100.0


@history("ingress_daemonset", nodes=4, lasts=700.0)
def detached_by_the_label(world: World) -> Iterator[float]:
    """MetalLB uses no node whose pods are stopped, though a person removes our label once; his own stays."""

    def excluded() -> set[str]:
        return {named(each) for each in world.api.list(NODES) if is_excluded(each)}

    def roll_out(wanted: str, names: set[str]) -> Iterator[float]:
        give_template(world, wanted)
        yield 8.0
        if removed := min(excluded() - names, default=""):
            world.patch(NODES, removed, labels({EXCLUDED: None}))
        yield 150.0
        if images(world) != {wanted}:
            broken(world, ASKED, f"the pods have {images(world)}")
        if (found := excluded()) != names:
            broken(world, EXCLUSION, str(found))

    world.edge.is_metallb = True
    rolling(
        world,
        maxUnavailableNodes=2,
        labelNodeToDetach=True,
        confirmTimeoutSeconds=10,
        annotateNodeToDetach=None,
    )
    yield 150.0
    yield from roll_out("proxy:2", set())
    world.patch(NODES, "node-4", labels({EXCLUDED: ""}))
    yield from roll_out("proxy:3", {"node-4"})


@history("ingress_daemonset", nodes=6, lasts=500.0)
def unconfirmed_beside_failures(world: World) -> Iterator[float]:
    """A node that waits for its confirmation when others fail with the template is attached again with its pods."""
    key = "example.com/detached-at"
    edge_spec(world, minReadySeconds=6)
    soon = {"annotateNodeToDetach": {"gracePeriodSeconds": 5}}
    rolling(world, maxUnavailableNodes=2, waitForDetachmentByAnnotatedTimestamp={"key": key}, **soon)
    for number in range(400):
        if number == 200:
            _, second, *_ = sorted({each["spec"]["nodeName"] for each in edge_pods(world)})
            give_template(world, "crashing:2")
        for node in world.api.list(NODES):
            name, annotations = named(node), node["metadata"].get("annotations") or {}
            if DETACH_KEY in annotations and not (200 <= number < 232 and name == second):
                now = f"{world.now():%Y-%m-%dT%H:%M:%SZ}"
                world.patch(NODES, name, {"metadata": {"annotations": {key: now}}})
        if number == 237 and "crashing:2" in {image(each) for each in edge_pods(world, second)}:
            broken(world, ASKED, f"{second} has the template that fails")
        yield 1.0


@history("ingress_daemonset", nodes=4, lasts=600.0)
def reboots_in_its_update(world: World) -> Iterator[float]:
    """A node that was away for longer than the deadline in its update has time to start its pods when it is back."""
    edge_spec(world, progressDeadlineSeconds=60)
    rolling(world, autoRollback=True)
    yield 150.0
    give_template(world, "proxy:2")
    while not (begun := [each["spec"]["nodeName"] for each in edge_pods(world) if image(each) == "proxy:2"]):
        yield 0.1
    world.outside.disturb(begun[0])
    world.kubernetes.kubelets.reboot(begun[0], world.now(), 150.0)
    yield 400.0
    if images(world) != {"proxy:2"}:
        broken(world, ASKED, f"the pods have {images(world)}")


@history("ingress_daemonset", nodes=4, lasts=900.0)
def refused_template(world: World) -> Iterator[float]:
    """A template that the API server refuses does not keep its node detached past progressDeadlineSeconds."""
    edge_spec(world, progressDeadlineSeconds=60)
    yield 150.0
    world.refuse_image("proxy:2", world.kernel.now + 500.0)
    give_template(world, "proxy:2")
    yield 200.0
    for node in world.api.list(NODES):
        if DETACH_KEY in (node["metadata"].get("annotations") or {}):
            message = f"{node['metadata']['name']} is still detached"
            broken(world, PAST_DEADLINE, message)


@history("ingress_daemonset", nodes=4, lasts=700.0)
def switched_off(world: World) -> Iterator[float]:
    """Switching the feature off in mid-rollout leaves no node detached."""
    yield 150.0
    give_template(world, "proxy:2")
    yield 8.0
    values = world.values
    helm.upgrade(world, values | {"ingressDaemonSet": values["ingressDaemonSet"] | {"enabled": False}})
    yield 120.0
    for node in world.api.list(NODES):
        if DETACH_KEY in (node["metadata"].get("annotations") or {}):
            broken(world, LEFT_DETACHED, named(node))
    helm.upgrade(world, values)
    yield 120.0


@history("elasticity", "ingress_daemonset", nodes=4, lasts=700.0)
def uninstalled(world: World) -> Iterator[float]:
    """An uninstall in mid-rollout leaves no gate, no detached node and no finalizer."""
    yield 120.0
    give_template(world, "proxy:2")
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 8}})
    yield 8.0
    values = world.values
    helm.uninstall(world, 20.0)
    helm.install_again(world, values)
    yield 30.0


# Reservations.


def delete_pods(world: World, *names: str) -> None:
    for name in names:
        if pod := world.api.find(PODS, name, objects.SHOP):
            world.note("kubectl", world.kubectl_delete(PODS, pod))


@history("ip_reservation", nodes=3, values={"fullnameOverride": "ipkeeper"})
def other_name(world: World) -> Iterator[float]:
    """An installation under another name reserves addresses, and lets pods be deleted."""
    yield 10.0
    delete_pods(world, "redis-0", "redis-1")
    yield 30.0


@history("ip_reservation", nodes=3, lasts=600.0)
def compaction_refused(world: World) -> Iterator[float]:
    """While compaction is refused, reservations still end."""
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 20}})
    yield 30.0
    world.refuse(IP_RESERVATIONS, "drawbridge-controllers", world.kernel.now + 500.0, "POST")
    for number in range(20):
        delete_pods(world, f"redis-{number}")
        yield 0.15
    yield 250.0
    if reserved := world.calico.reserved():
        message = f"{len(reserved)} addresses are reserved 250 s after the last deletion"
        broken(world, ENDS_ANYWAY, message)


@history("ip_reservation", nodes=3, values={"ipReservation": {"standing": {"enabled": True}}})
def compacted_apart(world: World) -> Iterator[float]:
    """After a compaction, what is reserved for pods that are gone outlasts the webhook configuration."""
    yield 20.0
    delete_pods(world, "redis-0", "redis-1")
    yield 40.0
    for replicas in range(4, 20):  # a segment for each pod
        world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": replicas}})
        yield 1.5
    while len(world.api.peek(IP_RESERVATIONS)) > 4:
        yield 0.1
    yield 1.0  # its sources are deleted
    create_the_webhook_configuration_again(world, world.dice("again"))
    for replica in world.product.controllers:  # a leader would restore what others delete
        world.product.kill(replica)
    yield 30.0


SELDOM = {"ipReservation": {"advanced": {"releasePeriod": "1m"}, "pools": {"enabled": True}}}


@history("ip_reservation", nodes=3, lasts=400.0, values=SELDOM)
def pool_runs_short(world: World) -> Iterator[float]:
    """Where a pool runs short, new pods get the addresses of reservations beyond their share at once."""
    world.calico.show({"10.244.1.0/28": ""})
    yield 70.0
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 8}})
    yield 20.0
    delete_pods(world, *(f"redis-{number}" for number in range(3, 8)))
    yield 45.0
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 14}})
    yield 35.0
    if waiting := [each for each in world.api.peek(PODS) if not each["status"].get("podIP")]:
        broken(world, SHARED, f"{len(waiting)} pods wait for an address")


@history("ip_reservation", nodes=3, values={"ipReservation": {"sameAddress": {"enabled": True}}})
def pools_of_zones(world: World) -> Iterator[float]:
    """A pod has its former address on another node too, but not where the pool of that is for nodes of one zone."""
    world.calico.show({POOL: "all()", "10.244.4.0/28": "zone == 'z4'"})
    yield from comes_back_elsewhere(world, "redis-0", same=True)
    for number in range(1, 4):
        world.patch(NODES, f"node-{number}", {"metadata": {"labels": {"zone": f"z{number}"}}})
    world.calico.show({f"10.244.{number}.0/28": f"zone == 'z{number}'" for number in range(1, 4)})
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 6}})
    yield 30.0
    yield from comes_back_elsewhere(world, "redis-5", same=False)


def comes_back_elsewhere(world: World, name: str, *, same: bool) -> Iterator[float]:
    before = world.api.get(PODS, name, objects.SHOP)
    world.patch(NODES, before["spec"]["nodeName"], {"spec": {"unschedulable": True}})
    delete_pods(world, name)
    yield 30.0
    after = world.api.get(PODS, name, objects.SHOP)
    if (after["status"]["podIP"] == before["status"]["podIP"]) != same:
        broken(world, SAME, f"{name} has {after['status']['podIP']} on {after['spec']['nodeName']}")
    world.patch(NODES, before["spec"]["nodeName"], {"spec": {"unschedulable": False}})


@history("ip_reservation", nodes=3, lasts=400.0)
def forced_while_requests_are_lost(world: World) -> Iterator[float]:
    """Many pods that are deleted without a grace, at once or while requests are lost, keep their addresses."""
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 30}})
    yield 30.0
    for number in range(10):
        world.spawn(partial(force, world, f"redis-{number}"), f"deletion of redis-{number}")
    yield 10.0
    world.network.lose(world.kernel.now + 30.0, 0.4)
    for number in range(10, 30):
        world.spawn(partial(force, world, f"redis-{number}"), f"deletion of redis-{number}")
        yield 0.9
    yield 60.0
    if (count := sum(len(world.api.peek(each)) for each in RESERVATIONS)) > FEW_OBJECTS:
        broken(world, IN_FEW, f"{count} IPReservations")


def force(world: World, name: str) -> None:
    """As `kubectl delete --force --grace-period=0`; while requests are lost, the webhook may refuse it."""
    try:
        world.kubectl.delete(PODS, name, objects.SHOP, grace_seconds=0)
    except KubeError as error:
        if world.network.is_calm:
            broken(world, ADMITTED, f"{name}: {error}")


@history("ip_reservation", nodes=3)
def slow_admission_of_others(world: World) -> Iterator[float]:
    """A pod whose deletion waits for webhooks of others, after ours has admitted it, needs no leader then."""
    yield 10.0
    pod = world.api.get(PODS, "redis-0", objects.SHOP)
    whole = {"apiVersion": "v1", "kind": "Pod", **pod}
    request = ApiRequest("DELETE", PODS, "redis-0", objects.SHOP, old_object=whole)
    world.product.ask(PATH, request.review("deletion of redis-0"), 10.0)
    yield 15.0
    for replica in world.product.controllers:
        world.product.kill(replica)
    world.api.remove(PODS, "redis-0", objects.SHOP)
    yield 30.0


@history("ip_reservation", nodes=3)
def slow_clock_of_a_node(world: World) -> Iterator[float]:
    """A pod that its kubelet evicts keeps its reservation although the clock of its node is slow."""
    yield 10.0
    world.outside.disturb("redis-0")
    pod = world.api.get(PODS, "redis-0", objects.SHOP)
    world.kubernetes.kubelets.evict(pod, world.now() - timedelta(minutes=3))
    yield 60.0


@history("ip_reservation", nodes=3)
def evicted_and_left(world: World) -> Iterator[float]:
    """A pod without a controller that its kubelet evicts keeps its reservation although nothing deletes it."""
    about = {"name": "lone", "namespace": objects.SHOP, "labels": {POD_NAME: "lone"}}
    world.kubectl_create(PODS, {**objects.template("lone", "redis:1"), "metadata": about})
    yield 20.0
    world.outside.disturb("lone")
    world.kubernetes.kubelets.evict(world.api.get(PODS, "lone", objects.SHOP), world.now())
    yield 60.0


@history("ip_reservation", nodes=3, lasts=400.0)
def reads_hang(world: World) -> Iterator[float]:
    """Reads of some pods that hang keep no reservation of others beyond its time."""
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 20}})
    yield 60.0
    pods = shop_pods(world)
    for pod in pods:
        review_deletion(world, pod)
    delete_pods(world, "redis-0")
    yield 25.0
    world.network.hang("GET", "/pods/redis-1", world.kernel.now + 400.0)
    yield 260.0
    unread = {each["status"]["podIP"] for each in pods if named(each).startswith("redis-1")}
    if late := world.calico.reserved() - unread:
        message = f"{', '.join(sorted(late))} are still reserved"
        broken(world, ENDS_ANYWAY, message)


def shop_pods(world: World) -> list[Raw]:
    return [each for each in world.api.peek(PODS) if each["metadata"]["namespace"] == objects.SHOP]


def review_deletion(world: World, pod: Raw) -> None:
    """Of a pod that stays: another webhook refused it after ours, or no API server sent it."""
    old = {"apiVersion": "v1", "kind": "Pod", **pod}
    request = ApiRequest("DELETE", PODS, named(pod), objects.SHOP, old_object=old)
    with suppress(Away):
        world.product.ask(PATH, request.review(pod["metadata"]["uid"]), 5.0)


AHEAD = {"ipReservation": {"standing": {"enabled": True}}}


@history("ip_reservation", nodes=3, values=AHEAD)
def reserved_ahead(world: World) -> Iterator[float]:
    """While no webhook server answers, pods whose addresses are reserved ahead are deleted, and none is lost."""
    yield 20.0
    unmarked = [pod for pod in shop_pods(world) if RESERVED not in notes(pod)]
    if unmarked:
        broken(world, ADMITTED, f"{len(unmarked)} pods are not marked")
    for each in world.product.servers:
        world.kernel.kill(each.process)
        each.app = None
    done = [world.kubectl_delete(PODS, pod) for pod in shop_pods(world)]
    if refused := [each for each in done if ":" in each]:
        broken(world, ADMITTED, refused[0])
    for each in world.product.servers:
        world.product.restart_server(each)
    yield 100.0


@history("ip_reservation", nodes=3, lasts=400.0, values=AHEAD)
def short_lived(world: World) -> Iterator[float]:
    """Addresses of pods that finish are reserved where their namespace asks for it, whether they are deleted or not."""

    def ask(choice: str | None) -> None:
        world.patch(NAMESPACES, objects.SHOP, {"metadata": {"annotations": {RESERVE_FINISHED: choice}}})

    def addresses(job: str) -> set[str]:
        return {each["status"]["podIP"] for each in shop_pods(world) if named(each).startswith(job)}

    ask("true")
    yield 25.0
    world.kubectl_create(JOBS, objects.short_lived("first", 3))
    yield 20.0
    first = addresses("first")
    yield 60.0
    for pod in shop_pods(world):
        if named(pod).startswith("first"):
            delete_pods(world, named(pod))
            break
    yield 10.0
    if len(first) != 3 or not first <= world.calico.reserved():
        broken(world, ENDED_BY_ITSELF, f"{sorted(world.calico.reserved())} are reserved, not {sorted(first)}")
    ask(None)
    world.kubectl_create(JOBS, objects.short_lived("second", 3))
    yield 20.0
    second = addresses("second")
    yield 90.0
    if left := second & world.calico.reserved():
        broken(
            world, ENDED_BY_ITSELF, f"{sorted(left)} are reserved of pods whose namespace does not ask for it"
        )


@history("ip_reservation", nodes=3, values=AHEAD)
def opted_out_while_it_terminates(world: World) -> Iterator[float]:
    """A pod that is opted out, and in again, while it terminates on a node that is silent loses no address."""
    yield 20.0
    pod = world.api.get(PODS, "redis-0", objects.SHOP)
    world.kubernetes.kubelets.silence(pod["spec"]["nodeName"], world.now())
    delete_pods(world, "redis-0")
    for choice in ("false", "true"):
        yield 20.0
        world.patch(PODS, "redis-0", {"metadata": {"annotations": {RESERVE: choice}}})
    yield 20.0
    world.kubernetes.kubelets.recover(pod["spec"]["nodeName"], world.now())
    yield 60.0


@history("ip_reservation", nodes=3, values=AHEAD)
def address_since_the_snapshot(world: World) -> Iterator[float]:
    """A pod that got its address after the snapshot from which etcd is restored is reserved ahead again."""
    yield 20.0
    delete_pods(world, "redis-0")
    while not (pod := world.api.find(PODS, "redis-0", objects.SHOP)) or "podIP" in (pod.get("status") or {}):
        yield 0.1
    yield 0.5  # it is bound, and has no address yet
    restored(world, 60.0, world.dice("restored"))
    yield 100.0


@history("ip_reservation", nodes=3)
def many_commas(world: World) -> Iterator[float]:
    """A pod whose arguments are long lists of numbers can be deleted."""
    yield 10.0
    hostile = objects.template("hostile", "redis:1")
    hostile["spec"]["containers"][0]["args"] = ["1," * 600_000]
    about = {"name": "hostile", "namespace": objects.SHOP, "labels": {POD_NAME: "hostile"}}
    world.kubectl_create(PODS, {**hostile, "metadata": about})
    yield 20.0
    delete_pods(world, "hostile")
    yield 100.0


@history("ip_reservation", nodes=3, lasts=400.0, values={"ipReservation": {"workloadOptIn": True}})
def unreadable_workloads(world: World) -> Iterator[float]:
    """A leader that may not read workloads goes on with all else."""
    delete_pods(world, "redis-0")
    world.refuse(STATEFUL_SETS, "drawbridge-controllers", world.kernel.now + 400.0, "GET")
    for replica in world.product.controllers:
        world.product.replace(replica)
    yield 360.0
    ended = [why for each in world.product.controllers for _, why in each.ended if why != "stopped"]
    if ended:
        broken(world, GO_ON, ended[0])


@history("ip_reservation", nodes=3)
def forged_reviews(world: World) -> Iterator[float]:
    """Reviews that no API server sent take few addresses from others."""
    for number in range(100):
        about = {"name": f"forged-{number}", "namespace": objects.SHOP, "uid": f"uid-{number}"}
        pod = {
            **objects.template("forged", "redis:1", nodeName="node-1"),
            "metadata": {**about, "labels": {POD_NAME: f"forged-{number}"}},
            "status": {"phase": "Running", "podIP": f"10.244.0.{100 + number}"},
        }
        review_deletion(world, pod)
    if len(held := world.calico.reserved()) > FEW_FORGED:
        broken(world, FORGED, f"{len(held)} of 100 are reserved")
    yield 1.0


@history("ip_reservation", nodes=3)
def hung_write(world: World) -> Iterator[float]:
    """A pod whose reservation hangs at first is deleted at once, though the API server is slow soon after."""
    yield 10.0
    now, system = world.kernel.now, world.kernel.system
    world.network.hang("POST", "/ipreservations", now + 1.0)
    world.kernel.spawn(lambda: world.network.slow(now + 10.0, 1.0), "slow", system, after=3.5)
    done = world.kubectl_delete(PODS, world.api.get(PODS, "redis-0", objects.SHOP))
    if done != "redis-0":
        broken(world, ONE_HANG, done)


@history("ip_reservation", nodes=3)
def hung_write_without_leader(world: World) -> Iterator[float]:
    """A pod is deleted only when its reservation is stored: the write hangs, and no leader would make up for it."""
    yield 10.0
    now = world.kernel.now
    for each in world.product.controllers:
        world.network.cut(each.name, now + 20.0)
    world.network.hang("POST", "/ipreservations", now + 1.0)
    force(world, "redis-0")
    yield 30.0


@history("ip_reservation", nodes=3)
def uninstalled_beside_a_deletion(world: World) -> Iterator[float]:
    """After an uninstall, only addresses of pods that are being deleted are reserved."""
    yield 20.0
    node, values = world.api.get(PODS, "redis-0", objects.SHOP)["spec"]["nodeName"], world.values
    world.kubernetes.kubelets.silence(node, world.now())
    delete_pods(world, "redis-0")
    helm.uninstall(world, 20.0)
    world.kubernetes.kubelets.recover(node, world.now())
    helm.install_again(world, values)
    yield 30.0


@history("ip_reservation", nodes=3)
def uninstalled_after_a_refusal(world: World) -> Iterator[float]:
    """After an uninstall, no address of a pod that runs is reserved unless its deletion had just been refused."""
    first, second, _ = shop_pods(world)
    review_deletion(world, first)
    yield 170.0
    review_deletion(world, second)
    yield 5.0
    values = world.values
    helm.uninstall(world, 20.0)
    helm.install_again(world, values)
    yield 30.0


FEW = {"ipReservation": {"maxCount": 3}}


@history("ip_reservation", nodes=3, values=FEW)
def more_than_in_all(world: World) -> Iterator[float]:
    """Of more reservations than maxCount, those whose time began first are released."""
    yield from more_than_three(world, "count")


@history("ip_reservation", nodes=3, values={"ipReservation": {"maxPerNamespace": 3}})
def more_than_of_a_namespace(world: World) -> Iterator[float]:
    """Of more reservations than maxPerNamespace, those whose time began first are released."""
    yield from more_than_three(world, "namespace")


def more_than_three(world: World, cause: str) -> Iterator[float]:
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 6}})
    yield 30.0
    pods = [world.api.get(PODS, f"redis-{number}", objects.SHOP) for number in range(6)]
    for pod in pods:
        delete_pods(world, named(pod))
        yield 16.0
    yield 10.0
    wanted = {each["status"]["podIP"] for each in pods[3:]}
    if (held := world.calico.reserved()) != wanted:
        broken(world, LATEST, f"{sorted(held)} are reserved, not {sorted(wanted)}")
    counted = REGISTRY.get_sample_value("drawbridge_reservations_released_total", {"cause": cause})
    if counted != 3:
        broken(world, CAUSES, f"{counted} for {cause}")


@history("ip_reservation", nodes=3, values={"ipReservation": {"workloadOptIn": True}})
def opted_in(world: World) -> Iterator[float]:
    """Pods of a Deployment that asks for it keep their addresses, not those of a ReplicaSet that is named like it."""
    asking, bare = objects.deployment("api", 2), objects.deployment("bare", 1)
    asking["metadata"]["annotations"] = {RESERVE: "true"}
    bare["metadata"]["name"] = "api"
    del bare["spec"]["strategy"]
    world.kubectl_create(DEPLOYMENTS, asking)
    world.kubectl_create(REPLICA_SETS, bare)
    yield 30.0
    pods = [each for each in shop_pods(world) if named(each).startswith("api-")]
    delete_pods(world, *(named(each) for each in pods))
    yield 30.0
    asked = {each["status"]["podIP"]: each["metadata"]["labels"]["app"] == "api" for each in pods}
    held = {address: address in world.calico.reserved() for address in asked}
    if len(asked) != 3 or held != asked:
        broken(world, FOLLOWED, f"{held} are reserved, and {asked} should be")


@history(
    "ip_reservation",
    nodes=3,
    values={"ipReservation": {"advanced": {"calicoApiVersion": "crd.projectcalico.org/v1"}}},
)
def hidden_metadata(world: World) -> Iterator[float]:
    """A reservation that Calico's API server wrote ends where only its custom resource is read."""
    pod = world.api.get(PODS, "redis-0", objects.SHOP)
    record = Record(
        f"{pod['status']['podIP']}/32", world.now(), objects.SHOP, "redis-0", pod["metadata"]["uid"]
    )
    about: Any = body([record])
    hidden = {"labels": {MANAGED_BY: MANAGER, LEVEL: "0"}, **about["metadata"]}
    about["metadata"] = {"name": f"{PREFIX}-v3", "annotations": {METADATA: json.dumps(hidden)}}
    delete_pods(world, "redis-0")
    world.api.put(RESERVATIONS[1], about)
    yield 60.0


@history("ip_reservation", nodes=3)
def released_while_they_terminate(world: World) -> Iterator[float]:
    """Many addresses that a person releases while their pods terminate are free as soon as these are gone."""
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 20}})
    yield 30.0
    pods = shop_pods(world)
    for each in world.api.list(NODES):
        world.kubernetes.kubelets.silence(named(each), world.now())
    for pod in pods:
        delete_pods(world, named(pod))
        yield 0.2
    addresses = {each["status"]["podIP"] for each in pods[:3]}
    world.outside.disturb(*(f"release of {each}" for each in addresses))
    world.drawbridge("reservations", "release", *sorted(addresses))
    yield 20.0
    for each in world.api.list(NODES):
        world.kubernetes.kubelets.recover(named(each), world.now())
    yield 30.0
    if left := addresses & world.calico.reserved():
        broken(world, ENDS_ANYWAY, f"{len(left)} of {len(addresses)} are still reserved")


@history("ip_reservation", nodes=3)
def slow_write(world: World) -> Iterator[float]:
    """Pods whose reservations take long are deleted at once, and with few writes, while more and more are deleted."""
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 9}})
    yield 60.0
    world.network.hang("POST", "/ipreservations", world.kernel.now + 10.0, 1.2)
    for number in range(9):
        pod = world.api.get(PODS, f"redis-{number}", objects.SHOP)
        world.spawn(partial(delete_at_once, world, pod), f"deletion {number}")
        yield 0.15
    yield 10.0


def delete_at_once(world: World, pod: Raw) -> None:
    if (done := world.kubectl_delete(PODS, pod)) != named(pod):
        broken(world, ONE_HANG, done)


# Rollouts by hand.


def edge_pods(world: World, node: str = "") -> list[Raw]:
    """Of all nodes, or of one."""
    found = [each for each in world.api.peek(PODS) if NODE_LABEL in (each["metadata"].get("labels") or {})]
    return [each for each in found if node in ("", each["spec"]["nodeName"])]


def image(pod: Raw) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def images(world: World, node: str = "") -> set[str]:
    return {image(each) for each in edge_pods(world, node)}


@history("ingress_daemonset", nodes=4, lasts=700.0)
def abort_of_superseded(world: World) -> Iterator[float]:
    """An abort returns to the template that all nodes had, not to one that was superseded before it was proven."""
    yield 120.0
    give_template(world, "proxy:2")
    yield 10.0
    give_template(world, "never-ready:3")
    yield 25.0
    world.drawbridge("rollout", "abort", EDGE)
    yield 200.0
    if images(world) != {"proxy:1"}:
        broken(world, ABORTED, f"the pods have {images(world)}")


@history("ingress_daemonset", nodes=4, lasts=700.0)
def canary_with_rollback(world: World) -> Iterator[float]:
    """A canary that fails for less than its deadline is not rolled back."""
    edge_spec(world, progressDeadlineSeconds=60)
    rolling(world, canary={"nodes": 1}, autoRollback=True)
    yield 120.0
    give_template(world, "proxy:2")
    yield 14.0
    for _ in range(3):  # it is attached soon, and its health checker answers after that
        world.outside.disturb("node-1")
        delete_pods(world, *checkers(world, "node-1"))
        yield 2.0
    yield 50.0
    for _ in range(4):
        for pod in edge_pods(world):
            if image(pod) == "proxy:2":
                world.outside.disturb(named(pod), pod["spec"]["nodeName"])
                delete_pods(world, named(pod))
        yield 5.0
    yield 40.0
    if "proxy:2" not in images(world):
        broken(world, ASKED, "the canary was rolled back")
    world.drawbridge("rollout", "promote", EDGE)
    yield 200.0


def checkers(world: World, node: str) -> list[str]:
    pods = [each for each in shop_pods(world) if each["spec"].get("nodeName") == node]
    return [name for each in pods if (name := named(each)).startswith("edge-10080-")]


@history("ingress_daemonset", nodes=4, lasts=700.0)
def canary_beside_a_lost_node(world: World) -> Iterator[float]:
    """A canary whose node is lost goes on with another one."""
    rolling(world, canary={"nodes": 1, "pause": {"durationSeconds": 80}}, maxUnavailableNodes=2)
    yield 120.0
    give_template(world, "proxy:2")
    yield 40.0
    lost = {each["spec"]["nodeName"] for each in edge_pods(world) if image(each) == "proxy:2"}
    for node in lost:
        world.outside.disturb(node)
        world.kubernetes.kubelets.silence(node, world.now())
    yield 300.0
    there = {image(each) for each in edge_pods(world) if each["spec"]["nodeName"] not in lost}
    if there != {"proxy:2"}:
        broken(world, ASKED, f"the pods of ready nodes have {there}")


@history("ingress_daemonset", nodes=4, lasts=500.0)
def derived_template(world: World) -> Iterator[float]:
    """A template that is derived from an unchanged one waits for the window."""
    pods = {
        "hostNetwork": True,
        "containers": [{"name": "main", "image": "proxy:1", "ports": [{"containerPort": 80}]}],
    }
    edge_spec(world, template={"spec": pods}, podsPerNode=1)
    yield 150.0
    before = {each["metadata"]["uid"] for each in edge_pods(world)}
    rolling(world, window={"days": [CLOSED], "start": "10:00", "durationSeconds": 3600})
    edge_spec(world, podsPerNode=2)
    yield 100.0
    if replaced := before - {each["metadata"]["uid"] for each in edge_pods(world)}:
        broken(world, WINDOW, f"{len(replaced)} of {len(before)} pods were replaced")
    rolling(world, window=None)
    yield 150.0


@history("ingress_daemonset", nodes=3, lasts=700.0)
def window_opens(world: World) -> Iterator[float]:
    """A rollout that waits for its window begins when that opens, not before, and goes on when graces are over."""
    yield 60.0
    opens = world.now().replace(second=0) + timedelta(minutes=4)
    rolling(world, confirm="off", window={"start": f"{opens:%H:%M}", "durationSeconds": 3600})
    give_template(world, "proxy:2")
    while (left := (opens - world.now()).total_seconds()) > 0:
        if "proxy:2" in images(world):
            broken(world, WINDOW, f"{left:.0f} s before it opens")
        yield min(5.0, left)
    yield 60.0
    if "proxy:2" not in images(world):
        broken(world, OPENED, "a minute later, no pod has the template")
    yield 120.0
    if images(world) != {"proxy:2"}:
        broken(world, OPENED, f"three minutes later, pods have {images(world)}")
    yield 120.0


# Certificates.

SHORT_LIVED = {"caValidity": "12m", "leafValidity": "7m", "renewBefore": "2m", "overlap": "20s"}


@history(
    "ip_reservation",
    "certificates",
    lasts=70.0,
    values={"certs": SELF_MANAGED | {"selfManaged": SHORT_LIVED}},
)
def certificates_end(world: World) -> Iterator[float]:
    """Certificates and their CA are renewed before they end, and what servers serve is trusted throughout."""
    yield 1.0


@history("ip_reservation", "certificates", values={"certs": SELF_MANAGED})
def certificates_lost(world: World) -> Iterator[float]:
    """After its Secret is deleted, or CA bundles emptied, what servers serve is trusted again, or still."""
    yield 5.0
    world.api.remove(SECRETS, "drawbridge-webhook-tls", "drawbridge")
    yield 120.0
    for kind in CONFIGURATIONS:
        empty_bundles(world, kind)
    yield 120.0
    world.outside.disturb("certificates")
    validating = CONFIGURATIONS["ValidatingWebhookConfiguration"]
    configuration = world.api.get(validating, "drawbridge")
    configuration["webhooks"][-1]["clientConfig"]["caBundle"] = ""  # as that of a feature that is switched on
    world.kubectl.replace(validating, "drawbridge", configuration)
    yield 60.0


# Placement.


@history("elasticity", nodes=3, lasts=500.0, values={"elasticity": {"maxSuperPods": {"total": 2}}})
def rollout_within_a_full_cap(world: World) -> Iterator[float]:
    """A full cap does not block the rollout of a small Deployment."""
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}})
    yield 60.0
    local = {"metadata": {"annotations": {"LOCAL_REPLICAS": "1"}}}
    world.patch(DEPLOYMENTS, "web", {"spec": {"template": local}})
    yield 120.0
    world.patch_template(DEPLOYMENTS, "web", [{"name": "main", "image": "web:2"}])
    yield 100.0
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
    world.kubectl_create(DEPLOYMENTS, objects.deployment("away", 2, local=0))
    yield 60.0
    world.patch_template(DEPLOYMENTS, "away", [{"name": "main", "image": "web:2"}])
    yield 100.0


@history("elasticity", nodes=3, lasts=500.0, values={"elasticity": {"maxSuperPods": {"total": 2}}})
def mended_within_a_full_cap(world: World) -> Iterator[float]:
    """A full cap does not block the rollout that mends a Deployment of which no pod is ready."""
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
    failing = objects.deployment("away", 2, local=0)
    failing["spec"]["template"]["spec"]["containers"][0]["image"] = "never-ready:1"
    world.kubectl_create(DEPLOYMENTS, failing)
    yield 60.0
    world.patch_template(DEPLOYMENTS, "away", [{"name": "main", "image": "web:2"}])
    yield 200.0


@history("elasticity", nodes=3, lasts=500.0, values={"elasticity": {"maxSuperPods": {"total": 3}}})
def cap_while_pods_terminate(world: World) -> Iterator[float]:
    """Pods that terminate on super nodes count under the cap."""
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 5}})
    yield 60.0
    for number in range(2, 8):
        world.patch_template(DEPLOYMENTS, "web", [{"name": "main", "image": f"stubborn:{number}"}])
        yield 15.0
    yield 100.0


@history("elasticity", nodes=3, values={"elasticity": {"maxSuperPods": {"total": 2}}})
def a_super_node_is_registered_again(world: World) -> Iterator[float]:
    """Pods count under the cap while the Node that they are on is deleted and comes again."""
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 6}})
    yield 60.0
    world.api.put(NODES, objects.super_node("eklet-2", 202))
    world.kubectl.delete(NODES, "eklet-1")
    yield 10.0
    world.api.put(NODES, objects.super_node("eklet-1", 200))
    yield 60.0
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}})


HOMEWARDS = {"elasticity": {"returnHome": {"enabled": True, "after": "1m", "interval": "10s"}}}


@history("elasticity", nodes=3, lasts=600.0, values=HOMEWARDS)
def standing_partition(world: World) -> Iterator[float]:
    """Pods of a StatefulSet below a partition that stays return home when there is room."""
    yield from away_and_home(world, {"rollingUpdate": {"partition": 2}})


@history("elasticity", nodes=3, lasts=600.0, values=HOMEWARDS)
def held_back_by_others(world: World) -> Iterator[float]:
    """Pods that others hold back keep no pod from its return home."""
    for number in range(101):
        about = {"name": f"queued-{number}", "namespace": objects.SHOP}
        gates = [{"name": "kueue.x-k8s.io/admission"}]
        world.kubectl_create(
            PODS, {**objects.template("queued", "job:1", schedulingGates=gates), "metadata": about}
        )
    yield from away_and_home(world, {})


@history("elasticity", nodes=3, values={"elasticity": {"maxSuperPods": {"total": 4}}})
def held_under_a_cap(world: World) -> Iterator[float]:
    """Pods that others hold back take no places on super nodes."""
    about = {"namespace": objects.SHOP, "annotations": {"LOCAL_REPLICAS": "0"}}
    for number in range(2):
        gates = [{"name": "kueue.x-k8s.io/admission"}]
        template = objects.template("queued", "job:1", schedulingGates=gates)
        world.kubectl_create(PODS, {**template, "metadata": {**about, "name": f"queued-{number}"}})
    yield 10.0
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 6}})
    yield 60.0


def away_and_home(world: World, strategy: Raw) -> Iterator[float]:
    """A StatefulSet is created and updated while no local node has room."""
    cordon(world, True)
    database = objects.stateful_set("db", 2)
    database["spec"]["updateStrategy"] = strategy
    world.kubectl_create(STATEFUL_SETS, database)
    yield 30.0
    world.patch_template(STATEFUL_SETS, "db", [{"name": "main", "image": "redis:2"}])
    yield 60.0
    cordon(world, False)
    yield 250.0
    pods = [each for each in shop_pods(world) if named(each).startswith("db-")]
    if away := [named(each) for each in pods if each["spec"].get("nodeName") == "eklet-1"]:
        broken(world, HOME, f"{', '.join(away)} of {len(pods)} are still away")


def cordon(world: World, off: bool) -> None:
    for node in world.api.list(NODES):
        if is_home(node):
            world.patch(NODES, named(node), {"spec": {"unschedulable": off}})


@history("elasticity", nodes=3, values=HOMEWARDS)
def large_as_a_whole(world: World) -> Iterator[float]:
    """A pod that is too large for local nodes as a whole is not evicted to return there."""
    database = objects.stateful_set("db", 2)
    database["spec"]["template"]["spec"]["resources"] = {"requests": {"cpu": "32"}}
    world.kubectl_create(STATEFUL_SETS, database)
    yield 60.0
    before = databases(world)
    yield 120.0
    if databases(world) != before:
        broken(world, STAYS, "it was evicted")


def databases(world: World) -> set[str]:
    """The uids of the pods."""
    return {each["metadata"]["uid"] for each in shop_pods(world) if named(each).startswith("db-")}


@history("elasticity", nodes=3, lasts=2100.0, values=HOMEWARDS)
def never_home(world: World) -> Iterator[float]:
    """A workload whose replacements go to super nodes again is evicted seldom by all leaders together."""
    cordon(world, True)
    world.kubectl_create(STATEFUL_SETS, objects.stateful_set("db", 2))
    yield 20.0
    uids, is_full = set[str](), True
    for _ in range(1000):
        uids |= databases(world)
        waits = any(not has_place(each) for each in shop_pods(world))
        if waits != is_full:
            is_full = waits
            cordon(world, is_full)
            if not is_full:
                kill_the_leader(world, world.kernel.dice)
        yield 1.0
    if len(uids) - 2 > FEW_RETURNS:
        broken(world, TO_AND_FRO, f"it was evicted {len(uids) - 2} times in 1,000 s")
    yield 1000.0  # the last pause ends, and the pods return


def has_place(pod: Raw) -> bool:
    return bool(pod["spec"].get("nodeName")) and "deletionTimestamp" not in pod["metadata"]


@history("elasticity", nodes=3, lasts=500.0)
def no_leader(world: World) -> Iterator[float]:
    """Pods that were gated while the controllers were away say so."""
    for replica in world.product.controllers:
        world.network.cut(replica.name, world.kernel.now + 120.0)
    yield 10.0
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 7}})
    yield 10.0
    gated = {named(each) for each in shop_pods(world) if is_gated(each)}
    yield 200.0
    said = {
        each["involvedObject"]["name"] for each in world.api.peek(EVENTS) if "no leader" in each["message"]
    }
    if silent := gated - said:
        broken(world, SAID, f"no Event of {', '.join(sorted(silent))}")


@history("elasticity", nodes=3)
def volumes_that_cannot_be_read(world: World) -> Iterator[float]:
    """A pod whose volumes cannot be read yet says that it waits for them."""
    world.refuse(CLAIMS, "drawbridge-controllers", world.kernel.now + 40.0, "GET")
    about = {"name": "stores", "namespace": objects.SHOP, "annotations": {LOCAL_REPLICAS: "0"}}
    pod = objects.template("bare", "web:1", "100m")
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    world.kubectl_create(PODS, {**pod, "metadata": {**pod["metadata"], **about}})
    yield 30.0
    said = [each["message"] for each in world.api.peek(EVENTS) if each["involvedObject"]["name"] == "stores"]
    if not any("volumes" in each for each in said):
        broken(world, SAID, f"stores says {said}")


@history("elasticity", nodes=3, lasts=400.0, values={"elasticity": {"maxSuperPods": {"total": 3}}})
def cap_while_requests_are_slow(world: World) -> Iterator[float]:
    """The cap holds while requests are slow and several workloads ask for it."""
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}})
    world.kubectl.create(DEPLOYMENTS, objects.deployment("api", 3, local=0), objects.SHOP)
    yield 60.0
    world.network.slow(world.kernel.now + 120.0, 2.0)
    for _ in range(4):
        on_super = [each for each in world.api.peek(PODS) if each["spec"].get("nodeName") == "eklet-1"]
        delete_pods(world, max(named(each) for each in on_super))  # of web, when there is one
        yield 30.0
    yield 30.0
    world.patch(DEPLOYMENTS, "api", {"spec": {"replicas": 0}})


@history("elasticity", nodes=3, values={"elasticity": {"maxSuperPods": {"total": 1}}})
def late_placement(world: World) -> Iterator[float]:
    """A placement of a leader that has died does not exceed the cap when it arrives after the next one has begun."""
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
    for name in ("first", "second", "api", "blog", "chat"):
        world.kubectl_create(DEPLOYMENTS, objects.deployment(name, 1, local=0))
        yield 10.0
    world.kubectl_delete(DEPLOYMENTS, world.api.get(DEPLOYMENTS, "first", objects.SHOP))
    world.network.delay(world.kernel.now + 3.0, 1.0, LATE, LATE)
    yield 3.0
    kill_the_leader(world, world.kernel.dice)
    world.network.hang("PATCH", "/pods/second-", world.kernel.now + LATE + BREATH)
    yield 120.0


@history("elasticity", nodes=3, values={"elasticity": {"maxSuperPods": {"total": 2}}})
def asks_beyond_the_cap(world: World) -> Iterator[float]:
    """A pod that may run on super nodes alone waits for the cap in its rollout, and says so."""
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
    yield 30.0
    asking = objects.deployment("batch", 1, local=0)
    asking["spec"]["template"]["spec"]["nodeSelector"] = {objects.SUPER_LABEL: "eklet"}
    world.kubectl.create(DEPLOYMENTS, asking, objects.SHOP)
    yield 30.0
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}})
    yield 30.0
    for kind, each in objects.shapes():
        if named(each) in ("tolerant", "large"):
            world.kubectl_create(kind, each)
    yield 20.0
    check_places(world, {"web": (2, 1), "tolerant": (2, 0), "large": (0, 0)})
    about = [each["involvedObject"]["name"] for each in world.api.peek(EVENTS) if each["reason"] == CAPPED]
    if not any(name.startswith("large-") for name in about):
        broken(world, SAID, "no Event of large")
    world.patch_template(DEPLOYMENTS, "batch", [{"name": "main", "image": "web:2"}])
    yield 100.0


@history(
    "elasticity", nodes=6, lasts=450.0, values={"elasticity": {"percentages": True, "localOptOut": True}}
)
def all_shapes(world: World) -> Iterator[float]:
    """Pods of all shapes are where their annotations and specs say, with room and without."""
    half, shut, unfit, late = (
        objects.deployment(each, 4, local=0) for each in ("half", "shut", "unfit", "late")
    )
    for workload, about in ((half, {LOCAL_REPLICAS: "50%"}), (shut, {LOCAL_REPLICAS: "0", SWITCH: "false"})):
        workload["spec"]["template"]["metadata"]["annotations"] = about
    unfit["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    called = objects.deployment("called", 1, local=1, nodeSelector={objects.SUPER_LABEL: "eklet"})
    for number in range(1, 5):
        world.patch(NODES, f"node-{number}", labels({"disk": "ssd"}))
    for kind, each in (*objects.shapes(), *((DEPLOYMENTS, each) for each in (half, shut, unfit))):
        world.kubectl_create(kind, each)
    yield 60.0
    check_places(
        world,
        {
            "asking": (0, 1),
            "fixed": (2, 0),
            "barred": (2, 0),
            "pinned": (1, 1),
            "ranked": (1, 2),
            "large": (0, 1),
        },
    )
    check_places(world, {"heavy": (1, 1), "half": (2, 2), "shut": (4, 0), "unfit": (4, 0), "web": (2, 2)})
    world.kubernetes.kubelets.silence("eklet-1", world.now())
    yield 55.0
    for each in (late, called):
        world.kubectl_create(DEPLOYMENTS, each)
    yield 40.0
    check_places(world, {"late": (0, 0)})
    yield 40.0
    check_places(world, {"late": (4, 0), "called": (0, 0)})
    world.kubernetes.kubelets.recover("eklet-1", world.now())
    cordon(world, True)
    for app in ("fixed", "pinned", "shut", "unfit", "web"):
        world.patch_template(DEPLOYMENTS, app, [{"name": "main", "image": "web:2"}])
    yield 100.0
    check_places(world, {"web": (0, 4)})
    cordon(world, False)
    yield 5.0  # until the nodes have lost their taints
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 6}})
    yield 60.0
    check_places(world, {"web": (2, 4), "called": (0, 1)})


@history("elasticity", nodes=2)
def pinned_unseen(world: World) -> Iterator[float]:
    """The first pod of a workload is pinned though it came while no webhook server answered; the next one is not."""
    for number in (1, 2):
        world.patch(NODES, f"node-{number}", {"spec": {"unschedulable": True}})
    no_webhook_server_answers(world, world.kernel.dice)
    (pinned,) = (each for _, each in objects.shapes() if each["metadata"]["name"] == "pinned")
    pinned["spec"]["replicas"] = 1
    world.kubectl_create(DEPLOYMENTS, pinned)
    yield 100.0
    check_places(world, {"pinned": (0, 0)})
    world.patch(DEPLOYMENTS, "pinned", {"spec": {"replicas": 2}})
    yield 60.0
    check_places(world, {"pinned": (0, 1)})


@history("elasticity", nodes=3, values={"elasticity": {"maxSuperPods": {"total": 9}}})
def asks_for_one_super_node(world: World) -> Iterator[float]:
    """A pod that tolerates super nodes, and asks for one that is closed for a while, is not kept local by a cap."""
    world.api.put(NODES, objects.super_node("eklet-2", 202))
    for name in ("node-1", "eklet-1"):
        world.patch(NODES, name, labels({"disk": "ssd"}) | {"spec": {"unschedulable": True}})
    yield 5.0
    tolerates = [{"key": objects.SUPER_TAINT, "operator": "Exists"}]
    batch = objects.deployment("batch", 1, nodeSelector={"disk": "ssd"}, tolerations=tolerates)
    world.kubectl_create(DEPLOYMENTS, batch)
    yield 20.0
    world.patch(NODES, "eklet-1", {"spec": {"unschedulable": None}})
    yield 30.0
    check_places(world, {"batch": (0, 1)})


@history("elasticity", nodes=3)
def agents_beside_super_nodes(world: World) -> Iterator[float]:
    """A DaemonSet that the provider injects has its pod on super nodes, others have none, seen at creation or not."""
    for when in ("seen", "unseen"):
        if when == "unseen":
            no_webhook_server_answers(world, world.kernel.dice)
        for name, marks in (("injected", {DS_INJECTION: "true"}), ("kept-off", {})):
            agent = objects.template(f"{name}-{when}", "agent:1", "10m", tolerations=[{"operator": "Exists"}])
            agent["metadata"]["annotations"] = marks
            selector = {"matchLabels": agent["metadata"]["labels"]}
            metadata = {"name": f"{name}-{when}", "namespace": objects.SHOP}
            raw = {"metadata": metadata, "spec": {"selector": selector, "template": agent}}
            world.kubectl_create(DAEMON_SETS, raw)
        yield 90.0
    local = sum(named(each).startswith("node-") for each in world.api.peek(NODES))
    wanted = {"injected": (local, 1), "kept-off": (local, 0)}
    check_places(world, {f"{name}-{when}": wanted[name] for name in wanted for when in ("seen", "unseen")})


GPUS = {"cloud": {"subnets": [{"id": "subnet-gpu1", "zone": "ap-singapore-1", "gpu": True}]}}
GPU_NODE, GPU = "eklet-subnet-gpu1", "nvidia.com/gpu"


@history("elasticity", nodes=3, values=GPUS)
def pods_that_ask_for_gpus(world: World) -> Iterator[float]:
    """Pods that ask for GPUs come to super nodes that are for them, and no others do."""
    status = {
        **objects.super_node(GPU_NODE, 201)["status"],
        "allocatable": {**objects.capacity(500), GPU: "8"},
    }
    world.api.edit(
        NODES, GPU_NODE, {"status": status}, manager="kubelet"
    )  # eklet's, once we have registered it
    training = objects.deployment("training", 2, local=0)
    training["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {GPU: "1"}
    world.kubectl_create(DEPLOYMENTS, training)
    yield 60.0
    for pod in shop_pods(world):
        at, asks = pod["spec"].get("nodeName", ""), pod["metadata"]["labels"]["app"] == "training"
        if (at == GPU_NODE) is not asks:
            broken(world, PLACES, f"{pod['metadata']['name']} is on {at or 'no node'}")


TIERS = {
    "cloud": {
        "subnets": [{"id": f"subnet-t{each}", "zone": "ap-singapore-1", "tier": each} for each in (1, 2, 3)]
    }
}


@history("elasticity", nodes=3, values=TIERS)
def first_tiers_without_room(world: World) -> Iterator[float]:
    """Pods that find no local room come to the first tier that has some: one node before is closed, one is full."""
    for tier, (cpu, pods) in enumerate(((500, 0), (8, 110), (500, 110)), 1):
        name = f"eklet-subnet-t{tier}"
        allocatable = {**objects.capacity(cpu), "pods": str(pods)}
        status = {**objects.super_node(name, 200 + tier)["status"], "allocatable": allocatable}
        world.api.edit(NODES, name, {"status": status}, manager="kubelet")
    world.patch(NODES, "eklet-1", {"spec": {"unschedulable": True}})
    cordon(world, True)
    yield 5.0
    world.kubectl_create(DEPLOYMENTS, objects.deployment("late", 3))
    yield 60.0
    nodes = Counter(each["spec"].get("nodeName", "") for each in shop_pods(world) if of_app(each, "late"))
    if nodes != {"eklet-subnet-t2": 3}:
        broken(world, PLACES, f"late: {dict(nodes)}")
    cordon(world, False)


@history("elasticity", nodes=3, values=GPUS)
def a_super_node_of_another_type(world: World) -> Iterator[float]:
    """A super node of ours is one again soon after its instance type was changed."""
    world.patch(NODES, GPU_NODE, labels({objects.SUPER_LABEL: "S5.LARGE8"}))
    yield 15.0
    if not is_super(world.api.get(NODES, GPU_NODE)):
        broken(world, ASKED, f"{GPU_NODE} is no super node")


@history("elasticity", nodes=3)
def one_host_port(world: World) -> Iterator[float]:
    """Of pods that ask for one host port, one comes to the super node that is open, and the others are local."""
    closed = objects.super_node("eklet-0", 202)
    closed["spec"]["unschedulable"] = True
    world.api.put(NODES, closed)
    yield 5.0
    template = objects.template("bare", "web:1", "100m")
    template["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    for number in range(3):
        about = {"name": f"bare-{number}", "namespace": objects.SHOP, "annotations": {LOCAL_REPLICAS: "0"}}
        world.kubectl_create(PODS, {**template, "metadata": {**template["metadata"], **about}})
    yield 60.0
    check_places(world, {"bare": (2, 1)})


def check_places(world: World, wanted: dict[str, tuple[int, int]]) -> None:
    """By workload: how many of its pods have a local node, and how many a super node."""
    for app, counts in wanted.items():
        nodes = [each["spec"].get("nodeName", "") for each in shop_pods(world) if of_app(each, app)]
        found = sum(each.startswith("node-") for each in nodes), nodes.count("eklet-1")
        if found != counts:
            broken(world, PLACES, f"{app}: {found[0]} local and {found[1]} on super nodes, not {counts}")


def of_app(pod: Raw, app: str) -> bool:
    """Whether it is one of a workload that stays."""
    return bool(pod["metadata"]["labels"].get("app") == app and "deletionTimestamp" not in pod["metadata"])


FAILOVER = {"homeFailover": {"enabled": True, "homeAfter": "1m"}}


@history("elasticity", nodes=3, values={"elasticity": FAILOVER})
def super_nodes_fail(world: World) -> Iterator[float]:
    """Pods that super nodes do not take any more go home after homeAfter, not before."""
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 6}})
    while not (sent := {each["metadata"]["uid"] for each in world.api.peek(PODS) if is_sent(each)}):
        yield 0.005
    world.patch(NODES, "eklet-1", {"spec": {"unschedulable": True}})
    yield 45.0
    if gone := sent - {each["metadata"]["uid"] for each in world.api.peek(PODS)}:
        broken(world, NOT_BEFORE, f"{len(gone)} of {len(sent)} pods")
    yield 45.0
    if any(is_sent(each) for each in world.api.peek(PODS)):
        broken(world, AFTER, "some still wait")
    yield 1.0


REPLACED = "placement: no pod is deleted that nothing replaces, or whose deletion counts as a failure"
MOVED_ONCE = "placement: a pod that a super node does not start moves once, after homeAfter, and not before"


@history("elasticity", nodes=3, values={"elasticity": FAILOVER}, lasts=600.0)
def a_super_node_is_sold_out(world: World) -> Iterator[float]:
    """It accepts pods and starts none: they run on another one instead, and locally when that is sold out, too."""
    of_machine = labels({"kubernetes.io/hostname": "eklet-0"})
    world.patch(NODES, "eklet-1", of_machine)
    yield from sold_out(world, "eklet-1", 6)
    world.api.put(NODES, objects.super_node("eklet-2", 202))
    world.patch(NODES, "eklet-2", of_machine)
    yield from moved(world, "eklet-1")
    yield 60.0
    if (found := where(world)) != Counter({"eklet-1": 2, "eklet-2": 2, "local": 2}):
        broken(world, MOVED_ONCE, f"pods are on {found}")
    yield from sold_out(world, "eklet-2", 8)
    yield from moved(world, "eklet-2")
    yield 60.0
    if (found := where(world)) != Counter({"eklet-1": 2, "eklet-2": 2, "local": 4}):
        broken(world, MOVED_ONCE, f"pods are on {found}")
    world.kubernetes.kubelets.sold_out.clear()
    world.patch(NODES, "eklet-1", {"spec": {"unschedulable": None}})


@history("elasticity", nodes=3, values={"elasticity": FAILOVER})
def not_replaced(world: World) -> Iterator[float]:
    """A pod of a Job, and one without a controller, waits for the super node that has accepted it."""
    world.kubernetes.kubelets.sold_out.add("eklet-1")
    about = {"name": "single", "namespace": objects.SHOP, "annotations": {LOCAL_REPLICAS: "0"}}
    world.kubectl_create(PODS, {**objects.template("single", "web:1"), "metadata": about})
    world.kubectl_create(JOBS, objects.job("batch", 1, local=0))
    while len(pods := accepted(world, "eklet-1")) < 2:
        yield 0.5
    yield 120.0
    if accepted(world, "eklet-1") != pods:
        broken(world, REPLACED, "its place is empty, or its Job has failed")
    world.kubernetes.kubelets.sold_out.clear()


def sold_out(world: World, node: str, replicas: int) -> Iterator[float]:
    """From now on; and back when it has accepted pods of *replicas* of web."""
    yield 60.0
    world.kubernetes.kubelets.sold_out.add(node)
    if node != "eklet-1":
        world.patch(NODES, "eklet-1", {"spec": {"unschedulable": True}})
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": replicas}})
    while len(accepted(world, node)) < 2:
        yield 0.5


def moved(world: World, node: str) -> Iterator[float]:
    """Those that *node* has accepted are deleted after homeAfter."""
    pods = accepted(world, node)
    yield 50.0
    if accepted(world, node) != pods:
        broken(world, MOVED_ONCE, "some are deleted before")
    yield 40.0
    if left := accepted(world, node):
        broken(world, MOVED_ONCE, f"{len(left)} of {len(pods)} still wait")


def accepted(world: World, node: str) -> set[str]:
    """The uids of pods that it has, and has not started."""
    pods = (each for each in shop_pods(world) if each["spec"].get("nodeName") == node)
    return {
        each["metadata"]["uid"]
        for each in pods
        if "podIP" not in each.get("status", {}) and "deletionTimestamp" not in each["metadata"]
    }


def where(world: World) -> Counter[str]:
    """The pods that run, by super node."""
    ready = [each["spec"]["nodeName"] for each in shop_pods(world) if is_ready(each)]
    return Counter("local" if each.startswith("node-") else each for each in ready)


def is_sent(pod: Raw) -> bool:
    """Placed on super nodes, and not there yet."""
    notes = pod["metadata"].get("annotations") or {}
    return notes.get(PLACEMENT) == "super" and not pod["spec"].get("nodeName")


# All features.


@history("ip_reservation", "anycast_ip", "elasticity", "ingress_daemonset", nodes=3, lasts=2700.0)
def churn(world: World) -> Iterator[float]:
    """Nodes, pods and templates that come and go leave nothing in memory."""
    need_addresses(world)
    edge_spec(world, revisionHistoryLimit=1)
    yield 60.0
    numbers, sizes = iter(range(10, 10 + 2 * ROUND)), []
    for _ in range(2):
        for _ in range(ROUND):
            yield from come_and_go(world, next(numbers))
        yield 700.0
        before = remembered()
        yield 17.0
        sizes.append(before & remembered())  # without what is under way
    grown = {name: count for name, count in (sizes[1] - sizes[0]).items() if count >= ROUND}
    if grown:
        broken(world, FORGOTTEN, f"{grown} more entries after {ROUND} times")


def come_and_go(world: World, number: int) -> Iterator[float]:
    name, labels = f"node-{number}", {NEED_LABEL: "true", objects.INGRESS_LABEL: "true"}
    world.kubectl_create(NODES, objects.node(name, number, labels))
    give_template(world, f"proxy:{number}")
    delete_pods(world, "redis-0", "redis-1")
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 7}})
    yield 40.0
    world.patch_template(DEPLOYMENTS, "web", [{"name": "main", "image": f"web:{number}"}])
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}})
    yield 40.0
    leaves(world, name)
    yield 30.0
