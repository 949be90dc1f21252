"""AssociateAddress and DisassociateAddress: at most one address on each instance."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from dev.lab.cloud.action import Action
from dev.lab.cloud.addresses import idle, refused, started
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.faults import hits
from dev.lab.cloud.request import Params
from dev.lab.cloud.values import BOUND, HOLDING, WAN_IP, Address, Instance
from dev.lab.cloud.world import World

INSTANCE_ID = re.compile(r"(ins|eks|lb)-[0-9a-z]+")


class AssociateAddress(Params, frozen=True):
    """Its parameters that are not here, of network interfaces, are not emulated."""

    address_id: str
    instance_id: str


class DisassociateAddress(Params, frozen=True):
    address_id: str


def associate(world: World, params: AssociateAddress, region: str) -> dict[str, Any]:
    address = idle(world, params.address_id, region)
    if address.status != "UNBIND":
        raise refused("UnsupportedOperation.AddressStatusNotPermit", address, "be bound")
    _check_in_order(address)
    target = _target(world, params, region)
    bound = replace(address, instance_id=target.id)
    fails = hits(world.dice, world.knobs.bind_fails)
    return started(world.begin("bind", [bound], world.knobs.bind_seconds, fails=fails))


def _check_in_order(address: Address) -> None:
    if address.blocked:
        raise Fault("InvalidAddressId.Blocked", f"The address {address.id} is blocked.")
    if address.arrears:
        raise Fault("OperationDenied.AddressInArrears", f"The address {address.id} is in arrears.")


def _target(world: World, params: AssociateAddress, region: str) -> Instance:
    if not INSTANCE_ID.fullmatch(params.instance_id):
        raise Fault(
            "InvalidParameterValue.InstanceIdMalformed",
            f"`{params.instance_id}` is no instance id; it must look like ins-11112222.",
        )
    instance = world.instance(params.instance_id)
    if instance is None:
        raise Fault("InvalidInstanceId.NotFound", f"There is no instance {params.instance_id} in {region}.")
    _check_state(instance)
    _check_free(world, instance)
    return instance


def _check_state(instance: Instance) -> None:
    if instance.state not in {"RUNNING", "STOPPED", "STARTING", "STOPPING", "REBOOTING"}:
        raise Fault(
            "UnsupportedOperation.InstanceStateNotSupported",
            f"The state of {instance.id} is {instance.state}; no address can be bound to it.",
        )


def _check_free(world: World, instance: Instance) -> None:
    counted = HOLDING if world.knobs.already_bound_while_binding else HOLDING - {"BINDING"}
    for other in world.history.all():
        if other.instance_id != instance.id or other.status not in counted:
            continue
        if other.type == WAN_IP:
            raise Fault(
                "InvalidParameterValue.InstanceHasWanIP",
                f"{instance.id} has the ordinary public address {other.ip}; give that back first.",
            )
        raise Fault("InvalidInstanceId.AlreadyBindEip", f"{instance.id} has {other.id} already.")


def disassociate(world: World, params: DisassociateAddress, region: str) -> dict[str, Any]:
    address = idle(world, params.address_id, region)
    if address.status not in BOUND:
        raise refused("InvalidAddressIdStatus.NotPermit", address, "be unbound")
    return started(world.begin("unbind", [address], world.knobs.unbind_seconds))


ACTIONS = {
    "AssociateAddress": Action(AssociateAddress, associate, 10),
    "DisassociateAddress": Action(DisassociateAddress, disassociate, 10),
}
