"""An independent judge: how many pods of one owner and revision were local at any time, by a watch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kube.client import Client
from kube.types import Pod
from lab.session import Lab
from lab.watching import Observations, observed_by_now, watching
from tests.cluster.elasticity import is_away
from tests.cluster.workloads import PODS
from webhook.elasticity import LOCAL, LOCAL_REPLICAS, PLACEMENT, REASON

REVISIONS = ("pod-template-hash", "controller-revision-hash")


class Judge:
    """Follows all pods; each look takes in what has been observed by then.

    It is strict: super nodes that are not ready for a minute are a reason for more than N local pods, but not here,
    where they are ready all the time. Each line ends with the reason on the pod, by which that is seen.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._groups: dict[tuple[str, ...], dict[str, Pod]] = {}
        self._seen: dict[str, Pod] = {}
        self._too_many: dict[tuple[str, ...], str] = {}

    def too_many(self, namespace: str) -> list[str]:
        """What was local beyond its number, ever; one line for each owner and revision."""
        self._listen()
        return [line for key, line in self._too_many.items() if key[0] == namespace]

    def ever(self, namespace: str) -> list[Pod]:
        """All pods that were ever there, each as it was last seen."""
        self._listen()
        return [pod for pod in self._seen.values() if pod.metadata.namespace == namespace]

    def placed(self, namespace: str) -> int:
        """How many pods have been placed so far."""
        return sum(PLACEMENT in pod.metadata.annotations for pod in self.ever(namespace))

    def _listen(self) -> None:
        for observation in observed_by_now(self._observations):
            if isinstance(observation.object, Pod):
                self._hear(observation.object, gone=observation.gone)

    def _hear(self, pod: Pod, *, gone: bool) -> None:
        key, uid = _key(pod), pod.metadata.uid
        group = self._groups.setdefault(key, {})
        group.pop(uid, None)
        self._seen[uid] = pod
        if _is_home(pod) and not gone:
            group[uid] = pod
            self._count(key, pod, len(group))

    def _count(self, key: tuple[str, ...], pod: Pod, count: int) -> None:
        # A share is of what the workload wants, which no pod says.
        most = pod.metadata.annotations.get(LOCAL_REPLICAS, "")
        if most.isdigit() and count > int(most):
            revision = pod.metadata.resource_version
            why = pod.metadata.annotations.get(REASON)
            self._too_many[key] = (
                f"{count} of {key} were local at {revision}, {pod.metadata.name} the last: {why}"
            )


def _key(pod: Pod) -> tuple[str, ...]:
    meta = pod.metadata
    owners = [owner.uid for owner in meta.owner_references if owner.controller]
    revisions = [meta.labels[each] for each in REVISIONS if each in meta.labels]
    return (meta.namespace, *(owners or [meta.uid]), *revisions)


def _is_home(pod: Pod) -> bool:
    """A pod at work that is on a node local, or was placed there and is on its way."""
    if pod.terminating or pod.finished:
        return False
    return not is_away(pod) if pod.spec.node_name else pod.metadata.annotations.get(PLACEMENT) == LOCAL


@contextmanager
def judging(lab: Lab, client: Client | None = None) -> Iterator[Judge]:
    """Watch from now until the end of the block, by way of *client* if it is not the lab's own."""
    with watching(client or lab.client, {PODS: Pod}) as observations:
        yield Judge(observations)
