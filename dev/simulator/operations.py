"""What people, machines and chance do to a cluster: each is one function of the world and of dice of its own.

An operation that finds nothing to do does nothing. It goes the ways that its actor has: kubectl's requests pass
admission, machines write status, and a kill needs no permission.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from api.anycast_ip import COPY, NODE_ADDRESS
from api.ingress_daemonset import INGRESS_DAEMONSETS
from api.ip_reservation import RESERVE, RESERVE_FINISHED
from cli.installation import CONFIGURATIONS
from dev.judge.edge import EXCLUDED
from dev.simulator import helm, objects
from dev.simulator.models.cloud import CHANGES, QUOTA, RULES
from dev.simulator.models.cluster import JOBS
from dev.simulator.outside import SECRETS
from dev.simulator.world import NAMESPACE, World
from kube.errors import KubeError
from kube.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS, STATEFUL_SETS
from settings.anycast_ip import NEED_LABEL

Raw = dict[str, Any]
Act = Callable[[World, Random], str]
"""What was done, for the history; nothing when there was nothing to do."""


@dataclass(frozen=True)
class Kind:
    """*weight* is how often it is drawn among those of the features that are on."""

    name: str
    act: Act
    weight: int = 1


TABLE: dict[str, list[Kind]] = {}
LATER: dict[str, list[Kind]] = {}
"""Kinds that came later: drawn by other dice, so that a seed keeps what it had."""


def operation(feature: str, weight: int = 1, table: dict[str, list[Kind]] = TABLE) -> Callable[[Act], Act]:
    def note(act: Act) -> Act:
        table.setdefault(feature, []).append(Kind(act.__name__.replace("_", " "), act, weight))
        return act

    return note


# Machines and chance.


@operation("platform", 2)
def kill_the_leader(world: World, dice: Random) -> str:
    holder = world.leader()
    replica = next((each for each in world.product.controllers if holder.startswith(f"{each.name}_")), None)
    if replica is None:
        return ""
    world.product.kill(replica)
    return replica.name


@operation("platform")
def kill_a_webhook_server(world: World, dice: Random) -> str:
    if not world.product.servers:
        return ""
    replica = dice.choice(world.product.servers)
    world.product.restart_server(replica)
    return replica.name


@operation("platform")
def no_webhook_server_answers(world: World, dice: Random) -> str:
    """For a moment."""
    for each in world.product.servers:
        world.product.restart_server(each)
    return ", ".join(each.name for each in world.product.servers)


@operation("platform")
def forget_history(world: World, dice: Random) -> str:
    world.api.compact()
    return "watches from older versions answer 410"


@operation("platform")
def cut_off_a_replica(world: World, dice: Random) -> str:
    if not world.product.controllers:
        return ""
    replica, length = dice.choice(world.product.controllers), dice.uniform(2, 40)
    world.network.cut(replica.name, world.kernel.now + length)
    return f"{replica.name} for {length:.0f} s"


@operation("platform")
def slow_requests(world: World, dice: Random) -> str:
    length, most = dice.uniform(5, 60), dice.uniform(0.1, 2.0)
    world.network.slow(world.kernel.now + length, most)
    return f"up to {most:.1f} s each for {length:.0f} s"


@operation("platform", 2)
def lose_requests(world: World, dice: Random) -> str:
    length, share = dice.uniform(5, 60), dice.uniform(0.05, 0.4)
    world.network.lose(world.kernel.now + length, share)
    return f"{share:.0%} for {length:.0f} s"


@operation("platform", table=LATER)
def delay_writes(world: World, dice: Random) -> str:
    length, share, latest = dice.uniform(5, 60), dice.uniform(0.05, 0.4), dice.uniform(0, 30)
    world.network.delay(world.kernel.now + length, share, latest)
    return f"{share:.0%} for {length:.0f} s, up to {latest:.0f} s after their time"


# ip_reservation.


@operation("ip_reservation", 3)
def delete_a_pod(world: World, dice: Random) -> str:
    pod = world.some(PODS, dice, lambda raw: raw["metadata"].get("namespace") == objects.SHOP)
    if pod is None:
        return ""
    interfere(world, pod)
    return world.kubectl_delete(PODS, pod)


@operation("ip_reservation", 2)
def evict_a_pod(world: World, dice: Random) -> str:
    pod = world.some(PODS, dice, lambda raw: raw["metadata"].get("namespace") == objects.SHOP)
    if pod is None:
        return ""
    metadata = pod["metadata"]
    interfere(world, pod)
    try:
        world.kubectl.evict(metadata["name"], metadata["namespace"], preconditions={})
    except KubeError as error:
        world.outside.disturb(f"eviction on {pod['spec'].get('nodeName')}")
        return f"{metadata['name']}: {error}"
    return str(metadata["name"])


@operation("ip_reservation")
def scale_the_stateful_set(world: World, dice: Random) -> str:
    return world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": dice.randint(0, 5)}})


@operation("ip_reservation")
def opt_a_pod_out_or_in(world: World, dice: Random) -> str:
    pod = world.some(PODS, dice, lambda raw: raw["metadata"]["name"].startswith("redis-"))
    choice = dice.choice(("true", "false", None))
    return (
        world.patch(PODS, pod["metadata"]["name"], {"metadata": {"annotations": {RESERVE: choice}}})
        if pod
        else ""
    )


@operation("ip_reservation")
def start_short_lived_pods(world: World, dice: Random) -> str:
    return world.kubectl_create(
        JOBS, objects.short_lived(f"short-{dice.randint(1, 999)}", dice.randint(1, 3))
    )


@operation("ip_reservation", table=LATER)
def start_a_pod_without_a_controller(world: World, dice: Random) -> str:
    """Which stays where it is until its end."""
    return world.kubectl_create(PODS, objects.alone(f"alone-{dice.randint(1, 999)}"))


@operation("ip_reservation")
def reserve_finished_pods_or_not(world: World, dice: Random) -> str:
    choice = {RESERVE_FINISHED: dice.choice(("true", "true", None))}
    return world.patch(NAMESPACES, objects.SHOP, {"metadata": {"annotations": choice}})


@operation("ip_reservation")
def create_the_webhook_configuration_again(world: World, dice: Random) -> str:
    """As `kubectl replace --force`: what others wrote into it is gone, and so is what it owned.

    While no leader works, reservations of pods that just went would be lost: documented.
    """
    name = world.full_name
    found = world.api.find(CONFIGURATIONS["ValidatingWebhookConfiguration"], name)
    if found is None or not (world.outside.has_leader and world.network.is_calm):
        return ""
    world.outside.disturb("webhook configuration")
    world.api.remove(CONFIGURATIONS["ValidatingWebhookConfiguration"], name)
    helm.excuse_bundles(world)
    world.install(world.values)
    return name


# certificates.


@operation("certificates")
def delete_the_serving_certificate(world: World, dice: Random) -> str:
    secret = world.api.find(SECRETS, f"{world.full_name}-webhook-tls", NAMESPACE)
    return world.kubectl_delete(SECRETS, secret) if secret else ""


@operation("certificates")
def empty_the_ca_bundles(world: World, dice: Random) -> str:
    """As a manifest does that is applied, and has none."""
    return empty_bundles(world, dice.choice(sorted(CONFIGURATIONS)))


def empty_bundles(world: World, kind: str) -> str:
    configuration = world.api.find(CONFIGURATIONS[kind], world.full_name)
    if configuration is None:
        return ""
    for each in configuration.get("webhooks") or ():
        each["clientConfig"].pop("caBundle", None)
    helm.excuse_bundles(world)
    world.kubectl.replace(CONFIGURATIONS[kind], world.full_name, configuration)
    return kind


# anycast_ip.


@operation("anycast_ip", 2)
def label_a_node(world: World, dice: Random) -> str:
    node = world.some(NODES, dice, is_home)
    return world.patch(NODES, node["metadata"]["name"], labels({NEED_LABEL: "true"})) if node else ""


@operation("anycast_ip")
def unlabel_a_node(world: World, dice: Random) -> str:
    node = world.some(NODES, dice, lambda raw: NEED_LABEL in raw["metadata"].get("labels", {}))
    return world.patch(NODES, node["metadata"]["name"], labels({NEED_LABEL: None})) if node else ""


@operation("anycast_ip", 2)
def pods_want_the_address_of_their_node(world: World, dice: Random) -> str:
    """Or do not want it any more."""
    found = world.api.get(NAMESPACES, objects.SHOP)["metadata"].get("labels", {})
    return world.patch(
        NAMESPACES, objects.SHOP, labels({NODE_ADDRESS: None if NODE_ADDRESS in found else COPY})
    )


@operation("anycast_ip")
def register_a_machine_again(world: World, dice: Random) -> str:
    """Under a second name: its first Node stays."""
    off = world.kubernetes.kubelets.off
    node = world.some(NODES, dice, lambda raw: is_home(raw) and "-again" not in raw["metadata"]["name"])
    if node is None or node["metadata"]["name"] in off:
        return ""
    name = f"{node['metadata']['name']}-again"
    instance = node["metadata"]["labels"][objects.INSTANCE_LABEL]
    number = int(node["status"]["addresses"][0]["address"].rpartition(".")[2])
    return world.kubectl_create(NODES, objects.node(name, number, {NEED_LABEL: "true"}, instance=instance))


@operation("anycast_ip")
def a_node_leaves(world: World, dice: Random) -> str:
    """As when its pool is scaled in."""
    node = world.some(NODES, dice, is_home)
    if node is None or len([each for each in world.api.list(NODES) if is_home(each)]) < 3:
        return ""
    world.end_machine(node["metadata"]["name"])
    return world.kubectl_delete(NODES, node)


@operation("anycast_ip")
def a_node_joins(world: World, dice: Random) -> str:
    number = world.next_number()
    marks = {NEED_LABEL: dice.choice(["true", ""]), objects.INGRESS_LABEL: dice.choice(["true", ""])}
    return world.kubectl_create(NODES, objects.node(f"node-{number}", number, marks))


@operation("anycast_ip")
def keys_of_another_account(world: World, dice: Random) -> str:
    length = dice.uniform(5, 90)
    world.outside.disturb("account")
    world.cloud.use_keys_of_the_other_account(world.kernel.now + length)
    return f"for {length:.0f} s"


@operation("anycast_ip")
def the_cloud_is_away(world: World, dice: Random) -> str:
    length = dice.uniform(5, 90)
    world.cloud.go_away(world.kernel.now + length)
    return f"for {length:.0f} s"


@operation("anycast_ip", 2)
def the_cloud_is_in_trouble(world: World, dice: Random) -> str:
    """Until the end: each kind of trouble on its own share of the calls."""
    kind = dice.choice(["throttled", "internal_errors", "lost", "slow", "bind_fails"])
    share = dice.uniform(0.05, 0.5)
    setattr(world.cloud.knobs, kind, share)
    return f"{kind}: {share:.0%}"


@operation("anycast_ip", 2)
def it_follows_another_rule(world: World, dice: Random) -> str:
    """Of those that are not documented; until the end of all."""
    rule = dice.choice(RULES)
    setattr(world.cloud.knobs, rule, not getattr(world.cloud.knobs, rule))
    return rule


@operation("anycast_ip")
def the_quota_is_used_up(world: World, dice: Random) -> str:
    length, knobs = dice.uniform(5, 90), world.cloud.knobs
    knobs.quota_total = 0
    world.kernel.spawn(
        lambda: setattr(knobs, "quota_total", QUOTA), "quota", world.kernel.system, after=length
    )
    return f"for {length:.0f} s"


@operation("anycast_ip")
def take_a_taint_off(world: World, dice: Random) -> str:
    """A person opens a node by hand."""
    node = world.some(NODES, dice, lambda raw: NEED_LABEL in raw["metadata"].get("labels", {}))
    if node is None:
        return ""
    name = node["metadata"]["name"]
    world.outside.disturb(name)
    return world.patch(NODES, name, {"spec": {"taints": None}})


@operation("anycast_ip")
def its_changes_are_late(world: World, dice: Random) -> str:
    """Until the end, some are carried out when the client has given up, perhaps after another one leads."""
    share, latest = dice.uniform(0.05, 0.5), dice.uniform(0, 20)
    world.cloud.delay_changes(share, latest)
    return f"{share:.0%} up to {latest:.0f} s after the time-out"


@operation("anycast_ip")
def its_indexes_lag(world: World, dice: Random) -> str:
    lag = dice.uniform(1, 30)
    world.cloud.knobs.tag_lag_seconds = world.cloud.knobs.filter_lag_seconds = lag
    return f"{lag:.0f} s"


@operation("anycast_ip")
def an_action_is_denied(world: World, dice: Random) -> str:
    action = dice.choice(sorted(CHANGES - {"BatchModifyTargetWeight"}))
    length = dice.uniform(5, 90)
    world.cloud.knobs.denied = [action]
    world.kernel.spawn(world.cloud.knobs.denied.clear, "policy", world.kernel.system, after=length)
    return f"{action} for {length:.0f} s"


@operation("anycast_ip")
def a_person_unbinds_an_address(world: World, dice: Random) -> str:
    bound = [each for each in world.cloud.addresses if each.status == "BIND"]
    if not bound:
        return ""
    address = dice.choice(bound)
    world.outside.disturb(address.id, address.instance_id)
    world.cloud.account.alter(address.id, status="UNBIND")
    return f"{address.id} of {address.instance_id}"


@operation("anycast_ip")
def an_address_is_blocked(world: World, dice: Random) -> str:
    """For a while, as in an attack or in arrears."""
    if not world.cloud.addresses:
        return ""
    address, length = dice.choice(world.cloud.addresses), dice.uniform(5, 60)
    why = dice.choice(["blocked", "arrears"])

    def turn(value: bool) -> None:
        world.outside.disturb(address.id, address.instance_id)
        with suppress(KeyError):  # it was released meanwhile
            world.cloud.account.alter(address.id, **{why: value})

    turn(True)
    world.kernel.spawn(lambda: turn(False), "unblocking", world.kernel.system, after=length)
    return f"{address.id} for {length:.0f} s ({why})"


# elasticity.


@operation("elasticity", 3)
def scale_the_deployment(world: World, dice: Random) -> str:
    return world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": dice.randint(0, 8)}})


@operation("elasticity", 2)
def roll_the_deployment(world: World, dice: Random) -> str:
    containers = [{"name": "main", "image": f"web:{dice.randint(2, 99)}"}]
    return world.patch_template(DEPLOYMENTS, "web", containers)


@operation("elasticity")
def start_a_job(world: World, dice: Random) -> str:
    number = dice.randint(1, 999)
    return world.kubectl_create(
        JOBS, objects.job(f"job-{number}", dice.randint(1, 4), local=dice.randint(0, 2))
    )


@operation("elasticity", 3)
def start_another_workload(world: World, dice: Random) -> str:
    return world.kubectl_create(*dice.choice(objects.shapes()))


@operation("elasticity")
def change_the_local_replicas(world: World, dice: Random) -> str:
    change = {"metadata": {"annotations": {"LOCAL_REPLICAS": str(dice.randint(0, 4))}}}
    return world.patch(DEPLOYMENTS, "web", {"spec": {"template": change}})


@operation("elasticity")
def cordon_a_node(world: World, dice: Random) -> str:
    node = world.some(NODES, dice, is_home)
    if node is None:
        return ""
    is_cordoned = node["spec"].get("unschedulable", False)
    return world.patch(NODES, node["metadata"]["name"], {"spec": {"unschedulable": not is_cordoned}})


# ingress_daemonset.


@operation("ingress_daemonset", 3)
def change_the_template(world: World, dice: Random) -> str:
    image = dice.choice(["proxy", "proxy", "crashing", "never-ready"])
    spec = {"containers": [{"name": "main", "image": f"{image}:{dice.randint(2, 99)}"}]}
    return world.patch(INGRESS_DAEMONSETS, "edge", {"spec": {"template": {"spec": spec}}})


@operation("ingress_daemonset", 2)
def change_the_number_of_pods(world: World, dice: Random) -> str:
    return world.patch(INGRESS_DAEMONSETS, "edge", {"spec": {"podsPerNode": dice.randint(1, 3)}})


@operation("ingress_daemonset")
def pause_or_resume(world: World, dice: Random) -> str:
    return world.patch(INGRESS_DAEMONSETS, "edge", {"spec": {"paused": dice.random() < 0.4}})


@operation("ingress_daemonset")
def label_for_the_edge(world: World, dice: Random) -> str:
    node = world.some(NODES, dice, is_home)
    if node is None:
        return ""
    marked = objects.INGRESS_LABEL in node["metadata"].get("labels", {})
    change = labels({objects.INGRESS_LABEL: None if marked else "true"})
    return world.patch(NODES, node["metadata"]["name"], change)


@operation("ingress_daemonset")
def detach_by_the_label(world: World, dice: Random) -> str:
    """Or no more."""
    change = {"labelNodeToDetach": dice.random() < 0.7, "confirmTimeoutSeconds": dice.choice([5, 20, 60])}
    rolling = {"updateStrategy": {"rollingUpdate": change}}
    return world.patch(INGRESS_DAEMONSETS, "edge", {"spec": rolling})


@operation("ingress_daemonset")
def exclude_a_node(world: World, dice: Random) -> str:
    """From load balancers; or its label goes, ours or a person's. A while later a person removes it."""
    node, length = world.some(NODES, dice, is_home), dice.uniform(5, 120)
    if node is None:
        return ""
    name = node["metadata"]["name"]

    def label(value: str | None) -> str:
        world.outside.disturb(name)
        return world.patch(NODES, name, labels({EXCLUDED: value}))

    world.kernel.spawn(lambda: label(None), f"return of {name}", world.kernel.system, after=length)
    return label(dice.choice(["", "true", None]))


@operation("ingress_daemonset")
def forbid_deployments(world: World, dice: Random) -> str:
    """A policy of others refuses what we write, for a while."""
    length = dice.uniform(5, 90)
    world.refuse(DEPLOYMENTS, "drawbridge-controllers", world.kernel.now + length)
    return f"for {length:.0f} s"


def interfere(world: World, pod: Raw) -> None:
    """With its node: of the pod itself, admission is asked."""
    world.outside.disturb(pod["spec"].get("nodeName", ""))


def is_home(raw: Raw) -> bool:
    """Whether it is a Node of a machine."""
    return objects.SUPER_LABEL not in raw["metadata"].get("labels", {})


def labels(change: Raw) -> Raw:
    return {"metadata": {"labels": change}}
