"""The products with their versions and actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dev.lab.cloud import (
    addresses,
    binding,
    describe,
    instances,
    load_balancers,
    quotas,
    sts,
    tags,
)
from dev.lab.cloud.action import Action
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.orders import OVERSEAS

REGIONS = OVERSEAS | {
    "ap-beijing",
    "ap-chengdu",
    "ap-chongqing",
    "ap-guangzhou",
    "ap-mumbai",
    "ap-nanjing",
    "ap-shanghai",
    "ap-taipei",
}
UNSIGNED = "AssumeRoleWithWebIdentity"
"""The one action that needs no signature: a web identity token authenticates the caller."""


@dataclass(frozen=True)
class Product:
    version: str
    actions: Mapping[str, Action]
    regional: bool = True


PRODUCTS = {
    "vpc": Product(
        "2017-03-12",
        {**addresses.ACTIONS, **binding.ACTIONS, **describe.ACTIONS, **quotas.ACTIONS},
    ),
    "cvm": Product("2017-03-12", instances.ACTIONS),
    "clb": Product("2018-03-17", load_balancers.ACTIONS),
    "tag": Product("2018-08-13", tags.ACTIONS, regional=False),
    "sts": Product("2018-08-13", sts.ACTIONS, regional=False),
}


def find(service: str, version: str, action: str, region: str) -> Action:
    """Raises Fault for what is not there, as the gateway before all products does."""
    product = PRODUCTS.get(service)
    if product is None:
        raise Fault("NoSuchProduct", f"There is no product `{service}`; there are {sorted(PRODUCTS)}.")
    for name, value in {"X-TC-Action": action, "X-TC-Version": version}.items():
        if not value:
            raise Fault("MissingParameter", f"The request is missing a required parameter `{name}`.")
    if version != product.version:
        raise Fault("NoSuchVersion", f"There is no version `{version}` of {service}, but {product.version}.")
    if action not in product.actions:
        raise Fault("InvalidAction", f"There is no action `{action}` in {service} {version}.")
    if product.regional:
        _check_region(region)
    return product.actions[action]


def _check_region(region: str) -> None:
    if not region:
        raise Fault("MissingParameter", "The request is missing a required parameter `X-TC-Region`.")
    if region not in REGIONS:
        raise Fault("UnsupportedRegion", f"There is no region `{region}`; there are {sorted(REGIONS)}.")
