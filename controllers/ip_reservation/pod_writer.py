"""Change annotations of a pod, as it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kube.client import Client
from kube.resources import PODS
from kube.types import Pod


@dataclass(frozen=True)
class PodWriter:
    client: Client

    def annotate(self, pod: Pod, changes: Mapping[str, str | None]) -> None:
        """Conflict when the pod is not as it was read: its users may have annotated it since."""
        at = pod.metadata
        # This version is of no other pod: a uid needs no check, and would be answered as an invalid change of it.
        patch = {"metadata": {"resourceVersion": at.resource_version, "annotations": changes}}
        self.client.patch(PODS, at.name, patch, at.namespace, type=msgspec.Raw)
