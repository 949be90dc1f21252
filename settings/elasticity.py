"""The settings of elasticity."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from settings.values import MOST, Count, Labels, Limit, Matching, Model, Name, Period, Region
from settings.windows import Hours, closes_at

AHEAD = timedelta(days=14)
"""How far hours are followed for their end."""

_WORDS = ("nameserver", "search", "domain", "options", "sortlist")
_LINE = rf"[ \t\r]*([#;][ -~\t\r]*|({'|'.join(_WORDS)})([ \t\r][ -~\t\r]*)?)?"
ResolvConf = Annotated[
    str,
    Matching(
        rf"{_LINE}(\n{_LINE})*",
        f"is no resolv.conf; a line begins with {', '.join(_WORDS)}, for example nameserver 10.0.0.2",
    ),
]


class Switch(Model):
    """The ConfigMap that holds the global AUTO_SCALE_EKS; *default* is what counts while it has none."""

    namespace: Name = "kube-system"
    name: Name = "eks-config"
    default: bool = True


class Budget(Model):
    """For pods of any of *namespaces* with all of *labels*; what is empty asks for nothing. *max_pods* 0: for none.

    With *hours*, it holds at these alone.
    """

    namespaces: tuple[Name, ...] = ()
    labels: Labels = {}
    max_pods: Annotated[int, Field(ge=0, le=MOST, strict=True)]
    hours: tuple[Hours, ...] = ()

    def concerns(self, namespace: str, labels: Mapping[str, str]) -> bool:
        if self.namespaces and namespace not in self.namespaces:
            return False
        return all(labels.get(key) == value for key, value in self.labels.items())

    def holds_at(self, now: datetime) -> bool:
        return not self.hours or any(closes_at(each, now) for each in self.hours)

    def ends_at(self, now: datetime) -> datetime | None:
        """When it does not hold any more; None for one that does not hold *now*, or does not end within two weeks."""
        end = now
        while ends := [each for each in (closes_at(each, end) for each in self.hours) if each]:
            end = max(ends)
            if end - now > AHEAD:
                return None
        return end if end > now else None

    @property
    def times(self) -> str:
        """Its hours in words; nothing for one that always holds."""
        return " and ".join(map(str, self.hours))

    def __str__(self) -> str:
        """Whose it is."""
        labels = ", ".join(f"{key}={value}" for key, value in sorted(self.labels.items()))
        parts = ["pods", labels and f"with {labels}", self.namespaces and f"of {', '.join(self.namespaces)}"]
        return " ".join(str(part) for part in parts if part)


class MaxSuperPods(Model):
    """All that concern a pod apply to it; a budget of 0 pods forbids super nodes."""

    total: Limit = None
    per_namespace: Limit = None
    budgets: tuple[Budget, ...] = ()

    @property
    def is_limited(self) -> bool:
        return bool(self.budgets) or (self.total, self.per_namespace) != (None, None)


class HomeFailover(Model):
    """The way back for pods that super nodes do not accept, or do not start."""

    enabled: bool = False
    home_after: Period = 300.0


class ReturnHome(Model):
    """The way back for pods that went to super nodes because local nodes were full."""

    enabled: bool = False
    after: Period = 600.0
    interval: Period = 60.0
    max_at_once: Count = 1


Tier = Annotated[int, Field(ge=1, le=4, strict=True)]


class Subnet(Model):
    """Of the addresses of pods on a super node; each has one super node. Those of the lowest *tier* go first.

    With *gpu*, it is for pods that ask for GPUs, and for no others.
    """

    id: Annotated[
        str, Matching(r"subnet-[0-9a-z]+", "is not the id of a subnet; write for example subnet-ab12cd34")
    ]
    zone: Annotated[
        str,
        Matching("[a-z0-9]+(-[a-z0-9]+)*", "is not a zone; write its long name, for example ap-guangzhou-3"),
    ]
    tier: Tier = 1
    gpu: bool = False


LocalReplicas = Annotated[
    Annotated[int, Field(ge=0, le=MOST)] | str,
    Matching(
        r"[0-9]{1,10}|(100|[1-9]?[0-9])%", "is neither a number nor a percentage; write for example 2 or 30%"
    ),
]
"""Of a workload; a percentage is of the replicas that it wants."""


class ElasticitySettings(Model):
    enabled: bool = False
    open_gates: bool = False
    gate_fallback_after: Period = 60.0
    switch: Switch = Switch()
    local_opt_out: bool = False
    local_replicas: LocalReplicas | None = None
    percentages: bool = False
    placement: Literal["prefer", "pin"] = "prefer"
    scheduler_name: Name = "default-scheduler"
    excluded_namespaces: tuple[Name, ...] = ("kube-system", "tke-eni-ip-webhook")
    max_super_pods: MaxSuperPods = MaxSuperPods()
    scale_in_order: bool = True
    home_failover: HomeFailover = HomeFailover()
    return_home: ReturnHome = ReturnHome()
    subnets: tuple[Subnet, ...] = ()
    region: Region = ""
    resolv_conf: ResolvConf = ""

    @property
    def tiers(self) -> list[int]:
        """The order of preference among the subnets, the first one first."""
        return sorted({subnet.tier for subnet in self.subnets})

    @property
    def gpus(self) -> bool:
        """Whether some subnets are for pods that ask for GPUs."""
        return any(subnet.gpu for subnet in self.subnets)

    @model_validator(mode="after")
    def _percentages_are_read(self) -> Self:
        if "%" in str(self.local_replicas) and not self.percentages:
            raise ValueError(
                f"localReplicas is {self.local_replicas}: set percentages to true, or write a number"
            )
        return self

    @model_validator(mode="after")
    def _no_subnet_twice(self) -> Self:
        ids = [subnet.id for subnet in self.subnets]
        if twice := sorted({each for each in ids if ids.count(each) > 1}):
            raise ValueError(f"subnets names {', '.join(twice)} more than once; a subnet has one super node")
        return self
