"""Requests in the name of another user than the one whose credentials they bear: the API server decides whether."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from urllib3 import HTTPHeaderDict

from kube.rest_config import Connection


@dataclass(frozen=True)
class Impersonation:
    """As a kubeconfig has it: `as`, `as-groups`, `as-uid` and `as-user-extra`."""

    user: str
    groups: Sequence[str] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def headers(self) -> HTTPHeaderDict:
        found = HTTPHeaderDict({"Impersonate-User": self.user})
        if self.uid:
            found.add("Impersonate-Uid", self.uid)
        for group in self.groups:
            found.add("Impersonate-Group", group)
        for key, values in self.extra.items():
            for value in values:
                found.add(f"Impersonate-Extra-{quote(key, safe='')}", value)
        return found


class Impersonating(Connection):
    """*connection*, in the name of another user."""

    def __init__(self, connection: Connection, impersonation: Impersonation) -> None:
        self.host, self.pool = connection.host, connection.pool
        self._connection, self._headers = connection, impersonation.headers

    def authorization(self) -> HTTPHeaderDict:
        found = HTTPHeaderDict(self._connection.authorization())
        found.extend(self._headers)
        return found
