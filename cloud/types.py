"""Addresses, orders, backends and keys as values, under the names that we use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import msgspec

AddressType = Literal["WanIP", "EIP", "AnycastEIP", "HighQualityEIP", "AntiDDoSEIP", "ResidentialEIP"]
ADDRESS_TYPES: tuple[AddressType, ...] = get_args(AddressType)
ELASTIC: tuple[AddressType, ...] = ("EIP", "AnycastEIP", "HighQualityEIP")
"""Those that can be allocated and bound."""
Tag = tuple[str, str]
"""A key and one of its values: what the cloud counts, and what must exist before anything can carry it."""

BINDING, BIND, BIND_ENI = "BINDING", "BIND", "BIND_ENI"
UNBINDING, UNBIND = "UNBINDING", "UNBIND"


class Terms(msgspec.Struct, frozen=True):
    """*bandwidth* is in Mbps; 0 and "" are where the cloud does not say, or is to choose."""

    bandwidth: int = 0
    charge_type: str = ""
    bandwidth_package: str = ""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Trust *status* and *instance_id* together: an instance id alone may be a leftover, or too early."""

    id: str
    status: str
    type: str = "EIP"
    ip: str = ""
    instance_id: str = ""
    network_interface_id: str = ""
    name: str = ""
    tags: Mapping[str, str] = {}
    blocked: bool = False
    arrears: bool = False
    terms: Terms = Terms()


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One address to allocate; the same *token* never brings a second one."""

    token: str
    type: AddressType
    name: str
    tags: Mapping[str, str] = {}
    terms: Terms = Terms()
    zone: str = ""

    def __post_init__(self) -> None:
        if not (self.token.isascii() and 0 < len(self.token) <= 64):
            raise ValueError(
                f"token: {self.token!r} must be 1 to 64 ASCII characters for the cloud to keep it"
            )


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """A target of a listener, or of one of its rules, the *location*; without an *instance*, it is an address."""

    listener: str
    location: str = ""
    instance: str = ""
    address: str = ""
    port: int
    weight: int

    @property
    def key(self) -> str:
        """The same for as long as the target is registered."""
        return backend_key(self.listener, self.location, self.instance or self.address, self.port)


def backend_key(listener: str, location: str, target: str, port: int) -> str:
    return f"{listener}/{location}/{target}:{port}"


@dataclass(frozen=True)
class Keys:
    """What calls are signed with; *token* belongs to keys that *end*, in Unix time."""

    secret_id: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    end: float = math.inf
