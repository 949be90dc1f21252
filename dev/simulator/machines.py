"""What happens to machines and their kubelets, and what people do before they take one away."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import partial
from random import Random

from api.ingress_daemonset import INGRESS_DAEMONSETS
from dev.judge.edge import SOON, drain_timeout
from dev.judge.placement import SUPER_NODES
from dev.simulator import objects
from dev.simulator.models.autoscaler import OWN as AUTOSCALED
from dev.simulator.models.autoscaler import Autoscaler
from dev.simulator.operations import LATER, Raw, is_home, operation
from dev.simulator.world import World
from kube.errors import KubeError, NotFound
from kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS
from settings.anycast_ip import NEED_LABEL

FEWEST = 3
"""Machines that stay."""
DRAIN_RETRY = 5.0
EVICTED = "edge: no eviction is denied for more than drainTimeoutSeconds"
LONGEST_DRAIN = 180.0
SOLD_OUT = "sold out"
CLOSED = ("cordoned", "silent", "switched off", SOLD_OUT)
"""How super nodes take no pods, or do not start them."""
SUPER_NODE = "eklet-1"


@operation("platform")
def reboot_a_node(world: World, dice: Random) -> str:
    name, seconds = _machine(world, dice), dice.uniform(15, 120)
    if not name:
        return ""
    world.kubernetes.kubelets.reboot(name, world.now(), seconds)
    excuse(world, [name], seconds)
    return f"{name}, away for {seconds:.0f} s"


@operation("platform")
def a_kubelet_falls_silent(world: World, dice: Random) -> str:
    """Its machine and the pods there go on, but cannot reach the API server."""
    name, seconds = _machine(world, dice), dice.uniform(20, 400)
    if not name:
        return ""
    kubelets = world.kubernetes.kubelets
    kubelets.silence(name, world.now())
    world.network.cut(f"health-checker-{name}", world.kernel.now + seconds)
    excuse(world, [name], seconds)

    def end() -> None:
        if name not in kubelets.off:
            kubelets.recover(name, world.now())

    world.kernel.spawn(end, f"recovery of {name}", world.kernel.system, after=seconds)
    return f"{name} for {seconds:.0f} s"


@operation("platform")
def restart_a_kubelet(world: World, dice: Random) -> str:
    """It may reject pods that run, where labels or what is allocatable have changed."""
    if name := _machine(world, dice):
        world.outside.disturb(name)
        world.kubernetes.kubelets.restart(name, world.now())
    return name


@operation("platform")
def run_out_of_memory(world: World, dice: Random) -> str:
    """A kubelet evicts a pod."""
    pod = world.some(PODS, dice, lambda raw: raw.get("status", {}).get("phase") == "Running")
    if pod is None:
        return ""
    world.outside.disturb(pod["metadata"]["name"], pod["spec"]["nodeName"])
    world.kubernetes.kubelets.evict(pod, world.now())
    return str(pod["metadata"]["name"])


@operation("platform")
def a_machine_dies(world: World, dice: Random) -> str:
    """And the cloud's controller of nodes deletes its Node."""
    name, seconds = _machine(world, dice, fewest=FEWEST + 1), dice.uniform(30, 300)
    if not name:
        return ""
    names = world.registered_with(name)
    world.outside.disturb(*names)
    world.end_machine(name)
    excuse(world, names, seconds)
    world.kernel.spawn(
        lambda: world.forget_machine(name), f"end of {name}", world.kernel.system, after=seconds
    )
    return f"{name}; its Node goes in {seconds:.0f} s"


@operation("platform")
def an_autoscaler_begins(world: World, dice: Random) -> str:
    """And a workload that is there for a while needs it."""
    marks, seconds = (
        {AUTOSCALED: "true", objects.INGRESS_LABEL: dice.choice(["true", ""])},
        dice.uniform(60, 200),
    )
    if world.values["anycastIP"]["enabled"]:
        marks[NEED_LABEL] = dice.choice(["true", ""])

    def make() -> Raw:
        number = world.next_number()
        return objects.node(f"node-{number}", number, marks)

    def end(name: str) -> None:
        world.outside.disturb(name)
        world.end_machine(name)
        world.forget_machine(name)

    def leave() -> None:
        """Again, should a snapshot bring it back."""
        if held := world.api.find(DEPLOYMENTS, "batch", objects.SHOP):
            world.kubectl_delete(DEPLOYMENTS, held)

    if not any(isinstance(each, Autoscaler) for each in world.models):
        world.run_model(Autoscaler(world.kubernetes.cluster, make, end), "autoscaler")
        world.kernel.spawn(partial(world.every, 30.0, leave, "batch"), "batch", after=seconds)
    return world.kubectl_create(DEPLOYMENTS, objects.deployment("batch", 6, cpu="5"))


@operation("elasticity", 2)
def super_nodes_take_no_pods(world: World, dice: Random) -> str:
    """For a while: one is cordoned, falls silent or is sold out, or the switch closes them to all."""
    how, seconds = dice.choice(CLOSED), dice.uniform(5, 300)
    if how in world.at_work:
        return ""

    def end() -> None:
        open_super_nodes(world, how, is_open=True)
        world.at_work.discard(how)

    world.at_work.add(how)
    excuse(world, [SUPER_NODES, SUPER_NODE], seconds)
    open_super_nodes(world, how, is_open=False)
    world.kernel.spawn(end, f"end of {how}", world.kernel.system, after=seconds)
    return f"{how} for {seconds:.0f} s"


@operation("elasticity", table=LATER)
def a_super_node_goes(world: World, dice: Random) -> str:
    """By hand; a while later its kubelet registers it again."""
    node, seconds, what = world.api.find(NODES, SUPER_NODE), dice.uniform(1, 120), f"return of {SUPER_NODE}"
    if node is None or what in world.at_work:
        return ""

    def come_back() -> None:
        while not world.api.find(NODES, SUPER_NODE):
            world.kubectl_create(NODES, objects.super_node(SUPER_NODE, 200))
            world.kernel.sleep(DRAIN_RETRY)
        world.at_work.discard(what)

    world.at_work.add(what)
    excuse(world, [SUPER_NODES, SUPER_NODE], seconds + DRAIN_RETRY)
    world.kernel.spawn(come_back, what, world.kernel.system, after=seconds)
    return f"{world.kubectl_delete(NODES, node)} for {seconds:.0f} s"


def open_super_nodes(world: World, how: str, *, is_open: bool) -> None:
    """Or close them, in one of the ways of *CLOSED*."""
    kubelets = world.kubernetes.kubelets
    if how == "silent":
        (kubelets.recover if is_open else kubelets.silence)(SUPER_NODE, world.now())
    elif how == SOLD_OUT:
        (kubelets.sold_out.discard if is_open else kubelets.sold_out.add)(SUPER_NODE)
    elif how == "cordoned":
        world.patch(NODES, SUPER_NODE, {"spec": {"unschedulable": None if is_open else True}})
    else:
        about = {"name": "eks-config", "namespace": "kube-system"}
        data = {"AUTO_SCALE_EKS": str(is_open).lower()}
        world.api.put(CONFIG_MAPS, {"metadata": about, "data": data}, manager="kubectl")


@operation("platform", 2)
def drain_a_node(world: World, dice: Random) -> str:
    """Then it is uncordoned again, or goes."""
    leaves = dice.random() < 0.5
    name, pause = _machine(world, dice, fewest=FEWEST + leaves), dice.uniform(20, 120)
    if not name:
        return ""
    drain(world, name, pause, leaves=leaves)
    return f"{name}, {'which then leaves' if leaves else 'for a while'}"


def drain(world: World, name: str, pause: float, *, leaves: bool) -> None:
    """As ``kubectl drain``; *pause* seconds later the node is uncordoned, or it goes."""

    def act() -> None:
        end = world.kernel.now + LONGEST_DRAIN
        drained = (each for each in world.api.peek(PODS) if _is_drained(each, name))
        pods = {each["metadata"]["uid"]: ("", math.inf) for each in drained}
        while _evict_all(world, name, pods) and world.kernel.now < end:
            world.kernel.sleep(DRAIN_RETRY)
        excuse(world, [name], pause)
        world.kernel.sleep(pause)
        if not world.api.find(NODES, name):
            pass  # others took it away meanwhile
        elif leaves:
            world.end_machine(name)
            world.forget_machine(name)
        else:
            world.patch(NODES, name, {"spec": {"unschedulable": None}})
        world.at_work.discard(f"drain of {name}")

    world.at_work.add(f"drain of {name}")
    world.patch(NODES, name, {"spec": {"unschedulable": True}})
    world.kernel.spawn(act, f"drain of {name}", world.kernel.system)


def _evict_all(world: World, node: str, pods: dict[str, tuple[str, float]]) -> bool:
    """Whether some of these are left, as `kubectl drain --ignore-daemonsets --force` sees it.

    With each is when its eviction was first denied by us, while which leader worked.
    """
    left = [each for each in world.api.peek(PODS) if each["metadata"]["uid"] in pods]
    for each in left:
        metadata = each["metadata"]
        if "deletionTimestamp" in metadata:
            continue
        world.outside.disturb(node, f"drain of {node}")
        try:
            world.kubectl.evict(
                metadata["name"], metadata["namespace"], preconditions={"uid": metadata["uid"]}
            )
        except NotFound:
            continue
        except KubeError as error:
            world.note("kubectl", f"{metadata['name']} is not evicted: {error}")
            if "drainTimeoutSeconds" in str(error):
                leader, since = pods[metadata["uid"]]
                working = world.leader() if world.outside.has_leader else ""
                if leader != working or not working:
                    pods[metadata["uid"]] = working, world.kernel.now
                else:
                    check_wait(world, metadata["name"], world.kernel.now - since)
    return bool(left)


def check_wait(world: World, pod: str, seconds: float) -> None:
    """Since the first denial while one leader worked, which counts by its own clock."""
    longest = max(drain_timeout(each) for each in world.api.peek(INGRESS_DAEMONSETS))
    if seconds > longest + SOON + DRAIN_RETRY:
        world.outside.judge.find(EVICTED, world.kernel.now, f"{pod} after {seconds:.0f} s")


def _is_drained(pod: Raw, node: str) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return pod["spec"].get("nodeName") == node and not any(
        each["kind"] == "DaemonSet" and each.get("controller") for each in owners
    )


def _machine(world: World, dice: Random, fewest: int = 1) -> str:
    """One whose kubelet reports; "" where too few would be left."""
    silent = world.kubernetes.kubelets.silent
    node = world.some(NODES, dice, lambda raw: is_home(raw) and raw["metadata"]["name"] not in silent)
    count = sum(map(is_home, world.api.peek(NODES)))
    return str(node["metadata"]["name"]) if node and count >= fewest else ""


def excuse(world: World, names: Collection[str], seconds: float) -> None:
    """What these and their pods do while they are away, and while they come back, is no fault of ours."""

    def note() -> None:
        end = world.kernel.now + seconds
        while world.kernel.now <= end:
            pods = [each for each in world.api.peek(PODS) if each["spec"].get("nodeName") in names]
            world.outside.disturb(*names, *(each["metadata"]["name"] for each in pods))
            world.kernel.sleep(min(15.0, max(0.5, end - world.kernel.now)))

    world.kernel.spawn(note, f"excuse of {', '.join(names)}", world.kernel.system)
