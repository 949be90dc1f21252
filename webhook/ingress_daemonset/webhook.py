"""Store an IngressDaemonSet complete and correct, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kube.errors import KubeError
from settings import IngressDaemonSetSettings
from webhook.admission import Decision, Request, ReviewError, allow, change, decoded, deny
from webhook.ingress_daemonset import DEFAULTS_PATH, KIND, NAME, RULES_PATH
from webhook.ingress_daemonset.template import Problem, readable
from webhook.ingress_daemonset.types import IngressDaemonSet, defaulted, overridden, resource, rolling_update
from webhook.ingress_daemonset.validate import (
    PortUser,
    port_problems,
    port_warnings,
    problems,
    two_spellings,
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
        if skipped := unconcerned(request, self._settings()):
            return allow(audit={"skipped": skipped})
        # The schema is checked later, and has better messages for fields of a wrong type.
        if not is_readable(new := _raw(request.object, "object")):
            return allow(audit={"skipped": "left to the schema to refuse"})
        old = _stored(request)
        return change(new, defaulted(new, old), warnings=tuple(overridden(new, old)))


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
        if skipped := unconcerned(request, self._settings()):
            return allow(audit={"skipped": skipped})
        raw, stored = _raw(request.object, "object"), _stored(request)
        new, old = _resource(raw), resource(stored) if stored else None
        users, fields, unknown = self._lookup(new, old, deadline) if is_readable(raw) else ((), (), [])
        spelt = two_spellings(rolling_update(defaulted(raw)))
        found = [*spelt, *problems(new), *fields, *port_problems(new, users)]
        if found:
            return refused(new.metadata.name, found)
        return allow(warnings=(*warnings(new), *port_warnings(new, users), *unknown))

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


def unconcerned(request: Request, settings: IngressDaemonSetSettings) -> str:
    """Why the request is allowed without a review, or nothing."""
    if not settings.enabled:
        return "ingress daemonset is disabled"
    if request.object is None or request.sub_resource:
        return "no spec"
    new = _raw(request.object, "object")
    metadata = new.get("metadata")
    if isinstance(metadata, dict) and metadata.get("deletionTimestamp"):
        return "being deleted"
    # A newer rule must not prevent changes of labels, or of our finalizer.
    if request.old_object and new.get("spec") == _raw(request.old_object, "oldObject").get("spec"):
        return "same spec"
    return ""


def is_readable(raw: Raw) -> bool:
    try:
        readable(raw)
    except msgspec.ValidationError:
        return False
    return True


def refused(name: str, found: Iterable[Problem]) -> Decision:
    """In the API server's words."""
    faults = "; ".join(f"{path}: {message}" for path, message in found)
    return deny(f'{KIND} "{name}" is invalid: {faults}', code=422, reason="Invalid")


def _raw(raw: msgspec.Raw | None, field: str) -> Raw:
    return decoded(raw or msgspec.Raw(b"{}"), dict[str, Any], field)


def _stored(request: Request) -> Raw | None:
    """The old object; None for an unreadable one, which may be corrected."""
    raw = _raw(request.old_object, "oldObject")
    return raw if raw and is_readable(raw) else None


def _resource(raw: Raw) -> IngressDaemonSet:
    try:
        msgspec.convert(raw, IngressDaemonSet)
        return resource(raw)
    except msgspec.ValidationError as error:
        raise ReviewError(f"request.object is malformed: {error}") from None
