"""Addresses, instances, tasks and recorded calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from dev.lab.cloud.request import Params

Status = Literal["CREATING", "BINDING", "BIND", "BIND_ENI", "UNBINDING", "UNBIND", "OFFLINING"]
Kind = Literal["allocate", "bind", "unbind", "release", "bandwidth"]
Result = Literal["RUNNING", "SUCCESS", "FAILED"]
Tags = Mapping[str, str]

HOLDING = {"BINDING", "BIND", "BIND_ENI", "UNBINDING"}
"""States in which an address is bound, being bound or being unbound."""
BOUND = {"BIND", "BIND_ENI"}
WAN_IP = "WanIP"


class Address(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    ip: str
    region: str
    created: float
    type: str = "EIP"
    status: Status = "UNBIND"
    name: str = ""
    tags: Tags = {}
    instance_id: str = ""
    """Of its binding; of the last one when the address is not bound."""
    network_interface_id: str = ""
    bandwidth: int = 1
    charge_type: str = "TRAFFIC_POSTPAID_BY_HOUR"
    bandwidth_package: str = ""
    blocked: bool = False
    arrears: bool = False


class Instance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    state: str = "RUNNING"


class Task(msgspec.Struct, kw_only=True):
    id: int
    kind: Kind
    addresses: Sequence[str]
    due: float
    result: Result = "RUNNING"
    fails: bool = False


class Answered(msgspec.Struct, frozen=True):
    """The first answer to a ClientToken."""

    params: Params
    response: Mapping[str, Any]
    at: float


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target of a load balancer's listener, or of one of its rules, the *location*."""

    listener: str
    location: str = ""
    instance: str = ""
    """Empty for a target that is only an address."""
    address: str = ""
    port: int
    weight: int = 10
    healthy: bool = True

    @property
    def key(self) -> str:
        return f"{self.listener}/{self.location}/{self.instance or self.address}:{self.port}"


class Weighing(msgspec.Struct, frozen=True, kw_only=True):
    """A task that gives targets of load balancer *name* their weights."""

    name: str
    targets: Sequence[Target]
    due: float


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Temporary credentials."""

    secret_key: str
    token: str
    expires: float


class Call(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    action: str
    region: str
    outcome: str
    """``OK``, or the code of the error."""
    delivered: bool
    """Whether the caller got the outcome."""
    params: Any
