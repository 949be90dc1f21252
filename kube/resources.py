"""Kinds of objects as the API server addresses them, and selections of their objects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote


@dataclass(frozen=True)
class Resource:
    """*group* is "" for the core group."""

    group: str
    version: str
    plural: str
    namespaced: bool = True
    subresource: str = ""

    def __hash__(self) -> int:
        return hash(self.plural)  # few have the same, and it is a key everywhere

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of its group and version."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def sub(self, name: str) -> Resource:
        """A subresource: ``PODS.sub("status")``."""
        return replace(self, subresource=name)

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Names are quoted: owners and claims of a pod can have any, also one with another path and a query.

        So can an address of the page have any namespace.
        """
        place = ("namespaces", quote(namespace, safe="")) if self.namespaced and namespace else ()
        quoted = name and quote(name, safe=":")
        parts = (self.root, *place, self.plural, quoted, self.subresource)
        return "/".join(part for part in parts if part)


@dataclass(frozen=True)
class Selection:
    """Which objects of a kind; all of them by default."""

    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""

    @property
    def query(self) -> dict[str, object]:
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: value for name, value in selectors.items() if value}


ALL = Selection()

PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
SERVICES = Resource("", "v1", "services")
CONFIG_MAPS = Resource("", "v1", "configmaps")
EVENTS = Resource("", "v1", "events")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
DAEMON_SETS = Resource("apps", "v1", "daemonsets")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS = (
    Resource("admissionregistration.k8s.io", "v1", f"{kind}webhookconfigurations", namespaced=False)
    for kind in ("validating", "mutating")
)
