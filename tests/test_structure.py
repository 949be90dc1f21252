"""Parts stay small and arrows point down: no long parameter lists, and no import that runs back up."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.test_layers import FEATURES, FLOORS, ROOT, SEAM

MOST_PARAMETERS = 6


def modules() -> dict[str, Path]:
    """Of the product, by dotted name."""
    paths = (path for package in FLOORS for path in (ROOT / package).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}


MODULES = {name.removesuffix(".__init__"): path for name, path in modules().items()}


def imported(path: Path) -> Iterator[str]:
    """Modules of the product that *path* imports: ``from package import module`` is an import of the module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            members = {f"{node.module}.{each.name}" for each in node.names}
            yield from members & MODULES.keys() or {node.module}


@functools.cache
def imports() -> dict[str, set[str]]:
    return {name: set(imported(path)) - {name} for name, path in MODULES.items()}


def long_signatures(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if len([each for each in given if each.arg not in ("self", "cls")]) > MOST_PARAMETERS:
                yield node.name
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(x) for x in node.decorator_list):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and each.value is None]
            if len(fields) > MOST_PARAMETERS:
                yield node.name


def test_no_function_and_no_dataclass_takes_more_than_six_parameters() -> None:
    found = {
        path: set(long_signatures(ROOT / path))
        for path in (str(each.relative_to(ROOT)) for each in MODULES.values())
    }

    assert {path: names for path, names in found.items() if names} == {}


def test_no_imports_of_the_product_run_in_a_circle() -> None:
    TopologicalSorter(imports()).prepare()


def test_what_the_controllers_share_imports_no_feature() -> None:
    shared = [name for name in MODULES if name.startswith("controllers.") and name.count(".") == 1]

    assert [name for name in shared if any(_is_of_a_feature(each) for each in imports()[name])] == []


@pytest.mark.parametrize("feature", FEATURES)
def test_no_import_within_a_feature_runs_back_up(feature: str) -> None:
    """A controller imports reconcilers, and these the snapshot, planner, actions and reporter; never back."""
    package = f"controllers.{feature}."
    arrows = [(name, each) for name in MODULES for each in imports()[name] if name.startswith(package)]

    assert [
        (name, each) for name, each in arrows if each.startswith(package) and _height(each) > _height(name)
    ] == []


def _height(module: str) -> int:
    name = module.rpartition(".")[2]
    return 2 if name == "controller" else 1 if "reconciler" in name else 0


def _is_of_a_feature(module: str) -> bool:
    return any(f"{module}.".startswith(f"controllers.{feature}.") for feature in FEATURES)


def test_a_package_has_no_code_of_its_own() -> None:
    """But for the seam, which is one module: a simulator puts its own in its place."""
    packages = [name for name, path in MODULES.items() if path.name == "__init__.py" and name != SEAM]
    definitions = (ast.FunctionDef, ast.ClassDef)

    assert [
        name
        for name in packages
        if any(isinstance(each, definitions) for each in ast.parse(MODULES[name].read_text()).body)
    ] == []
