"""What an answer of the cloud says: the fields that were asked for, or an error, and never nothing.

Its Content-Type is ignored. The SDK's own decoder overlooks errors, and takes them for a success without
any field, unless the type is exactly application/json.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from cloud.errors import Throttled, Unavailable, kind_of
from cloud.types import ADDRESS_TYPES, Address, Terms

T = TypeVar("T")
_SPELLINGS: dict[str, str] = {spelling.lower(): spelling for spelling in ADDRESS_TYPES}


class Pascal(msgspec.Struct, rename="pascal"):
    """Fields that the cloud spells in PascalCase; an answer without one that has no default is no success."""


class Done(Pascal):
    """Nothing more than that it was accepted."""


class Allocation(Pascal):
    address_set: Annotated[list[str], msgspec.Meta(min_length=1, max_length=1)]


class QuotaRow(Pascal):
    """How much of it is in use in the region, for example of TOTAL_EIP_QUOTA, and how much there may be."""

    quota_id: str
    quota_current: int
    quota_limit: int


class Quotas(Pascal):
    quota_set: list[QuotaRow]


class TagRow(Pascal):
    key: str
    value: str


class AddressRow(Pascal):
    address_id: str
    address_status: str
    address_type: str | None = None
    address_ip: str | None = None
    instance_id: str | None = None
    network_interface_id: str | None = None
    address_name: str | None = None
    tag_set: list[TagRow] | None = None
    is_blocked: bool | None = None
    is_arrears: bool | None = None
    bandwidth: int | None = None
    internet_charge_type: str | None = None
    bandwidth_package_id: str | None = None

    def value(self) -> Address:
        kind = self.address_type or "EIP"
        return Address(
            id=self.address_id,
            status=self.address_status.upper(),
            # The documents spell one of the types in two ways.
            type=_SPELLINGS.get(kind.lower(), kind),
            ip=self.address_ip or "",
            instance_id=self.instance_id or "",
            network_interface_id=self.network_interface_id or "",
            name=self.address_name or "",
            tags={tag.key: tag.value for tag in self.tag_set or ()},
            blocked=bool(self.is_blocked),
            arrears=bool(self.is_arrears),
            terms=Terms(
                self.bandwidth or 0, self.internet_charge_type or "", self.bandwidth_package_id or ""
            ),
        )


class Addresses(Pascal):
    address_set: list[AddressRow]
    total_count: int


class InstanceRow(Pascal):
    instance_id: str
    instance_state: str | None = None


class Instances(Pascal):
    instance_set: list[InstanceRow]


class TargetRow(Pascal):
    """A target, or its health."""

    port: int
    type: str | None = None
    weight: int | None = None
    instance_id: str | None = None
    private_ip_addresses: list[str] | None = None
    ip: str | None = msgspec.field(default=None, name="IP")
    target_id: str | None = None
    health_status: bool | None = None
    health_status_detail: str | None = None


class RuleRow(Pascal):
    location_id: str | None = None
    targets: list[TargetRow] | None = None


class ListenerRow(Pascal):
    """A listener of layer 7 has rules, one of layer 4 has targets itself, and one rule for their health.

    That has an id, too, which stands nowhere else.
    """

    listener_id: str
    protocol: str | None = None
    targets: list[TargetRow] | None = None
    rules: list[RuleRow] | None = None


class Listeners(Pascal):
    listeners: list[ListenerRow] | None


class LoadBalancerRow(Pascal):
    load_balancer_id: str
    listeners: list[ListenerRow] | None = None


class TargetHealth(Pascal):
    load_balancers: list[LoadBalancerRow] | None


class _Envelope(Pascal):
    response: msgspec.Raw


class _Problem(Pascal):
    code: str
    message: str = ""


class _Outcome(Pascal):
    request_id: str
    error: _Problem | None = None


# msgspec completes a type at its first use, and two threads that are at it together crash it.
for _each in Pascal.__subclasses__():
    msgspec.json.Decoder(_each)
_ENVELOPES = msgspec.json.Decoder(_Envelope)
_OUTCOMES = msgspec.json.Decoder(_Outcome)


def decoded(content: bytes, status: int, type: type[T], action: str) -> T:  # noqa: A002 (reads best)
    """What the answer brings; the error it contains; or Unavailable when it is not an answer of the cloud."""
    try:
        response = _ENVELOPES.decode(content).response
        outcome = _OUTCOMES.decode(response)
        if problem := outcome.error:
            kind = kind_of(problem.code)
            raise kind(problem.code, problem.message, action=action, request_id=outcome.request_id)
        return msgspec.json.decode(response, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # What looks like JSON is not quoted: it may hold the credentials that someone asked for.
        is_json = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in b"{["
        found = str(error) if is_json else content[:200].decode(errors="replace")
        text = f"this is no answer of the cloud's: {found!r}"
        raise (Throttled if status == 429 else Unavailable)(f"HTTP{status}", text, action=action) from error
