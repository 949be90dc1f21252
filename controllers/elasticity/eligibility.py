"""Whether a pod could run on a super node; claims are looked up only for a pod that has some."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec
import structlog
from msgspec import structs

from api.elasticity import tolerates_super_nodes
from controllers.elasticity.filters import Reach, Request
from controllers.elasticity.pods import Pod, PodSpec
from controllers.elasticity.rules import Claim, are_settled, needs, reach, violations
from kube.client import Client, Resource
from kube.errors import KubeError
from kube.types import ObjectMeta, PersistentVolume, PersistentVolumeClaim, StorageClass

CLAIMS = Resource("", "v1", "persistentvolumeclaims")
VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)

AGAIN = 30.0
"""Seconds after which claims are looked up again: they may be bound by then."""
SOON = 1.0
"""The same after a failure, or while a claim may still be about to be made or bound."""
PATIENCE = 10.0
"""Seconds for which a claim may come, and be bound, after its pod: both are often created in one go."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Found:
    """*reasons* are None until a look has succeeded; *since* the first and *until* the next, on the clock."""

    reasons: tuple[str, ...] | None
    since: float
    until: float
    reach: tuple[Reach, ...] = ()
    """The nodes that its volumes can be used on."""


class Eligibility:
    """Safe to share between threads as long as one at a time asks of a pod; *clock* is monotonic."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._found: dict[str, Found] = {}
        self.by_uid = (self._found,)

    def violations(self, pod: Pod) -> tuple[str, ...] | None:
        """Of what lasts; None while its claims are to be looked up."""
        if (found := self._found.get(pod.metadata.uid)) is None:
            judged = request_of(pod)
            if needs(judged):
                return None
            found = self._found[pod.metadata.uid] = Found(violations(judged, {}), self._clock(), math.inf)
        return found.reasons if found.until > self._clock() else None

    def reach(self, pod: Pod) -> tuple[Reach, ...]:
        """Of its volumes, once they were looked up."""
        found = self._found.get(pod.metadata.uid)
        return found.reach if found else ()

    def look_up(self, pod: Pod) -> float:
        """Read its claims, unless they were read a moment ago; the seconds until it is worth asking again."""
        uid, now = pod.metadata.uid, self._clock()
        found = self._found.get(uid, Found(None, now, now))
        if found.until <= now:
            request = request_of(pod)
            wanted, claims = needs(request), None
            try:
                claims = gather(wanted, pod.metadata.namespace, self._client)
            except KubeError as error:
                log.warning("claims not read", **pod.metadata.about, error=str(error))
            now = self._clock()
            if claims is None or (not are_settled(wanted, claims) and now - found.since < PATIENCE):
                found = replace(found, until=now + SOON)
            else:
                rules = violations(request, claims)
                found = Found(rules, found.since, now + AGAIN, reach(claims))
            self._found[uid] = found
        return 0.0 if found.reasons is not None else SOON


def request_of(pod: Pod) -> Request:
    """As it is, or as its replacement would be: without the toleration by which a burst pod came where it is."""
    spec = msgspec.json.decode(pod.burst_spec or pod.unbound.spec, type=PodSpec)
    if pod.burst_spec:
        kept = tuple(each for each in spec.tolerations if not tolerates_super_nodes((each,)))
        spec = structs.replace(spec, tolerations=kept)
    return Request(pod, spec)


def gather(wanted: Mapping[str, str], namespace: str, client: Client) -> dict[str, Claim]:
    """What is known of each claim of `needs`, by name, without those that do not exist; raises KubeError."""
    found = {name: _look_up(name, of_pod, namespace, client) for name, of_pod in wanted.items()}
    return {name: claim for name, claim in found.items() if claim}


def _look_up(claim_name: str, of_pod: str, namespace: str, client: Client) -> Claim | None:
    claim = client.find(CLAIMS, claim_name, namespace, type=PersistentVolumeClaim)
    if claim and (volume := claim.spec.volume_name):
        return Claim(bound_to=volume, volume=client.find(VOLUMES, volume, type=PersistentVolume))
    name = claim.spec.storage_class_name if claim else of_pod
    if not name:
        return Claim() if claim else None
    found = client.find(CLASSES, name, type=StorageClass)
    return Claim(storage_class=found or StorageClass(ObjectMeta(name=name)))
