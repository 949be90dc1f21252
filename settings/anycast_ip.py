"""The settings of anycast_ip."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from settings.values import (
    HOST_AND_PORT,
    Address,
    Count,
    Duration,
    Image,
    Labels,
    Matching,
    Model,
    Name,
    Period,
    Text,
)

NEED_LABEL = "tke.cloud.tencent.com/need-aia-ip"
OWN_LABEL = "drawbridge.io/anycast-ip"
"""It comes and goes with the addresses of nodes."""


def _not_off(mode: object) -> object:
    # Without quotes, YAML reads it as false.
    if mode in ("off", False):
        raise ValueError("off is no mode; to search for no orphans, set enabled to false")
    return mode


class ReverseReconcile(Model):
    """The search for addresses of nodes that are gone."""

    enabled: bool = True
    mode: Annotated[Literal["report", "release"], BeforeValidator(_not_off)] = "report"
    period: Period = 600.0
    grace: Period = 1800.0
    max_per_round: Count = 10


class Retain(Model):
    """Addresses of nodes that are gone are kept for the next ones: *count* at most, each for *age* at most."""

    enabled: bool = False
    count: Annotated[int, Field(ge=1, le=1000, strict=True)] = 10
    age: Period = 86400.0

    @property
    def most(self) -> int:
        return self.count if self.enabled else 0


class Pool(Model):
    """Addresses that are bound to nothing; *min_idle* of them are there, if need be ordered before a node comes.

    Those that are ordered so take no place of those that *retain* keeps. Addresses of the user with all tags of
    *adopt*, which are bound to nothing, are in the pool, too; {} is none.
    """

    retain: Retain = Retain()
    min_idle: Annotated[int, Field(ge=0, le=1000, strict=True)] = 0
    adopt: dict[Text, Text] = {}

    @property
    def size(self) -> int:
        """So many addresses are idle at most."""
        return self.retain.most + self.min_idle


class AllowListHTTP(Model):
    """The endpoint of the controllers that answers with the allow-list."""

    enabled: bool = False
    bind_address: Address = ":8082"


class AllowList(Model):
    """The ConfigMap in the release's namespace with all addresses that nodes have or may get.

    A node gets an address only when that has been in it for *announce_before*. All of it needs *enabled*.
    """

    enabled: bool = False
    config_map: Name = "anycast-ips"
    announce_before: Duration = 0.0
    http: AllowListHTTP = AllowListHTTP()

    @property
    def is_served(self) -> bool:
        return self.enabled and self.http.enabled

    @property
    def wait(self) -> float:
        """Seconds that an address is listed before it is bound."""
        return self.announce_before if self.enabled else 0.0


class EgressCheck(Model):
    """A node opens when a pod on it has seen its address as that which the service at *url* answers with.

    *timeout* is for one check, from the creation of its pod on; *image* is that of Drawbridge.
    """

    enabled: bool = False
    url: Annotated[
        str,
        Matching(
            rf"(https?://{HOST_AND_PORT}(/[-A-Za-z0-9._~/?&=%+:@,;]*)?)?",
            "is not the URL of a service; write for example https://ip.example.com/",
        ),
    ] = ""
    image: Image = ""
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    timeout: Period = 120.0

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        if self.enabled and not self.url:
            raise ValueError(
                "enabled is true, but url is empty: give the URL of a service of yours that answers with its caller's"
                " address, or set enabled to false"
            )
        if self.enabled and not self.image:
            raise ValueError(
                "enabled is true, but image is empty: name the image of Drawbridge, as the chart does"
            )
        return self


class PodAddress(Model):
    """Pods of labelled namespaces get the address of their node as an annotation."""

    enabled: bool = False


ChargeType = Literal["", "BANDWIDTH_PACKAGE", "BANDWIDTH_POSTPAID_BY_HOUR", "TRAFFIC_POSTPAID_BY_HOUR"]
BY_HOUR = 100
"""Mbps that the cloud gives at most to addresses that are paid by the hour, but for anycast ones."""


class AddressSettings(Model):
    """How addresses of nodes with all labels of *node_selector* are ordered; None and "" are as for all nodes."""

    node_selector: Annotated[Labels, Field(min_length=1)]
    bandwidth: Annotated[int, Field(ge=1, le=2000, strict=True)] | None = None
    internet_charge_type: ChargeType = ""
    bandwidth_package_id: Annotated[str, Field(alias="bandwidthPackageID")] = ""


class AnycastIPSettings(Model):
    """Of *addresses*, the first one that selects a node is its."""

    enabled: bool = False
    cluster_id: Annotated[
        str,
        Matching("(cls-[0-9a-z]+)?", "is not the id of a TKE cluster; write for example cls-ab12cd34"),
        Field(alias="clusterID"),
    ] = ""
    node_labels: Annotated[Labels, Field(min_length=1)] = {NEED_LABEL: "true"}
    address_type: Literal["AnycastEIP", "HighQualityEIP", "EIP"] = "AnycastEIP"
    anycast_zone: Literal["", "ANYCAST_ZONE_OVERSEAS", "ANYCAST_ZONE_GLOBAL"] = ""
    bandwidth: Annotated[int, Field(ge=1, le=2000, strict=True)] | None = 100
    """None leaves it to the cloud."""
    internet_charge_type: ChargeType = ""
    bandwidth_package_id: Annotated[str, Field(alias="bandwidthPackageID")] = ""
    addresses: tuple[AddressSettings, ...] = ()
    egress_check: EgressCheck = EgressCheck()
    tags: dict[Text, Text] = {}
    release_on_label_removal: bool = False
    repair: bool = True
    when_exhausted: Literal["wait", "release"] = "wait"
    """With "release", nodes that get no address because a quota is used up open without one after a time."""
    resync_period: Period = 300.0
    reverse_reconcile: ReverseReconcile = ReverseReconcile()
    pool: Pool = Pool()
    allow_list: AllowList = AllowList()
    pod_address: PodAddress = PodAddress()

    @model_validator(mode="after")
    def _each_fits_the_others(self) -> Self:
        if self.enabled and not self.cluster_id:
            raise ValueError(
                "clusterID is empty: give the TKE cluster's id, cls-..., by which its addresses are tagged"
            )
        if OWN_LABEL in self.node_labels:
            raise ValueError(
                f"nodeLabels has {OWN_LABEL}, which Drawbridge writes itself: name another label"
            )
        if self.anycast_zone and self.address_type != "AnycastEIP":
            raise ValueError(
                f"anycastZone is {self.anycast_zone}, but addressType is {self.address_type}: only an AnycastEIP has a"
                " zone; leave anycastZone empty"
            )
        for index, each in enumerate(self.addresses):
            if problem := self._problem_of(each, self.addresses[:index]):
                raise ValueError(f"addresses[{index}]: {problem}")
        return self

    def _problem_of(self, each: AddressSettings, before: tuple[AddressSettings, ...]) -> str:
        if not (each.bandwidth or each.internet_charge_type or each.bandwidth_package_id):
            return "sets nothing; give bandwidth, internetChargeType or bandwidthPackageID"
        if OWN_LABEL in each.node_selector:
            return f"nodeSelector has {OWN_LABEL}, which Drawbridge writes itself; name another label"
        if any(other.node_selector.items() <= each.node_selector.items() for other in before):
            return "nodeSelector selects only nodes that an entry before it selects; write the narrower one first"
        contradicted = [
            name for name, value in self.node_labels.items() if each.node_selector.get(name, value) != value
        ]
        if contradicted:
            return f"nodeSelector wants another value of {contradicted[0]} than nodeLabels; no node has both"
        return self._problem_of_charge(each)

    def _problem_of_charge(self, each: AddressSettings) -> str:
        charge = each.internet_charge_type or self.internet_charge_type
        width = each.bandwidth or self.bandwidth or 0
        if each.bandwidth_package_id and charge != "BANDWIDTH_PACKAGE":
            return f"bandwidthPackageID is {each.bandwidth_package_id}; it needs internetChargeType BANDWIDTH_PACKAGE"
        if self.address_type != "AnycastEIP" and charge.endswith("BY_HOUR") and width > BY_HOUR:
            return f"bandwidth is {width}, but {charge} allows {BY_HOUR} at most for an {self.address_type}"
        return ""
