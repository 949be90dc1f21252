"""What a program, or the user, must be allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

OWN = "own"
"""In place of a namespace: that of the installation."""
CALICO = "calico"
"""In place of a group: that which is served."""


class Access(NamedTuple):
    """*namespace* is empty for the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}{where}"

    @property
    def attributes(self) -> dict[str, Any]:
        """As a review of access has them."""
        resource, _, subresource = self.resource.partition("/")
        return self._asdict() | {"resource": resource, "subresource": subresource}

    def located(self, namespace: str, calico: str) -> Access:
        group = calico if self.group == CALICO else self.group
        return self._replace(group=group, namespace=namespace if self.namespace == OWN else "")


def access(
    verbs: str, resource: str, group: str = "", namespace: str = "", name: str = ""
) -> Iterator[Access]:
    """One for each of *verbs*."""
    return (Access(verb, resource, group, namespace, name) for verb in verbs.split())
