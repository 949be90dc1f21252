"""Store an IngressDaemonSet complete and correct, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import msgspec

from api.ingress_daemonset import DEFAULTS_PATH, KIND, NAME, RULES_PATH
from api.ingress_daemonset.template import readable, template_of
from api.ingress_daemonset.types import IngressDaemonSet, defaulted, overridden, resource
from kube.errors import KubeError
from kube.types import Value
from settings import IngressDaemonSetSettings
from webhook.admission import MOST_PARTS, Decision, Request, ReviewError, allow, change, decoded, deny, parts
from webhook.deadline import in_time
from webhook.ingress_daemonset.validate import (
    MOST_PROBLEMS,
    PATH,
    PortUser,
    Problem,
    load_balancer_problems,
    port_problems,
    port_warnings,
    problems,
    warnings,
)

Settings = Callable[[], IngressDaemonSetSettings]
Raw = dict[str, Any]
PortUsers = Callable[[IngressDaemonSet, float], Sequence[PortUser]]
"""Other IngressDaemonSets, of all namespaces, that use a health port of one, read by a deadline. KubeError."""
TemplateProblems = Callable[[Mapping[str, Any], float], Sequence[Problem]]
"""Fields of a template that the API server would drop or refuse, read by a deadline. KubeError."""


class DefaultingWebhook:
    name, path = f"{NAME}_defaults", DEFAULTS_PATH

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def fails_open(self) -> bool:
        """Never: the rules are about what is stored, and storing it can wait."""
        return False

    def review(self, request: Request, deadline: float) -> Decision:  # noqa: ARG002 - it only computes
        if isinstance(written := written_in(request, self._settings()), str):
            return allow(audit={"skipped": written})
        # The schema is checked later, and has better messages for fields of a wrong type.
        if not is_readable(new := written.new):
            return allow(audit={"skipped": "left to the schema to refuse"})
        return change(new, defaulted(new, written.stored), warnings=tuple(overridden(new)))


class ValidatingWebhook:
    name, path = NAME, RULES_PATH

    def __init__(
        self, settings: Settings, port_users: PortUsers, template_problems: TemplateProblems
    ) -> None:
        self._settings, self._port_users, self._template_problems = settings, port_users, template_problems

    def fails_open(self) -> bool:
        """Never, as the defaults."""
        return False

    def review(self, request: Request, deadline: float) -> Decision:
        if isinstance(written := written_in(request, self._settings()), str):
            return allow(audit={"skipped": written})
        try:
            return self._judged(written, deadline)
        except msgspec.ValidationError as error:
            raise ReviewError(f"request.object is malformed: {error}") from None

    def _judged(self, written: Written, deadline: float) -> Decision:
        given = msgspec.convert(written.new, IngressDaemonSet)
        try:
            template = template_of(given.spec)
        except msgspec.ValidationError as error:
            return refused(given.metadata.name, [(PATH, f"it is no pod template: {error}")])
        new, stored = resource(written.new), written.stored
        old, settings = resource(stored) if stored else None, self._settings()
        users, fields, unknown = self._lookup(new, old, deadline)
        unallowed = load_balancer_problems(new, old, settings.clb)
        found = chain(problems(new, template), unallowed, fields, port_problems(new, users))
        if first := list(islice(in_time(found, deadline), MOST_PROBLEMS + 1)):
            return refused(new.metadata.name, first)
        return allow(warnings=(*warnings(new, settings), *port_warnings(new, users), *unknown))

    def _lookup(
        self, new: IngressDaemonSet, old: IngressDaemonSet | None, deadline: float
    ) -> tuple[Sequence[PortUser], Sequence[Problem], list[str]]:
        users: Sequence[PortUser] = ()
        fields: Sequence[Problem] = ()
        unknown = []
        if new.spec.health_check_node_ports:
            try:
                users = self._port_users(new, deadline)
            except KubeError as error:
                unknown.append(f"healthCheckNodePorts were not compared with others': {error}")
        if not old or new.spec.template != old.spec.template:
            try:
                fields = self._template_problems(new.spec.template, deadline)
            except KubeError as error:
                unknown.append(f"unknown fields of spec.template were not looked for: {error}")
        return users, fields, unknown


@dataclass(frozen=True)
class Written:
    """The new object, and the one before; None without one, and for an unreadable one, which may be corrected."""

    new: Raw
    stored: Raw | None


def written_in(request: Request, settings: IngressDaemonSetSettings) -> Written | str:
    """What is written, or why it is allowed without a review."""
    if not settings.enabled:
        return "ingress daemonset is disabled"
    if request.object is None or request.sub_resource:
        return "no spec"
    outline, before = _outline(request.object, "object"), _outline(request.old_object, "oldObject")
    if outline.metadata.deletion_timestamp:
        return "being deleted"
    # A newer rule must not prevent changes of labels, or of our finalizer.
    if request.old_object and bytes(outline.spec) == bytes(before.spec):
        return "same spec"
    if (count := parts(outline.spec)) > MOST_PARTS:
        raise ReviewError(
            f"request.object.spec has about {count} fields and values; at most {MOST_PARTS} are read"
        )
    is_short = request.old_object and parts(before.spec) <= MOST_PARTS
    old = _raw(before, "oldObject") if is_short else None
    return Written(_raw(outline, "object"), old if old and is_readable(old) else None)


class _Metadata(Value, frozen=True):
    """What the rules read: others, as managedFields, may be long."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None


class _Outline(Value, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: msgspec.Raw = msgspec.Raw()


def _outline(raw: msgspec.Raw | None, field: str) -> _Outline:
    return decoded(raw or msgspec.Raw(b"{}"), _Outline, field)


def _raw(outline: _Outline, field: str) -> Raw:
    """Without its status, which may be long."""
    found: Raw = {"metadata": msgspec.to_builtins(outline.metadata)}
    return found | ({"spec": decoded(outline.spec, Any, field)} if outline.spec else {})


def is_readable(raw: Raw) -> bool:
    try:
        readable(raw)
    except msgspec.ValidationError:
        return False
    return True


def refused(name: str, found: Sequence[Problem]) -> Decision:
    """In the API server's words."""
    faults = "; ".join(f"{path}: {message}" for path, message in found[:MOST_PROBLEMS])
    more = "; and more" if len(found) > MOST_PROBLEMS else ""
    return deny(f'{KIND} "{name}" is invalid: {faults}{more}', code=422, reason="Invalid")
