"""What the scenes need of a cluster of containers, and how Drawbridge is installed there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

from dev.lab import admission
from dev.lab.cloud import fixture
from dev.lab.errors import LabError
from dev.lab.install import NAMESPACE, RELEASE, merged
from dev.lab.waiting import at_most, until

IMAGE, VERSION = "drawbridge.test/drawbridge", "0.0.0-e2e"
IMAGES = FIRST, SECOND = f"{IMAGE}:{VERSION}", f"{IMAGE}:again"
"""The same image by two names: a template with the other one is another template."""
EDGE_IMAGE = "drawbridge.test/edge:e2e"
"""nginx, for the pods of IngressDaemonSets, where scenes send traffic through them."""
CLOUD_PORT = 8300
SUBNET = {"id": "subnet-e2e00001", "zone": "ap-guangzhou-3"}


class Cluster(Protocol):
    """A lab (lab.session.Lab) that has these, too."""

    chart: Path
    """What is installed: a directory, or one file as it is released."""
    workers: tuple[str, ...]
    """The nodes on which pods run."""
    is_real: bool
    """Whether Calico, a load balancer and clients are beside it, as on real nodes."""

    def archive(self) -> Path:
        """The image, as `docker save` writes it."""

    def status(self, node: str, port: int) -> str:
        """What a load balancer gets from the health check of the node: an HTTP status."""


def values(endpoint: str) -> dict[str, Any]:
    """All features with their defaults."""
    ours = {
        "elasticity": {"enabled": True},
        "cloud": {"subnets": [SUBNET]},
        "ingressDaemonSet": {"enabled": True},
    }
    return merged(fixture.values(endpoint), ours)


def with_image(given: dict[str, Any]) -> dict[str, Any]:
    """For a chart that does not name the image that the nodes have."""
    return merged(given, {"image": {"repository": IMAGE, "tag": VERSION, "pullPolicy": "Never"}})


def install(cluster: Any, given: Mapping[str, Any], may_retry: str = "") -> None:
    """By Helm, as docs/how-to/install.md says; back when the API server calls all webhooks, and trusts them.

    With *may_retry*, it is tried again while what Helm says has that word.
    """
    place = ("--namespace", NAMESPACE)
    command = ("install", RELEASE, str(cluster.chart), *place, "--create-namespace", "--values", "-")
    until(lambda: _installed(cluster, command, yaml.safe_dump(dict(given)), may_retry), 120, "helm install")
    for deployment in ("webhook", "controllers"):
        cluster.kubectl(*place, "rollout", "status", f"deployment/{RELEASE}-{deployment}", at_most(300))
    admission.await_evictions(cluster.client)
    admission.await_gate(cluster.client)
    admission.await_placement(cluster.client)
    admission.await_ingress_daemonsets(cluster.client)


def _installed(cluster: Any, command: tuple[str, ...], given: str, may_retry: str) -> bool:
    done = cluster.helm(*command, check=False, stdin=given)
    if done.returncode == 0:
        return True
    if not may_retry or may_retry not in done.stderr:
        raise LabError(f"helm {' '.join(command)}: {done.stderr.strip()}")
    cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found")
    return False
