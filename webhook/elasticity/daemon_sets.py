"""A DaemonSet that tolerates super nodes is kept off them by its own template, so that it makes no pods for them.

Kept off by their own affinity alone, such pods would be created all the same and stay pending for good: the
controller of DaemonSets looks at nothing but the template. A template is completed when it is new or changes anyway:
any other change of it would replace all pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from api.elasticity import DAEMON_SETS_PATH, affinity_to_set, is_injected
from kube.types import Value
from settings import ElasticitySettings
from webhook.admission import MOST_PARTS, Decision, Request, allow, change, decoded, parts
from webhook.elasticity.webhook import MOST_ENTRIES, NewPod, number_of_terms

NAME = "elasticity-daemonsets"

Raw = Mapping[str, Any]


class _Spec(Value, frozen=True):
    template: NewPod = NewPod()


class NewDaemonSet(Value, frozen=True):
    """All that is read or changed of it."""

    spec: _Spec = _Spec()


class DaemonSetWebhook:
    """As the admission server calls it."""

    name, path = NAME, DAEMON_SETS_PATH

    def __init__(self, settings: Callable[[], ElasticitySettings]) -> None:
        self._settings = settings

    def fails_open(self) -> bool:
        """Always: the leader corrects what slips through."""
        return True

    def review(self, request: Request, deadline: float) -> Decision:  # noqa: ARG002 - nothing here waits
        settings = self._settings()
        if not settings.enabled:
            return allow(audit={"skipped": "elasticity is disabled"})
        if request.object is None:
            return allow(audit={"skipped": "no template"})
        if (count := parts(request.object) + parts(request.old_object)) > 2 * MOST_PARTS:
            return _left(f"it has about {count} fields and values, old and new")
        new, template = _template(request.object, "object")
        if request.old_object is not None and _template(request.old_object, "oldObject")[1] == template:
            return allow(audit={"skipped": "the template does not change"})
        spec = template.get("spec", {})
        if (count := number_of_terms(new.spec)) > MOST_ENTRIES:
            return _left(f"its template has {count} node selector terms, more than {MOST_ENTRIES}")
        if is_injected(new.metadata):
            return allow(audit={"skipped": "to be injected beside the pods of super nodes"})
        if (affinity := affinity_to_set(spec, new.spec.tolerations)) is None:
            return allow(audit={"skipped": "not for super nodes"})
        audit = {"kept-off-super-nodes": "a DaemonSet that tolerates them"}
        return change(_with(spec.get("affinity")), _with(affinity), audit=audit)


def _left(why: str) -> Decision:
    return allow(warnings=(f"elasticity: this DaemonSet is left as it is: {why}",))


def _template(daemon_set: msgspec.Raw, field: str) -> tuple[NewPod, Raw]:
    """As far as it is read, and all of it, raw; what is no DaemonSet is refused."""
    raw = decoded(daemon_set, dict[str, Any], field)
    return decoded(daemon_set, NewDaemonSet, field).spec.template, raw.get("spec", {}).get("template", {})


def _with(affinity: Raw | None) -> dict[str, Any]:
    """A DaemonSet's part that changes; the field may be absent, and its parents are not."""
    spec = {} if affinity is None else {"affinity": affinity}
    return {"spec": {"template": {"spec": spec}}}
