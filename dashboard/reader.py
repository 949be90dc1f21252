"""Read what each page shows, with the permissions of the user."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import msgspec

from api.ingress_daemonset import GROUP, INGRESS_DAEMONSETS, NODE_LABEL, PLURAL
from api.ingress_daemonset.node_matching import FollowedNode
from cli.addresses.reader import addresses_of
from cli.cluster import Cluster
from cli.doctor.access import Access, attributes
from cli.elasticity.placements import Pod
from cli.elasticity.placements import listed as placements_listed
from cli.pools.reader import pools_of
from cli.reservations.reader import read as read_reservations
from cli.status.assess import status_of
from cli.status.reader import facts_of
from cli.status.types import Status
from controllers.ingress_daemonset.types import Workload
from dashboard import addresses, elasticity, reservations, rollouts
from kube.client import Page
from kube.errors import KubeError
from kube.resources import DEPLOYMENTS, NODES, PODS
from kube.types import is_super

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _Verdict(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Verdict = msgspec.field(default_factory=_Verdict)


class Reader:
    """All raise KubeError, or Failure when Drawbridge is not installed."""

    def __init__(self, cluster: Cluster, read_only: bool = False) -> None:
        """With *read_only*, no Secret is read, and nothing can be changed."""
        self.cluster, self._read_only = cluster, read_only
        self._may_change: dict[str, bool] = {}

    def overview(self) -> Status:
        return status_of(facts_of(self.cluster, secrets=not self._read_only), self.cluster.now())

    def reservations(self) -> reservations.ReservationsPage:
        found = read_reservations(self.cluster)
        return reservations.page_of(found, pools_of(self.cluster, found.segments), self.cluster.now())

    def addresses(self) -> addresses.AddressesPage:
        return addresses.page_of(addresses_of(self.cluster))

    def elasticity(self) -> elasticity.ElasticityPage:
        pods = partial(self.cluster.client.list, PODS, type=Pod)
        found = self.cluster.read_all({"nodes": self.cluster.nodes, "pods": pods})
        super_nodes = {each.metadata.name for each in found["nodes"] if is_super(each)}
        return elasticity.page_of(placements_listed(found["pods"].items, super_nodes))

    def rollouts(self) -> rollouts.RolloutsPage:
        client = self.cluster.client
        deployments = partial(client.list, DEPLOYMENTS, type=Workload, label_selector=NODE_LABEL)
        found = self.cluster.read_all(
            {
                "rollouts": partial(client.list, INGRESS_DAEMONSETS),
                "nodes": self._followed_nodes,
                "deployments": deployments,
            }
        )
        raw = found["rollouts"].items
        writable = self._writable({each["metadata"]["namespace"] for each in raw})
        values = rollouts.Found(raw, found["nodes"], found["deployments"].items, writable)
        return rollouts.page_of(values, self.cluster.now())

    def _followed_nodes(self) -> list[FollowedNode]:
        query = {"resourceVersion": "0"}
        return (
            self.cluster.client.request("GET", NODES.path(), query=query, type=Page[FollowedNode]).items or []
        )

    def _writable(self, namespaces: Collection[str]) -> set[str]:
        """Where the user may pause rollouts; asked once: what changes later, a write shows."""
        if self._read_only:
            return set()
        unknown = {each: partial(self._may, each) for each in namespaces if each not in self._may_change}
        answers = self.cluster.read(unknown)
        self._may_change |= {name: may for name, may in answers.items() if not isinstance(may, KubeError)}
        return {each for each in namespaces if self._may_change.get(each)}

    def _may(self, namespace: str) -> bool:
        access = Access("patch", PLURAL, GROUP, namespace)
        body: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes(access)},
        }
        return self.cluster.client.request("POST", ACCESS_REVIEWS, body=body, type=_Review).status.allowed
