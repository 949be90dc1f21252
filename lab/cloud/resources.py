"""Names of resources in the six segments that the Tag API uses."""

from __future__ import annotations

import re

from lab.cloud.envelope import Fault
from lab.cloud.values import Address

NAME = re.compile(r"qcs::(?:vpc|cvm):([a-z0-9-]*):uin/\d*:eip/(.+)")


def name_of(address: Address) -> str:
    return f"qcs::vpc:{address.region}:uin/:eip/{address.id}"


def region_and_id(name: str) -> tuple[str, str]:
    """Raises Fault for what is not the name of an address."""
    found = NAME.fullmatch(name)
    if found is None:
        raise Fault(
            "InvalidParameterValue.ResourceDescriptionError",
            f"`{name}` is no resource; it must look like qcs::vpc:<region>:uin/<account>:eip/<id>.",
        )
    return found[1], found[2]
