"""What the code says of itself: its metrics, the reasons of its Events, its settings, and the chart's values."""

import ast
import functools
import re
from collections.abc import Iterator
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from settings import Settings
from tests.pages import ROOT

PRODUCT = (
    "settings",
    "telemetry",
    "kube",
    "runtime",
    "certs",
    "calico",
    "cloud",
    "webhook",
    "api",
    "healthchecker",
    "controllers",
)


@functools.cache
def nodes_of(package: str) -> list[ast.AST]:
    trees = [ast.parse(path.read_text()) for path in sorted((ROOT / package).rglob("*.py"))]
    return [node for tree in trees for node in ast.walk(tree)]


@functools.cache
def nodes() -> list[ast.AST]:
    return [node for package in PRODUCT for node in nodes_of(package)]


@functools.cache
def calls() -> list[ast.Call]:
    return [node for node in nodes() if isinstance(node, ast.Call)]


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def text_of(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@functools.cache
def metrics() -> set[str]:
    """As a scraper sees them: a counter always ends in _total."""
    found = set()
    for call in calls():
        if (
            called(call) in ("Counter", "Gauge", "Histogram")
            and call.args
            and (name := text_of(call.args[0]))
        ):
            found.add(f"{name.removesuffix('_total')}_total" if called(call) == "Counter" else name)
    return found


@functools.cache
def series() -> set[str]:
    histograms = {text_of(call.args[0]) for call in calls() if called(call) == "Histogram"}
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}
    return metrics() | parts


# fmt: off
OF_OTHERS = {
    "AdmissionReview", "BadRequest", "ConfigMap", "ControllerRevision", "DaemonSet", "DaemonSets", "DeleteTags",
    "DisruptionTarget", "DoNotSchedule", "HighQualityEIP", "IfNotPresent", "IngressDaemonSet",
    "ContainerCreating", "FailedAttachVolume", "FailedMount", "InspectFailed", "PodInitializing",
    "PodReadyToStartContainers", "BackOff", "ErrImageNeverPull",
    "IngressDaemonSets", "InternalError", "NewReplicaSetAvailable", "NoExecute", "NoSchedule",
    "NodeLost", "NodeShutdown", "NotIn", "NotReady", "PodScheduled", "PreferNoSchedule", "ProgressDeadlineExceeded",
    "ClusterRole", "OnDelete", "OnFailure", "ReplicaSet", "RoleBinding", "RollingUpdate", "RuntimeDefault",
    "ServiceAccount", "ServiceUnavailable", "StatefulSet", "TerminationByKubelet", "ToBeDeletedByClusterAutoscaler",
    "TooManyRequests", "ValidatingWebhookConfiguration", "WaitForFirstConsumer",
}
# fmt: on
"""Words of Kubernetes and the cloud that are written like a reason."""
WITH_REASONS = ("api", "calico", "certs", "controllers", "healthchecker", "webhook")


@functools.cache
def reasons() -> set[str]:
    """The reasons of Events and conditions: all texts of two or more capitalized words that are not OF_OTHERS."""
    return {
        text for text in texts(WITH_REASONS) if re.fullmatch("([A-Z]+[a-z]+){2,}[A-Z]*", text)
    } - OF_OTHERS


@functools.cache
def texts(packages: tuple[str, ...] = PRODUCT) -> set[str]:
    """All texts in the code of *packages*."""
    found = [node for package in packages for node in nodes_of(package)]
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def leaves(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The settings, as written in the file; `name[].part` is a part of each thing in a list."""
    for name, field in model.model_fields.items():
        where = f"{path}{field.alias or name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{where}.")
        else:
            yield where, field
            for part in get_args(field.annotation):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    yield from leaves(part, f"{where}[].")


SETTINGS = {name: field for name, field in leaves(Settings) if "[]." not in name}
PARTS = [name for name, _ in leaves(Settings) if "[]." in name]


def paths(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """Of all values, and of what they stand in."""
    for key, part in values.items():
        yield f"{path}{key}"
        if isinstance(part, dict):
            yield from paths(part, f"{path}{key}.")


@functools.cache
def chart_values() -> set[str]:
    return {*paths(yaml.safe_load((ROOT / "charts" / "drawbridge" / "values.yaml").read_text()))}


def takes(name: str) -> bool:
    """Whether the chart has a value of this name, or one above it into which anything may be written."""
    known = chart_values()
    above = name.rpartition(".")[0]
    return name in known or (
        bool(above) and takes(above) and not any(each.startswith(f"{above}.") for each in known)
    )
