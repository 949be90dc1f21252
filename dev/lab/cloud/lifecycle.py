"""The states of an address: CREATING, UNBIND, BINDING, BIND or BIND_ENI, UNBINDING, OFFLINING, gone."""

from __future__ import annotations

from msgspec.structs import replace

from dev.lab.cloud.values import Address, Kind, Status


def begun(kind: Kind, address: Address) -> Address:
    """As the address is while the task runs."""
    states: dict[Kind, Status] = {
        "allocate": "CREATING",
        "bind": "BINDING",
        "unbind": "UNBINDING",
        "release": "OFFLINING",
    }
    return replace(address, status=states.get(kind, address.status))


def ended(kind: Kind, address: Address, well: bool) -> Address | None:
    """As it is when the task has ended, well or not; None when it is gone."""
    if kind == "bandwidth":
        return address
    if kind == "release":
        return None
    if kind == "bind" and well:
        return replace(address, status="BIND_ENI" if _on_a_bare_interface(address) else "BIND")
    return replace(address, status="UNBIND")


def _on_a_bare_interface(address: Address) -> bool:
    return bool(address.network_interface_id) and not address.instance_id
