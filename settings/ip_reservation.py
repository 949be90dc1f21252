"""The settings of ip_reservation, and its label selector that any one of its requirements meets."""

from typing import ClassVar, Literal

from settings.values import (
    Count,
    LabelName,
    Labels,
    LabelValue,
    Limit,
    Model,
    Percent,
    Period,
    ValuesOfOperators,
)


class Requirement(Model):
    """One line of `matchExpressions`, with Kubernetes' operators."""

    key: LabelName
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[LabelValue, ...] = ()

    relations: ClassVar = (ValuesOfOperators(("In", "NotIn")),)


class LabelSelector(Model):
    """Without requirements it selects nothing. Any-of is the rule of the original, Capo; Kubernetes demands all."""

    match_labels: Labels = {}
    match_expressions: tuple[Requirement, ...] = ()


class Pools(Model):
    """Calico's pools and the blocks of their addresses, followed by the leader."""

    enabled: bool = False


class Standing(Model):
    """Whether the addresses of running pods are reserved before they go, so that their deletion costs no call."""

    enabled: bool = True
    # Calico reads every reservation for each new pod.
    max: Count = 10_000


class SameAddress(Model):
    """Whether a StatefulSet's pod that comes back gets its own reserved addresses."""

    enabled: bool = False
    # From the moment that the pod has a node: what Calico refuses must not keep it from starting for long.
    timeout: Period = 60.0


class IPReservationSettings(Model):
    enabled: bool = True
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    calico_api_version: Literal["auto", "projectcalico.org/v3", "crd.projectcalico.org/v1"] = "auto"
    duration: Period = 2400.0
    max_count: Count = 300
    # Of pods that ended by themselves, in namespaces that ask for it.
    max_finished: Count = 300
    release_period: Period = 5.0
    give_back_after: Period = 120.0
    skip_when_owner_is_deleted: bool = True
    workload_opt_in: bool = False
    same_address: SameAddress = SameAddress()
    standing: Standing = Standing()
    pools: Pools = Pools()
    # Of what is free of each pool, without us; 100% is no limit.
    max_pool_share: Percent = 50
    max_per_namespace: Limit = None
    label_selector: LabelSelector = LabelSelector(
        match_expressions=(
            Requirement(key="statefulset.kubernetes.io/pod-name", operator="Exists"),
            Requirement(key="brokerId", operator="Exists"),
        )
    )

    @property
    def follows_pools(self) -> bool:
        """A pool bears no more standing reservations than it has free addresses."""
        return self.pools.enabled or self.standing.enabled

    @property
    def share_of_pools(self) -> int:
        """That may be reserved, in percent."""
        return self.max_pool_share if self.pools.enabled else 100
