"""An IngressDaemonSet is stored whole and without a fault, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kube.errors import KubeError
from settings import IngressDaemonSetSettings
from webhook.admission import Decision, Request, ReviewError, allow, change, decoded, deny
from webhook.ingress_daemonset import DEFAULTS_PATH, KIND, NAME, RULES_PATH
from webhook.ingress_daemonset.defaults import defaulted, overridden, rolling_update
from webhook.ingress_daemonset.field_errors import Problem
from webhook.ingress_daemonset.port_conflicts import Neighbour, port_problems, port_warnings
from webhook.ingress_daemonset.template import readable
from webhook.ingress_daemonset.types import IngressDaemonSet, resource
from webhook.ingress_daemonset.validate import problems, two_spellings, warnings

Settings = Callable[[], IngressDaemonSetSettings]
Raw = dict[str, Any]


class Cluster(Protocol):
    """What the rules need to know of the cluster; the method raises KubeError."""

    def neighbours(self, new: IngressDaemonSet, *, deadline: float) -> Sequence[Neighbour]:
        """The other IngressDaemonSets, of all namespaces."""


class PodTemplates(Protocol):
    """What the API server knows of pod templates; the method raises KubeError."""

    def problems(self, template: Mapping[str, Any], *, deadline: float) -> Sequence[Problem]:
        """Fields of *template* that the API server would drop, or refuse."""


class Defaults:
    """The mutating half, as the admission server calls it."""

    name, path = f"{NAME}_defaults", DEFAULTS_PATH

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def fails_open(self) -> bool:
        """Never: the rules are about what is stored, and there is no hurry to store it."""
        return False

    def review(self, request: Request, deadline: float) -> Decision:  # noqa: ARG002 - nothing here waits
        if skipped := unconcerned(request, self._settings()):
            return allow(audit={"skipped": skipped})
        # The schema is checked after this: its own words for what is of a wrong type are the better ones.
        if not is_readable(new := _raw(request.object, "object")):
            return allow(audit={"skipped": "left to the schema to refuse"})
        old = _old(request)
        return change(new, defaulted(new, old), warnings=tuple(overridden(new, old)))


class Rules:
    """The validating half, as the admission server calls it: gather, decide."""

    name, path = NAME, RULES_PATH

    def __init__(self, settings: Settings, cluster: Cluster, templates: PodTemplates) -> None:
        self._settings, self._cluster, self._templates = settings, cluster, templates

    def fails_open(self) -> bool:
        """Never, as the defaults."""
        return False

    def review(self, request: Request, deadline: float) -> Decision:
        if skipped := unconcerned(request, self._settings()):
            return allow(audit={"skipped": skipped})
        raw = _raw(request.object, "object")
        new, old = _resource(raw), _stored(request)
        neighbours, unknown = self._neighbours(new, deadline) if is_readable(raw) else ((), ())
        fields, unchecked = self._fields(new, old, deadline) if is_readable(raw) else ((), ())
        found = [
            *two_spellings(rolling_update(defaulted(raw))),
            *problems(new, old),
            *fields,
            *port_problems(new, neighbours),
        ]
        if found:
            return refused(new.metadata.name, found)
        return allow(warnings=(*warnings(new), *port_warnings(new, neighbours), *unknown, *unchecked))

    def _neighbours(
        self, new: IngressDaemonSet, deadline: float
    ) -> tuple[Sequence[Neighbour], tuple[str, ...]]:
        """The others, and what to warn of when they cannot be known."""
        if not new.spec.health_check_node_ports:
            return (), ()
        try:
            return self._cluster.neighbours(new, deadline=deadline), ()
        except KubeError as error:
            return (), (f"healthCheckNodePorts were not compared with others': {error}",)

    def _fields(
        self, new: IngressDaemonSet, old: IngressDaemonSet | None, deadline: float
    ) -> tuple[Sequence[Problem], tuple[str, ...]]:
        """Of a template that is new, and what to warn of when its fields cannot be known."""
        template = new.spec.template
        if old and template == old.spec.template:
            return (), ()
        try:
            return self._templates.problems(template, deadline=deadline), ()
        except KubeError as error:
            return (), (f"unknown fields of spec.template were not looked for: {error}",)


def unconcerned(request: Request, settings: IngressDaemonSetSettings) -> str:
    """Why the request is let through as it is, or nothing when it is to be looked at."""
    if not settings.enabled:
        return "ingress daemonset is disabled"
    if request.object is None or request.sub_resource:
        return "no spec"
    new = _raw(request.object, "object")
    if _is_being_deleted(new):
        return "being deleted"
    # A rule that came later must not keep anybody from changing labels, or us from taking our finalizer away.
    if request.old_object is not None and new.get("spec") == _raw(request.old_object, "oldObject").get(
        "spec"
    ):
        return "same spec"
    return ""


def is_readable(raw: Raw) -> bool:
    try:
        readable(raw)
    except msgspec.ValidationError:
        return False
    return True


def _is_being_deleted(raw: Raw) -> bool:
    metadata = raw.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("deletionTimestamp"))


def refused(name: str, found: Iterable[Problem]) -> Decision:
    """As the API server words it."""
    faults = "; ".join(f"{path}: {message}" for path, message in found)
    return deny(f'{KIND} "{name}" is invalid: {faults}', code=422, reason="Invalid")


def _raw(raw: msgspec.Raw | None, field: str) -> Raw:
    return decoded(raw or msgspec.Raw(b"{}"), dict[str, Any], field)


def _old(request: Request) -> Raw | None:
    """What was stored until now; nothing of one that cannot be read, so that it can be put right."""
    raw = _raw(request.old_object, "oldObject")
    return raw if raw and is_readable(raw) else None


def _stored(request: Request) -> IngressDaemonSet | None:
    old = _old(request)
    return resource(old) if old else None


def _resource(raw: Raw) -> IngressDaemonSet:
    try:
        msgspec.convert(raw, IngressDaemonSet)
        return resource(raw)
    except msgspec.ValidationError as error:
        raise ReviewError(f"request.object is malformed: {error}") from None
