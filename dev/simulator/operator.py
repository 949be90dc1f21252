"""What an operator does to the product itself: Helm, the command, settings, any field of a spec; and how it crashes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from api.ingress_daemonset import INGRESS_DAEMONSETS
from dev.judge.observation import is_super, is_terminating
from dev.judge.placement import SUPER_NODES
from dev.simulator import helm, objects
from dev.simulator.edits import edited
from dev.simulator.machines import CLOSED, excuse, open_super_nodes
from dev.simulator.operations import operation
from dev.simulator.world import NAMESPACE, World
from kube.resources import DAEMON_SETS, DEPLOYMENTS, LEASES, NODES, PODS
from settings.anycast_ip import NEED_LABEL

Raw = dict[str, Any]
EDGE = "edge"
SETTINGS: dict[str, dict[str, Sequence[Any]]] = {
    "": {
        "controllers.leaseDuration": ("15s", "30s"),
        "webhook.threads": (64, 512),
        "logging.level": ("info", "debug"),
    },
    "ipReservation": {
        "ipReservation.duration": ("2m", "3m"),
        "ipReservation.advanced.releasePeriod": ("2s", "5s", "10s"),
        "ipReservation.maxCount": (2, 300),
        "ipReservation.maxPerNamespace": (None, 2),
        "ipReservation.workloadOptIn": (True, False),
        "ipReservation.maxFinished": (2, 300),
        "ipReservation.skipWhenOwnerIsDeleted": (True, False),
        "ipReservation.pools.enabled": (True, False),
        "ipReservation.sameAddress.enabled": (True, False),
        "ipReservation.standing.enabled": (True, False),
        "ipReservation.standing.max": (1, 2, 10_000),
    },
    "anycastIP": {
        "anycastIP.releaseOnLabelRemoval": (True, False),
        "anycastIP.reverseReconcile.enabled": (True, False),
        "anycastIP.pool.minIdle": (0, 1, 2),
        "anycastIP.pool.retain.enabled": (True, False),
        "anycastIP.pool.retain.count": (1, 3),
        "anycastIP.whenExhausted": ("wait", "release"),
        "anycastIP.bandwidth": (50, 100, 200),
        "anycastIP.tags": ({}, {"team": "edge"}),
    },
    "elasticity": {
        "elasticity.maxSuperPods.total": (None, 2, 4),
        "elasticity.returnHome.enabled": (True, False),
        "elasticity.homeFailover.enabled": (True, False),
        "elasticity.scaleInOrder": (True, False),
    },
    "ingressDaemonSet": {
        "ingressDaemonSet.detachmentReminder": ("1m", "10m"),
        "ingressDaemonSet.healthChecker.image.tag": ("1", "2"),
    },
}
"""Of values.yaml, by the feature that they belong to, what an operator may try."""
ROLLOUT = ("pause", "resume", "abort", "promote", "undo", "restart", "now")
MARKS = (NEED_LABEL, objects.INGRESS_LABEL)
SETTLES = 30.0
"""Seconds until a world that was restored is judged again."""
AGAIN = 30.0
"""Seconds until the pods of an IngressDaemonSet that was created again are there."""
BACK = (20.0, 120.0)
"""Seconds until an operator takes an edit back."""


# Helm.


@operation("platform", 2)
def change_a_setting(world: World, dice: Random) -> str:
    on = ["", *(each for each in helm.SECTIONS if helm.is_on(world.values, each))]
    possible = [(path, values) for section in on for path, values in SETTINGS[section].items()]
    path, values = dice.choice(possible)
    value = dice.choice(values)
    world.note("helm", f"{path}={value}")
    done = helm.upgrade(world, with_value(world.values, path, value))
    return f"{path}={value}" if done else ""


@operation("platform")
def switch_a_feature_off_and_on(world: World, dice: Random) -> str:
    on = [each for each in helm.SECTIONS if helm.is_on(world.values, each)]
    section, seconds = dice.choice(on) if on else "", dice.uniform(5, 60)
    before = world.values
    if not section:
        return ""
    world.note("helm", f"{section} off for {seconds:.0f} s")
    if not helm.upgrade(world, with_value(before, f"{section}.enabled", value=False)):
        return ""
    world.kernel.sleep(seconds)
    while not helm.upgrade(world, with_value(world.values, f"{section}.enabled", value=True)):
        world.kernel.sleep(helm.RETRY)
    return f"{section}, for {seconds:.0f} s"


@operation("platform")
def uninstall_and_install_again(world: World, dice: Random) -> str:
    values, seconds = world.values, dice.uniform(20, 90)
    world.note("helm", "uninstall")
    if not helm.uninstall(world, seconds):
        return ""
    helm.install_again(world, values)
    return f"away for {seconds:.0f} s"


@operation("platform")
def restore_etcd(world: World, dice: Random) -> str:
    """From a snapshot of some time ago. Ours start again before all nodes have registered, unlike the how-to."""
    seconds = dice.uniform(20, 120)
    done = helm.alone(world, lambda: restored(world, seconds, dice))
    return f"as it was {seconds:.0f} s ago" if done else ""


def restored(world: World, seconds: float, dice: Random) -> bool:
    """Machines without a Node register again when a person starts their kubelets; Calico's allocations stay, so
    its blocks say them. All API servers are stopped meanwhile, as Kubernetes demands."""
    snapshot = world.api.snapshot()
    world.kernel.sleep(seconds)
    world.note("etcd", f"restored as it was {seconds:.0f} s ago")
    nodes = world.api.list(NODES)
    values, world.is_restored = world.values, True
    world.promise(helm.switched_off(values))
    world.outside.lease_taken()
    world.outside.disturb("etcd", *names_of(world))
    world.network.restart()
    world.api.restore(snapshot)
    world.calico.show_blocks()
    for replica in world.product.controllers:
        world.product.kill(replica)
    world.outside.disturb(*names_of(world))
    excuse(world, [SUPER_NODES, *(each["metadata"]["name"] for each in nodes)], SETTLES)
    # The snapshot may have closed them, also while the feature is off.
    for how in CLOSED if any(map(is_super, nodes)) else ():
        open_super_nodes(world, how, is_open=True)
    world.kernel.sleep(dice.uniform(5, 30))
    # One that was registered twice has died under both names.
    off = {_instance(each) for each in nodes if each["metadata"]["name"] in world.kubernetes.kubelets.off} - {
        ""
    }
    for each in nodes:
        name = each["metadata"]["name"]
        is_off = name in world.kubernetes.kubelets.off or _instance(each) in off
        if not is_off and not world.api.find(NODES, name):
            marks = {key: value for key, value in each["metadata"]["labels"].items() if key in MARKS}
            address = each["status"]["addresses"][0]["address"]
            number = int(address.rpartition(".")[2])
            node = (
                objects.super_node(name, number)
                if is_super(each)
                else objects.node(name, number, marks, instance=_instance(each))
            )
            world.kubectl_create(NODES, node)
    for name in sorted(world.kubernetes.kubelets.dead):
        world.forget_machine(name)
    world.kernel.sleep(SETTLES)
    world.promise(values)
    return True


def _instance(node: Raw) -> str:
    return str(node["metadata"]["labels"].get(objects.INSTANCE_LABEL, ""))


def names_of(world: World) -> list[str]:
    return [each["metadata"]["name"] for kind in (NODES, PODS) for each in world.api.peek(kind)]


def with_value(values: Raw, path: str, value: Any) -> Raw:
    head, _, rest = path.partition(".")
    return {**values, head: with_value(values.get(head) or {}, rest, value) if rest else value}


# The command, and what people do to our objects.


@operation("ingress_daemonset", 3)
def use_the_command(world: World, dice: Random) -> str:
    verb = dice.choice(ROLLOUT)
    return f"rollout {verb}: {world.drawbridge('rollout', verb, EDGE).strip()[:80]}"


@operation("ingress_daemonset", 3)
def edit_any_field(world: World, dice: Random) -> str:
    """Generated from the schema; and half of the time taken back."""
    held = world.api.find(INGRESS_DAEMONSETS, EDGE, objects.SHOP)
    if held is None:
        return ""
    change, back = edited(held["spec"], dice)
    done = world.patch(INGRESS_DAEMONSETS, EDGE, {"spec": change})

    def take_back() -> None:
        world.note("kubectl", f"back: {world.patch(INGRESS_DAEMONSETS, EDGE, {'spec': back})}")

    if dice.random() < 0.5:
        world.kernel.spawn(take_back, "operator", world.kernel.system, after=dice.uniform(*BACK))
    return done


@operation("ingress_daemonset")
def delete_what_is_ours(world: World, dice: Random) -> str:
    """By hand: a Deployment of a node, or the health checkers."""
    kind = dice.choice([DEPLOYMENTS, DAEMON_SETS])
    ours = world.some(kind, dice, lambda raw: raw["metadata"]["name"].startswith(f"{EDGE}-"))
    if ours is None:
        return ""
    name = ours["metadata"]["name"]

    def excuse_until_back() -> None:
        """Nothing of ours brings it back while we are not installed, the feature is off, or others refuse it."""
        while not world.api.find(kind, name, objects.SHOP):
            is_on = world.product.controllers and helm.is_on(world.values, "ingressDaemonSet")
            if not is_on or world.refuses(kind, "drawbridge-controllers"):
                world.outside.disturb(*(each["metadata"]["name"] for each in world.api.peek(NODES)))
            world.kernel.sleep(5.0)

    world.outside.disturb(*(each["metadata"]["name"] for each in world.api.peek(NODES)))
    done = world.kubectl_delete(kind, ours)
    world.kernel.spawn(excuse_until_back, f"excuse for {name}", world.kernel.system)
    return done


@operation("ingress_daemonset")
def delete_the_ingress_daemon_set(world: World, dice: Random) -> str:
    """And create it again a while later, as it was at first: its last template may be one that fails."""
    what, seconds = "deletion of all", dice.uniform(5, 90)
    held = world.api.find(INGRESS_DAEMONSETS, EDGE, objects.SHOP)
    if held is None or what in world.at_work:
        return ""

    def is_there() -> bool:
        """Also when etcd is restored meanwhile, with the former one."""
        found = world.api.find(INGRESS_DAEMONSETS, EDGE, objects.SHOP)
        return found is not None and not is_terminating(found)

    def create_again() -> None:
        world.kernel.sleep(seconds)
        while not is_there():
            world.note("kubectl", world.kubectl_create(INGRESS_DAEMONSETS, objects.ingress_daemon_set(EDGE)))
            excuse(world, names_of(world), AGAIN)
            world.kernel.sleep(5.0)
        world.at_work.discard(what)

    world.at_work.add(what)
    excuse(world, names_of(world), seconds)
    done = world.kubectl_delete(INGRESS_DAEMONSETS, held)
    world.kernel.spawn(create_again, "create again", world.kernel.system)
    return f"{done}, for {seconds:.0f} s"


@operation("platform")
def delete_the_lease(world: World, dice: Random) -> str:
    lease = world.api.find(LEASES, "drawbridge", NAMESPACE)
    world.outside.lease_taken()
    return world.kubectl_delete(LEASES, lease) if lease else ""


# Crashes and refusals.


@operation("platform", 3)
def die_after_a_write(world: World, dice: Random) -> str:
    """Whatever it would do next is not done."""
    replicas = [*world.product.controllers, *world.product.servers]
    if not replicas:
        return ""
    leader = world.leader()
    leads = [each for each in world.product.controllers if leader.startswith(f"{each.name}_")]
    replica = dice.choice(leads if leads and dice.random() < 0.7 else replicas)
    writes = dice.randint(1, 8)
    world.network.end_after(replica.name, writes)
    return f"{replica.name} after {writes} writes"


@operation("platform")
def answer_429(world: World, dice: Random) -> str:
    length, share = dice.uniform(5, 60), dice.uniform(0.05, 0.6)
    world.network.be_busy(world.kernel.now + length, share)
    return f"{share:.0%} for {length:.0f} s"
