"""Which folder may import which: the floors of the house."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest

import features

ROOT = Path(__file__).parent.parent

FLOORS = {
    "runtime": set(),
    "settings": set(),
    "telemetry": set(),
    "kube": {"telemetry", "settings"},
    "certs": {"kube", "telemetry", "settings"},
    "cloud": {"telemetry", "settings"},
    "calico": {"kube", "telemetry", "settings"},
    "api": {"calico", "kube", "settings"},
    "webhook": {"api", "calico", "certs", "kube", "telemetry", "settings"},
    "healthchecker": {"api", "kube", "telemetry", "settings"},
    "controllers": {
        "api",
        "healthchecker",
        "calico",
        "certs",
        "cloud",
        "kube",
        "telemetry",
        "settings",
    },
    "cli": {
        "controllers",
        "webhook",
        "api",
        "calico",
        "certs",
        "cloud",
        "kube",
        "telemetry",
        "settings",
    },
    "dashboard": {"cli", "controllers", "webhook", "api", "kube", "telemetry"},
}
"""What each package of the product may import, besides itself and libraries."""

API = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "api").rglob("*.py"))
WITH_POOLS = ["api/same_address.py"]
"""It takes the types of pools from the modules that read them."""

ADMISSION = [
    *API,
    "webhook/anycast_ip/webhook.py",
    "webhook/elasticity/webhook.py",
    "webhook/ingress_daemonset/evictions.py",
    "webhook/ingress_daemonset/validate.py",
    "webhook/ingress_daemonset/webhook.py",
    "webhook/ip_reservation/webhook.py",
]

VALUES = {
    "kube.resources",
    "kube.selectors",
    "kube.types",
    "kube.errors",
    "calico.segment",
    "settings",
    "settings.windows",
    "webhook.admission",
    "webhook.deadline",
    *(path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".") for path in ADMISSION),
}
"""What a feature's admission may import: values and errors, no way to do any I/O."""

PURE = [
    "webhook/admission.py",
    *ADMISSION,
    "calico/segment.py",
    "certs/issue.py",
    "certs/rotation.py",
    "cloud/types.py",
    "healthchecker/config.py",
    "kube/selectors.py",
    "kube/types.py",
    "kube/resources.py",
    "settings/windows.py",
]
PLANS = [
    "controllers/anycast_ip/claim.py",
    "controllers/anycast_ip/snapshot.py",
    "controllers/anycast_ip/planner.py",
    "controllers/elasticity/nodes.py",
    "controllers/elasticity/patches.py",
    "controllers/elasticity/filters.py",
    "controllers/elasticity/room.py",
    "controllers/elasticity/planner.py",
    "controllers/elasticity/pods.py",
    "controllers/elasticity/rules.py",
    "controllers/elasticity/snapshot.py",
    "controllers/ingress_daemonset/children.py",
    "controllers/ingress_daemonset/detachment.py",
    "controllers/ingress_daemonset/drift.py",
    "controllers/ingress_daemonset/forecast.py",
    "controllers/ingress_daemonset/health_checks.py",
    "controllers/ingress_daemonset/load_balancers.py",
    "controllers/ingress_daemonset/nodes.py",
    "controllers/ingress_daemonset/pacing.py",
    "controllers/ingress_daemonset/planner.py",
    "controllers/ingress_daemonset/rollout.py",
    "controllers/ingress_daemonset/status.py",
    "controllers/ip_reservation/release_planner.py",
]


TABLE = "features"
PROGRAMS = {"webhook", "controllers", "cli", "dashboard"}
"""They do what the table of features says."""

SEAM = "runtime"
"""Where product code takes time, threads and chance from; a decision takes none of them."""

NO_IO = {
    SEAM,
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
"""Libraries without which no I/O can be done."""


@functools.cache
def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.append(node.module or "")
    return found


def present(paths: list[str]) -> list[str]:
    """Those of packages that are there: a feature may be deleted, a listed module not renamed."""
    return [path for path in paths if (ROOT / path).parent.exists()]


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def ours(names: Iterable[str]) -> set[str]:
    known = {*FLOORS, TABLE, "dev", "tests", "wsgi"}
    return {name for name in names if name.partition(".")[0] in known}


@pytest.mark.parametrize("package", [each for each in FLOORS if (ROOT / each).exists()])
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    allowed = FLOORS[package] | {package, SEAM} | ({TABLE} if package in PROGRAMS else set())
    broken = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(package)
        for name in ours(imports(path))
        if name.partition(".")[0] not in allowed
    }

    assert modules(package)
    assert broken == set()


BEHIND_THE_SEAM = {"queue", "threading", "time", "random", "secrets", "concurrent.futures"}

UNPREDICTABLE = {"dashboard/app.py: secrets"}
"""A token that no one may guess, a simulator neither."""


@pytest.mark.parametrize("package", [each for each in FLOORS if each != SEAM and (ROOT / each).exists()])
def test_time_threads_and_chance_come_from_the_seam(package: str) -> None:
    past_it = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(package)
        for name in imports(path)
        if name in BEHIND_THE_SEAM
    }

    assert past_it - UNPREDICTABLE == set()


CLOCKS = {"now", "utcnow", "utc_now", "today", "time", "monotonic", "perf_counter"}
"""Functions without arguments, or with a time zone, that read a clock."""


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported: bodies of functions do not, their defaults and decorators do."""
    yield node
    match node:
        case ast.Lambda():
            parts: list[ast.AST] = [node.args]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            parts = [node.args, *node.decorator_list]
        case _:
            parts = [*ast.iter_child_nodes(node)]
    for part in parts:
        yield from at_import(part)


def clocks_read(source: str) -> list[int]:
    """Lines at which an import of *source* reads a clock."""
    calls = (each for each in at_import(ast.parse(source)) if isinstance(each, ast.Call))
    named = ((each.lineno, each.func) for each in calls)
    return [
        line
        for line, name in named
        if (isinstance(name, ast.Attribute) and name.attr in CLOCKS)
        or (isinstance(name, ast.Name) and name.id in CLOCKS)
    ]


def test_no_test_takes_the_time_when_it_is_imported() -> None:
    found = {str(path.relative_to(ROOT)): clocks_read(path.read_text()) for path in modules("tests")}

    assert {path: lines for path, lines in found.items() if lines} == {}
    begun = (
        "NOW = datetime.now(UTC)\ndef of(at=time()): return time()\n@case(NOW, utc_now())\ndef test(): now()"
    )
    assert clocks_read(begun) == [1, 2, 3]


FEATURES = ("ip_reservation", "anycast_ip", "elasticity", "ingress_daemonset", "certificates")


@pytest.mark.parametrize("half", ["webhook", "controllers"])
@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_imports_no_other(half: str, feature: str) -> None:
    others = {
        f"{package}.{each}" for package in ("webhook", "controllers") for each in FEATURES if each != feature
    }
    imported = {name for path in modules(f"{half}/{feature}") for name in ours(imports(path))}

    assert {name for name in imported for other in others if f"{name}.".startswith(f"{other}.")} == set()


@pytest.mark.parametrize("path", [path for path in present(ADMISSION) if path not in WITH_POOLS])
def test_the_admission_of_a_feature_imports_values_only(path: str) -> None:
    assert ours(imports(ROOT / path)) <= VALUES


@pytest.mark.parametrize("path", present([*PURE, *PLANS]))
def test_a_decision_can_do_no_io(path: str) -> None:
    roots = {name.partition(".")[0] for name in imports(ROOT / path)}

    assert not roots & NO_IO


EDGES = {
    *(f"cli/{name}.py" for name in ("__main__", "app", "cluster", "output")),
    *("cli/inventory.py", "cli/explain/kinds.py", "cli/doctor.py"),
    *(f"dashboard/{name}.py" for name in ("__main__", "app", "command", "pages")),
}
"""Modules of the command and of its page that do I/O by themselves. All others read by the inventory."""


@pytest.mark.parametrize(
    "path",
    [
        str(path.relative_to(ROOT))
        for package in ("cli", "dashboard")
        for path in modules(package)
        if str(path.relative_to(ROOT)) not in EDGES
    ],
)
def test_commands_read_by_the_inventory_alone(path: str) -> None:
    assert not {name.partition(".")[0] for name in imports(ROOT / path)} & NO_IO


DECIDE = (
    "cli/errors.py",
    "cli/installation.py",
    "cli/explain/matching.py",
    "cli/explain/prediction.py",
    "cli/value_names.py",
)
"""What many commands decide by, and show."""


@pytest.mark.parametrize("path", DECIDE)
def test_what_commands_share_is_functions_of_values(path: str) -> None:
    readers = {"kube.client", "calico.reservations", "cli.session", "cli.cluster", "cli.inventory"}

    assert not set(imports(ROOT / path)) & readers


def test_flask_is_imported_by_servers_only() -> None:
    importers = {
        str(path.relative_to(ROOT))
        for package in FLOORS
        for path in modules(package)
        if any(name.partition(".")[0] == "flask" for name in imports(path))
    }

    # A copy without one of the features has no dashboard: it shows all of them.
    pages = (f"dashboard/{name}.py" for name in ("__main__", "app", "command"))
    servers = {"webhook/app.py", *pages}
    assert importers == {path for path in servers if (ROOT / path).parent.exists()}


def test_each_row_of_the_table_names_code_that_is_there() -> None:
    for feature in features.FEATURES:
        programs = (feature.controllers, feature.webhooks, feature.endpoint, feature.predicted)
        commands = (*(reference for reference, _ in feature.commands.values()), *feature.simulates.values())
        for reference in filter(None, (*programs, *commands)):
            assert callable(resolve_name(reference)), f"{feature.name}: {reference}"
        for reference in feature.explains.values():
            assert callable(resolve_name(reference).explain), f"{feature.name}: {reference}"
