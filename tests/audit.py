"""The audit logs of labs: who requested what, what was refused, and what had been granted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from controllers.ingress_daemonset.health_checks import FOR
from tests.permissions import EVERYWHERE, Permission, by_feature, granted, seen_from

NAME = "app.kubernetes.io/name"
ACCOUNT = "system:serviceaccount:"
RELEASE = "drawbridge-"
"""How the names of a lab's own ServiceAccounts begin."""
DECISION = "authorization.k8s.io/decision"


class User(msgspec.Struct):
    username: str


class Reference(msgspec.Struct, rename="camel"):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""


class Line(msgspec.Struct, rename="camel"):
    """*object_ref* is None of what is no object: discovery, health."""

    verb: str
    user: User
    request_received_timestamp: str
    request_uri: str = msgspec.field(default="", name="requestURI")
    object_ref: Reference | None = None
    annotations: dict[str, str] = {}
    response_object: dict[str, Any] | None = None


@dataclass(frozen=True)
class Request:
    """*account* is a ServiceAccount, as namespace/name."""

    account: str
    wanted: Permission
    allowed: bool
    at: str

    def __str__(self) -> str:
        return f"{self.account} at {self.at}: {self.wanted}"


@dataclass(frozen=True)
class AccessLog:
    """What Drawbridge's ServiceAccounts requested in one lab; *granted* is all that they ever had there."""

    granted: dict[str, set[Permission]]
    requests: list[Request]

    @property
    def refused(self) -> list[Request]:
        """Requests that no role ever allowed; a permission may have been revoked, or be about to be granted."""
        return [each for each in self.requests if not each.allowed and not self._has(each)]

    def _has(self, request: Request) -> bool:
        return any(right.covers(request.wanted) for right in self.granted[request.account])

    def used(self, account: str) -> set[Permission]:
        """Of its permissions, those that a request needed."""
        asked = {each.wanted for each in self.requests if each.account == account}
        return {right for right in self.granted[account] if any(right.covers(each) for each in asked)}


def read(log: Path) -> AccessLog:
    decode = msgspec.json.Decoder(Line).decode
    whole, _, _in_writing = log.read_bytes().rpartition(b"\n")
    lines = [decode(line) for line in whole.splitlines()]
    permissions = granted(_ours(lines))
    return AccessLog(
        permissions, [each for each in map(_request, lines) if each and each.account in permissions]
    )


def _ours(lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    """Roles and bindings of the chart and of its controllers, as each write left them."""
    for line in lines:
        written = line.response_object or {}
        labels = written.get("metadata", {}).get("labels", {})
        is_ours = labels.get(NAME) == "drawbridge" or FOR in labels
        if is_ours and "dryRun=" not in line.request_uri:
            yield written


def _request(line: Line) -> Request | None:
    what = line.object_ref
    if what is None or not line.user.username.startswith(ACCOUNT):
        return None
    account = line.user.username.removeprefix(ACCOUNT).replace(":", "/")
    resource = f"{what.resource}/{what.subresource}".rstrip("/")
    wanted = Permission(what.namespace or EVERYWHERE, what.api_group, resource, what.name, line.verb)
    return Request(
        account, wanted, line.annotations.get(DECISION) == "allow", line.request_received_timestamp
    )


def proved(logs: Iterable[AccessLog]) -> set[tuple[str, str, Permission]]:
    """Account, feature and right of the table: what was used where no other feature gives the same."""
    return {(*each, right) for log in logs for each, right in _proved(log)}


def _proved(log: AccessLog) -> Iterator[tuple[tuple[str, str], Permission]]:
    for account, held in log.granted.items():
        namespace, _, name = account.partition("/")
        kind = name.removeprefix(RELEASE) if name.startswith(RELEASE) else "health checkers"
        features = by_feature(kind)
        enabled = _enabled(features, seen_from(namespace, held))
        for right in seen_from(namespace, log.used(account)):
            if len(by := [each for each in enabled if right in features[each]]) == 1:
                yield (kind, by[0]), right


def _enabled(features: Mapping[str, set[Permission]], held: set[Permission]) -> list[str]:
    """By what is *held*; one whose permissions the others bring together counts as off."""
    candidates = {each: given for each, given in features.items() if given <= held}
    return [each for each, given in candidates.items() if not given <= _all_but(each, candidates)]


def _all_but(feature: str, features: Mapping[str, set[Permission]]) -> set[Permission]:
    return {right for each, given in features.items() if each != feature for right in given}
