"""Which folder may import which: the floors of the house."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FLOORS = {
    "settings": set(),
    "telemetry": {"settings"},
    "kube": {"telemetry", "settings"},
    "certs": {"kube", "telemetry", "settings"},
    "cloud": {"telemetry", "settings"},
    "calico": {"kube", "telemetry", "settings"},
    "webhook": {"healthchecker", "calico", "certs", "kube", "telemetry", "settings"},
    "healthchecker": {"kube", "telemetry", "settings"},
    "controllers": {"webhook", "healthchecker", "calico", "certs", "cloud", "kube", "telemetry", "settings"},
}
"""What each package of the product may import, besides itself and libraries."""

INGRESS_DAEMONSET = [
    f"webhook/ingress_daemonset/{name}.py"
    for name in (
        "__init__",
        "defaults",
        "evictions",
        "gate",
        "model",
        "neighbours",
        "nodes",
        "shares",
        "syntax",
        "template",
        "validate",
    )
]

VALUES = {
    "kube.node_matching",
    "kube.objects",
    "kube.errors",
    "calico.segment",
    "calico.errors",
    "healthchecker.naming",
    "settings",
    "webhook.admission",
    "webhook.elasticity",
    "webhook.elasticity.affinity",
    *(path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".") for path in INGRESS_DAEMONSET),
}
"""What a feature's admission may import: values and errors, no way to do any I/O."""

PURE = [
    "webhook/admission.py",
    "webhook/anycast_ip.py",
    "webhook/elasticity/__init__.py",
    "webhook/elasticity/affinity.py",
    "webhook/elasticity/gate.py",
    *INGRESS_DAEMONSET,
    "webhook/ip_reservation.py",
    "webhook/patch.py",
    "calico/segment.py",
    "certs/bundle.py",
    "certs/issue.py",
    "certs/plan.py",
    "certs/secret.py",
    "cloud/objects.py",
    "healthchecker/naming.py",
    "healthchecker/state.py",
    "healthchecker/task.py",
    "healthchecker/verdict.py",
    "kube/label_selectors.py",
    "kube/node_matching.py",
    "kube/objects.py",
    "kube/quantities.py",
]
PLANS = [
    "controllers/anycast_ip/case.py",
    "controllers/anycast_ip/claim.py",
    "controllers/anycast_ip/gather.py",
    "controllers/anycast_ip/leave.py",
    "controllers/anycast_ip/plan.py",
    "controllers/elasticity/burster.py",
    "controllers/elasticity/candidate.py",
    "controllers/elasticity/caps.py",
    "controllers/elasticity/costs.py",
    "controllers/elasticity/edits.py",
    "controllers/elasticity/failover.py",
    "controllers/elasticity/filters.py",
    "controllers/elasticity/fleet.py",
    "controllers/elasticity/ordinals.py",
    "controllers/elasticity/placement.py",
    "controllers/elasticity/pods.py",
    "controllers/elasticity/rules.py",
    "controllers/elasticity/scheduling.py",
    "controllers/elasticity/switches.py",
    "controllers/elasticity/topology.py",
    "controllers/elasticity/volumes.py",
    "controllers/elasticity/words.py",
    "controllers/ingress_daemonset/actions.py",
    "controllers/ingress_daemonset/beside.py",
    "controllers/ingress_daemonset/budgets.py",
    "controllers/ingress_daemonset/checkers.py",
    "controllers/ingress_daemonset/compare.py",
    "controllers/ingress_daemonset/confirmation.py",
    "controllers/ingress_daemonset/desired.py",
    "controllers/ingress_daemonset/drains.py",
    "controllers/ingress_daemonset/marks.py",
    "controllers/ingress_daemonset/objects.py",
    "controllers/ingress_daemonset/ports.py",
    "controllers/ingress_daemonset/rollout.py",
    "controllers/ingress_daemonset/site.py",
    "controllers/ingress_daemonset/status.py",
    "controllers/ip_reservation/release.py",
    "controllers/ip_reservation/backstop.py",
]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def ours(names: Iterator[str]) -> set[str]:
    known = {*FLOORS, "lab", "demo", "tests", "bench", "wsgi"}
    return {name for name in names if name.partition(".")[0] in known}


@pytest.mark.parametrize("package", FLOORS)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    allowed = FLOORS[package] | {package}
    broken = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(package)
        for name in ours(imports(path))
        if name.partition(".")[0] not in allowed
    }

    assert modules(package)
    assert broken == set()


@pytest.mark.parametrize(
    "path",
    [
        "webhook/anycast_ip.py",
        "webhook/elasticity/__init__.py",
        "webhook/elasticity/affinity.py",
        "webhook/elasticity/gate.py",
        *INGRESS_DAEMONSET,
        "webhook/ip_reservation.py",
    ],
)
def test_the_admission_of_a_feature_imports_values_only(path: str) -> None:
    assert ours(imports(ROOT / path)) <= VALUES


@pytest.mark.parametrize("path", [*PURE, *PLANS])
def test_a_decision_can_do_no_io(path: str) -> None:
    roots = {name.partition(".")[0] for name in imports(ROOT / path)}

    assert not roots & {
        "flask",
        "gunicorn",
        "kubernetes",
        "urllib3",
        "socket",
        "threading",
        "time",
        "os",
        "subprocess",
    }


def test_flask_is_imported_in_one_place() -> None:
    importers = {
        str(path.relative_to(ROOT))
        for package in FLOORS
        for path in modules(package)
        if any(name.partition(".")[0] == "flask" for name in imports(path))
    }

    assert importers == {"webhook/app.py"}
