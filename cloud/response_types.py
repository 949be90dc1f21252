"""The fields of answers that we need, as the cloud spells them, and what they are as our values.

Fields without a default are required: an answer without them is no success.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from cloud.types import ADDRESS_TYPES, Address, Instance, Quota


class Pascal(msgspec.Struct, rename="pascal"):
    """Fields that the cloud spells in PascalCase."""


class Done(Pascal):
    """Nothing more than that it was accepted."""


class Allocation(Pascal):
    address_set: Annotated[list[str], msgspec.Meta(min_length=1, max_length=1)]


class QuotaRow(Pascal):
    quota_id: str
    quota_current: int
    quota_limit: int

    def value(self) -> Quota:
        return Quota(self.quota_id, self.quota_current, self.quota_limit)


class Quotas(Pascal):
    quota_set: list[QuotaRow]


class TagRow(Pascal):
    key: str
    value: str


_SPELLINGS: dict[str, str] = {spelling.lower(): spelling for spelling in ADDRESS_TYPES}


class AddressRow(Pascal):
    address_id: str
    address_status: str
    address_type: str | None = None
    address_ip: str | None = None
    instance_id: str | None = None
    network_interface_id: str | None = None
    private_address_ip: str | None = None
    address_name: str | None = None
    tag_set: list[TagRow] | None = None
    bandwidth: int | None = None
    is_blocked: bool | None = None
    is_arrears: bool | None = None
    created_time: str | None = None

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
            private_ip=self.private_address_ip or "",
            name=self.address_name or "",
            tags={tag.key: tag.value for tag in self.tag_set or ()},
            bandwidth=self.bandwidth,
            blocked=bool(self.is_blocked),
            arrears=bool(self.is_arrears),
            created=self.created_time or "",
        )


class Addresses(Pascal):
    address_set: list[AddressRow]
    total_count: int


class InstanceRow(Pascal):
    instance_id: str
    instance_state: str

    def value(self) -> Instance:
        return Instance(id=self.instance_id, state=self.instance_state.upper())


class Instances(Pascal):
    instance_set: list[InstanceRow]
    total_count: int


# msgspec completes a type at its first use, and two threads that are at it together crash it.
for _each in Pascal.__subclasses__():
    msgspec.json.Decoder(_each)
