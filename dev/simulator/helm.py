"""What Helm does with our release, its hooks included, and what the Deployments do with our pods then.

https://helm.sh/docs/topics/charts_hooks/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from api.ingress_daemonset import FINALIZER, INGRESS_DAEMONSETS
from api.standing import STANDING
from calico.segment import IPReservation, canonical, key_of
from controllers.elasticity import open_gates
from controllers.ingress_daemonset import attach_nodes
from dev.judge.edge import detach_key, holders_of, is_excluded_by_us
from dev.judge.observation import is_terminating, name, notes
from dev.judge.placement import is_gated
from dev.judge.reservation import GIVEN_BACK, NO_LEADER
from dev.simulator.models.calico import RESERVATIONS
from dev.simulator.world import World, rendered_of
from kube.client import Client
from kube.resources import NODES, PODS

Raw = dict[str, Any]
NEXT_POD = 4.0
"""Seconds from one pod of a Deployment to the next one."""
READY = 15.0
"""Seconds until a new leader works."""
INJECTED, OFTEN = 90.0, 5.0
"""Seconds until a leader, or the next one, has injected CA bundles again; and from one excuse to the next."""
HELM = "helm"
RETRY, ATTEMPTS = 30.0, 5
"""Of a person whose upgrade failed, as a hook did."""
LEFT = "uninstall: nothing of ours holds anything afterwards"
HOOKS_END = "uninstall: the hooks of Helm end while the API server works"


def upgrade(world: World, values: Raw) -> bool:
    """Whether it was done: Helm refuses a second one, and one whose hook fails."""
    before = world.values
    leaving = [each for each in ("ingressDaemonSet", "elasticity") if is_on(before, each)]
    return alone(world, lambda: _upgraded(world, before, values, leaving))


def _upgraded(world: World, before: Raw, values: Raw, leaving: Sequence[str]) -> bool:
    world.promise(_in_both(before, values))
    if not _hooks(world, [each for each in leaving if not is_on(values, each)]):
        world.promise(before)
        return False
    old = pod_templates(before)
    world.install(values)
    excuse_bundles(world)  # those of a feature that is on now
    new = pod_templates(values)
    for component, replicas, replace in (
        ("controllers", world.product.controllers, world.product.replace),
        ("webhook", world.product.servers, world.product.restart_server),
    ):
        for replica in list(replicas) if old[component] != new[component] else ():
            replace(replica)
            world.kernel.sleep(NEXT_POD)
    world.kernel.sleep(READY)
    world.promise(values)
    return True


def uninstall(world: World, after: float) -> bool:
    """Helm 4 deletes the webhook configurations first. What is left is looked at *after* so many seconds."""
    return alone(world, lambda: _uninstalled(world, after))


def _uninstalled(world: World, after: float) -> bool:
    values, began = world.values, world.now()
    world.promise(switched_off(values))
    if not _hooks(world, [each for each in ("ingressDaemonSet", "elasticity") if is_on(values, each)]):
        world.promise(values)
        return False
    # A leader counts from when it first saw that a pod lives on: one that has just begun has given nothing back.
    since = world.now() - timedelta(seconds=GIVEN_BACK)
    if world.outside.disturbances.within(GIVEN_BACK, world.kernel.now, NO_LEADER):
        since = datetime.min.replace(tzinfo=UTC)
    world.remove_release()
    world.kernel.sleep(after)
    if left := held(world, began, since):
        world.outside.judge.find(LEFT, world.kernel.now, ", ".join(left))
    return True


def held(world: World, began: datetime, given_back: datetime) -> list[str]:
    """What would wait for us for ever. What a person creates after Helm *began* is theirs to free: documented.

    Deletions that were asked for and refused before *given_back* have been seen to be so.
    """
    resources = world.api.peek(INGRESS_DAEMONSETS)
    keys = {key for each in resources if (key := detach_key(each))}
    later = {each["metadata"]["uid"] for each in resources if _created(each) >= began}
    found = [f"gate of {name(each)}" for each in world.api.peek(PODS) if is_gated(each)]
    found += [
        f"{name(each)} is detached"
        for each in world.api.peek(NODES)
        if (keys & notes(each).keys() or is_excluded_by_us(each))
        and not set() < holders_of(each).keys() <= later
    ]
    found += [
        f"finalizer of {name(each)}"
        for each in resources
        if FINALIZER in (each["metadata"].get("finalizers") or ()) and each["metadata"]["uid"] not in later
    ]
    living = {each["metadata"]["uid"] for each in world.api.peek(PODS) if not is_terminating(each)}
    assigned = {key_of(canonical(address) or "", at.pod) for address, at in world.calico.held.items()}
    segments = (msgspec.convert(raw, IPReservation) for kind in RESERVATIONS for raw in world.api.peek(kind))
    # A person deletes those of pods that are gone, one of which may have come back in its place, and those of pods
    # whose deletion had just been refused: documented.
    reserved = {
        record.key
        for each in segments
        for record in each.records
        if record.uid in living and (record.reason == STANDING or record.last_asked <= given_back)
    }
    return found + [f"{key} is reserved" for key in sorted(reserved & assigned)]


def _created(raw: Raw) -> datetime:
    return datetime.fromisoformat(raw["metadata"]["creationTimestamp"])


def excuse_bundles(world: World) -> None:
    """A webhook that another client has written has no CA bundle until a leader has injected it."""

    def note() -> None:
        for _ in range(round(INJECTED / OFTEN)):
            world.kernel.sleep(OFTEN)
            world.outside.disturb("certificates")

    world.outside.disturb("certificates")
    world.kernel.spawn(note, "excuse of bundles", world.kernel.system)


def install_again(world: World, values: Raw) -> None:
    alone(world, lambda: _installed(world, values))


def _installed(world: World, values: Raw) -> bool:
    world.install(values)
    world.start_release()
    world.kernel.sleep(READY)
    world.promise(values)
    return True


def _hooks(world: World, leaving: Sequence[str]) -> bool:
    """Each is tried again by the person whose Helm failed."""
    jobs: Mapping[str, Callable[[], str]] = {
        "ingressDaemonSet": lambda: attach_nodes.attach_all(
            _client(world, "drawbridge-attach"), attach_nodes.Patience()
        ),
        "elasticity": lambda: open_gates.open_all(
            _client(world, "drawbridge-gates"), world.full_name, open_gates.Patience()
        ),
    }
    for each in leaving:
        for _ in range(ATTEMPTS):
            left = jobs[each]()
            world.note("helm", f"hook of {each}: {left or 'done'}")
            if each == "ingressDaemonSet":
                world.suspended_until = world.kernel.now + attach_nodes.HOLD.total_seconds()
            if not left:
                break
            world.kernel.sleep(RETRY)
        else:
            if world.network.is_calm:
                world.outside.judge.find(HOOKS_END, world.kernel.now, left)
            return False
    return True


def _client(world: World, account: str) -> Client:
    return Client(world.network.connection(account, "hook"))


def alone(world: World, work: Callable[[], bool]) -> bool:
    """What *work* says; False when Helm is at work already."""
    if HELM in world.at_work:
        return False
    world.at_work.add(HELM)
    try:
        return work()
    finally:
        world.at_work.remove(HELM)


def pod_templates(values: Raw) -> Mapping[str, Raw]:
    """Of our Deployments, by component: a changed one replaces the pods."""
    label = "app.kubernetes.io/component"
    return {
        each["metadata"]["labels"][label]: each["spec"]["template"]
        for each in rendered_of(values)
        if each["kind"] == "Deployment" and label in each["metadata"]["labels"]
    }


SECTIONS = ("ipReservation", "anycastIP", "elasticity", "ingressDaemonSet")


def switched_off(values: Raw) -> Raw:
    off = values | {each: values[each] | {"enabled": False} for each in SECTIONS}
    return off | {"certs": {"mode": "files"}}


def is_on(values: Raw, section: str) -> bool:
    return bool(values[section]["enabled"])


def _in_both(before: Raw, after: Raw) -> Raw:
    """The settings of *after*; features that are only there do not promise anything yet."""
    return after | {
        each: after[each] | {"enabled": is_on(before, each) and is_on(after, each)} for each in SECTIONS
    }
