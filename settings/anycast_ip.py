"""The settings of anycast_ip."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from settings.values import Address, Count, Duration, Labels, Matching, Model, Period, Text

NEED_LABEL = "tke.cloud.tencent.com/need-aia-ip"


class ReverseReconcile(Model):
    """The search for addresses of nodes that are gone."""

    mode: Literal["off", "report", "release"] = "off"
    period: Period = 600.0
    grace: Period = 1800.0
    max_per_round: Count = 10


class Retain(Model):
    """Addresses of nodes that are gone are kept for the next ones: *count* at most, each for *age* at most."""

    count: Annotated[int, Field(ge=0, le=1000)] = 0
    age: Period = 86400.0


class Pool(Model):
    """Addresses that are bound to nothing; *min_idle* of them are there, if need be ordered before a node comes."""

    retain: Retain = Retain()
    min_idle: Annotated[int, Field(ge=0, le=1000)] = 0

    @property
    def size(self) -> int:
        """So many addresses are idle at most."""
        return max(self.retain.count, self.min_idle)


class AllowListHTTP(Model):
    """The endpoint of the controllers that answers with the allow-list."""

    enabled: bool = False
    bind_address: Address = ":8082"


class AllowList(Model):
    """The ConfigMap in the release's namespace with all addresses that nodes have or may get; without a name, none.

    A node gets an address only when that has been in it for *announce_before*.
    """

    config_map: Annotated[
        str,
        Matching(
            r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?",
            "is not the name of a ConfigMap; use lower case letters, digits and '-'",
        ),
    ] = ""
    announce_before: Duration = 0.0
    http: AllowListHTTP = AllowListHTTP()

    @model_validator(mode="after")
    def _there_is_a_list(self) -> Self:
        if not self.config_map and self.announce_before:
            raise ValueError(
                f"configMap is empty, but announceBefore is {self.announce_before:g}s: addresses are announced in a"
                " ConfigMap; name one, for example configMap: anycast-ips, or leave announceBefore at 0s"
            )
        if not self.config_map and self.http.enabled:
            raise ValueError(
                "configMap is empty, but http.enabled is true: the endpoint answers with that ConfigMap; name one, for"
                " example configMap: anycast-ips, or leave http.enabled off"
            )
        return self


class AnycastIPSettings(Model):
    enabled: bool = False
    cluster_id: Annotated[
        str,
        Matching("(cls-[0-9a-z]+)?", "is not the id of a TKE cluster; write for example cls-ab12cd34"),
        Field(alias="clusterID"),
    ] = ""
    node_labels: Annotated[Labels, Field(min_length=1)] = {NEED_LABEL: "true"}
    address_type: Literal["AnycastEIP", "HighQualityEIP", "EIP"] = "AnycastEIP"
    anycast_zone: Literal["", "ANYCAST_ZONE_OVERSEAS", "ANYCAST_ZONE_GLOBAL"] = ""
    bandwidth: Annotated[int, Field(ge=0, le=2000)] = 100
    internet_charge_type: Literal[
        "", "BANDWIDTH_PACKAGE", "BANDWIDTH_POSTPAID_BY_HOUR", "TRAFFIC_POSTPAID_BY_HOUR"
    ] = ""
    bandwidth_package_id: Annotated[str, Field(alias="bandwidthPackageID")] = ""
    tags: dict[Text, Text] = {}
    release_on_label_removal: bool = False
    repair: bool = True
    resync_period: Period = 300.0
    reverse_reconcile: ReverseReconcile = ReverseReconcile()
    pool: Pool = Pool()
    allow_list: AllowList = AllowList()

    @model_validator(mode="after")
    def _each_fits_the_others(self) -> Self:
        if self.enabled and not self.cluster_id:
            raise ValueError(
                "clusterID is empty: give the TKE cluster's id, cls-..., by which its addresses are tagged"
            )
        if self.anycast_zone and self.address_type != "AnycastEIP":
            raise ValueError(
                f"anycastZone is {self.anycast_zone}, but addressType is {self.address_type}: only an AnycastEIP has a"
                " zone; leave anycastZone empty"
            )
        return self
