"""What a pod costs on a super node: its specification, rounded up as the provider does, at the user's prices.

The specification is what annotations say, else the larger of what the pod requests and the largest limit, of one
container or of the pod as a whole. Prices, discounts and spot are the user's: the result has the unit of the prices.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from controllers.elasticity import pods
from controllers.elasticity.pod_spec import PodSpec
from controllers.elasticity.pods import Pod, Specification
from kube.quantities import amount
from kube.types import ObjectMeta, Value, complete
from settings.elasticity import Prices

CPU, MEMORY = "eks.tke.cloud.tencent.com/cpu", "eks.tke.cloud.tencent.com/mem"
"""The annotations by which a pod names its specification."""
GIB = Decimal(1024**3)
DEFAULT = Decimal(1), Decimal(2)
"""vCPUs and GiB of a pod that asks for neither."""


def _steps(*numbers: float) -> tuple[Decimal, ...]:
    return tuple(Decimal(str(each)) for each in numbers)


SPECIFICATIONS = (
    (Decimal("0.25"), _steps(0.5, 1, 2)),
    (Decimal("0.5"), _steps(1, 2, 3, 4)),
    (Decimal(1), _steps(*range(1, 9))),
    (Decimal(2), _steps(*range(4, 17))),
    (Decimal(4), _steps(*range(8, 33))),
    (Decimal(8), _steps(*range(16, 33))),
    (Decimal(12), _steps(*range(24, 49))),
    (Decimal(16), _steps(*range(32, 65))),
    (Decimal(32), _steps(64, 128, 256)),
    (Decimal(64), _steps(128, 192, 256, 512)),
)
"""Of pods that are paid by use: vCPUs, and the GiB that each comes with, as the provider's documentation has them."""


def decode(encoded: msgspec.Raw) -> Pod:
    """As `pods.decode`, with the specification of a pod that is not finished. MsgspecError when it cannot be read."""
    pod = pods.decode(encoded)
    if pod.finished:
        return pod
    raw = _POD.decode(encoded)
    return replace(pod, specification=specification(raw.metadata, raw.spec))


def specification(metadata: ObjectMeta, spec: PodSpec) -> Specification:
    wanted = spec.own_requests
    containers = (*spec.containers, *spec.init_containers)
    for each in (spec.resources, *(container.resources for container in containers)):
        for name, quantity in each.limits.items():
            wanted[name] = max(wanted.get(name, Decimal()), amount(quantity))
    cpu, memory = wanted.pop("cpu", Decimal()), wanted.pop("memory", Decimal()) / GIB
    said = metadata.annotations
    cpu, memory = _said(said.get(CPU)) or cpu, _said(said.get(MEMORY)) / GIB or memory
    return Specification(*rounded_up(cpu, memory), tuple(sorted(wanted.items())))


@lru_cache(maxsize=1024)
def rounded_up(cpu: Decimal, memory: Decimal) -> tuple[Decimal, Decimal]:
    """The least specification with so many vCPUs and GiB; the same numbers where the provider has none as large."""
    if not cpu and not memory:
        return DEFAULT
    fitting = (
        (cpus, next((each for each in steps if each >= memory), None))
        for cpus, steps in SPECIFICATIONS
        if cpus >= cpu
    )
    return next(((cpus, gib) for cpus, gib in fitting if gib is not None), (cpu, memory))


def cost(pod: Pod, prices: Prices) -> Decimal:
    """Per hour. Nothing for a pod whose specification was not read."""
    return _cost(pod.specification, prices) if pod.specification and prices.are_set else Decimal()


def _cost(found: Specification, prices: Prices) -> Decimal:
    others = (
        count * Decimal(str(prices.resources[name]))
        for name, count in found.others
        if name in prices.resources
    )
    own = found.cpu * Decimal(str(prices.cpu)) + found.memory * Decimal(str(prices.memory))
    return sum(others, start=own)


def _said(quantity: str | None) -> Decimal:
    """0 for nothing, and for what cannot be read."""
    try:
        return max(Decimal(), amount(quantity)) if quantity else Decimal()
    except ValueError:
        return Decimal()


class _Pod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


complete(_Pod)
_POD = msgspec.json.Decoder(_Pod)
