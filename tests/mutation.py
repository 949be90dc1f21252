"""`python -m tests.mutation [module.py=tests.py,... ...]`: change decisions one by one, and list what no test detects.

Each mutant is one change in a module's functions: a comparison, a boolean operator, a constant, a condition or a
returned value. The module's tests run on it in a forked process, which imports the mutant in the module's place.
A mutant that survives is a gap in the tests, or means the same as the code.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

TARGETS = {
    "calico/ledger.py": ["tests/test_ledger.py"],
    "calico/segment.py": ["tests/test_segment.py", "tests/test_ip_reservation_release_planner.py"],
    "certs/rotation.py": ["tests/test_certificates_plan.py"],
    "controllers/anycast_ip/planner.py": ["tests/test_anycast_plan.py"],
    "controllers/elasticity/planner.py": [
        "tests/test_elasticity_reconciler.py",
        "tests/test_elasticity_burst.py",
        "tests/test_elasticity_failover.py",
        "tests/test_elasticity_wishes.py",
        "tests/test_elasticity_rollouts.py",
        "tests/test_elasticity_shares.py",
    ],
    "controllers/elasticity/room.py": [
        "tests/test_elasticity_placement.py",
        "tests/test_elasticity_fit.py",
        "tests/test_elasticity_subnets.py",
        "tests/test_elasticity_failover.py",
        "tests/test_elasticity_wishes.py",
    ],
    "controllers/ingress_daemonset/planner.py": [
        "tests/test_ingress_daemonset_rollout.py",
        "tests/test_ingress_daemonset_drains.py",
    ],
    "controllers/ingress_daemonset/rollout.py": [
        "tests/test_ingress_daemonset_rollout.py",
        "tests/test_ingress_daemonset_drains.py",
    ],
    "controllers/ip_reservation/late_reservations.py": ["tests/test_ip_reservation_late.py"],
    "controllers/ip_reservation/opt_in.py": ["tests/test_ip_reservation_opt_in_planner.py"],
    "controllers/ip_reservation/pools.py": ["tests/test_ip_reservation_budget.py"],
    "controllers/ip_reservation/release_planner.py": [
        "tests/test_ip_reservation_release_planner.py",
        "tests/test_ip_reservation_budget.py",
        "tests/test_ip_reservation_compaction.py",
        "tests/test_ip_reservation_copies.py",
    ],
}
FIRST = (
    "pytest",
    "_pytest.assertion.rewrite",
    "hypothesis",
    "msgspec",
    "structlog",
    "prometheus_client",
    "urllib3",
)
"""Imported once, before the forks."""
LIMIT = 120
"""Seconds for the tests of one mutant: one that never ends is detected, too."""

COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """*tree* is the whole module with one change, which is at *line*."""

    path: Path
    line: int
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


@dataclass(frozen=True)
class Place:
    """Where a module can be changed, and how."""

    path: Path
    tree: ast.Module
    node: ast.AST
    change: Callable[[Any], None]

    @property
    def mutant(self) -> Mutant:
        mark = list(ast.walk(self.tree)).index(self.node)
        changed = copy.deepcopy(self.tree)
        twin = list(ast.walk(changed))[mark]
        self.change(twin)
        line = getattr(self.node, "lineno", None) or self.node.target.lineno  # type: ignore[attr-defined]
        return Mutant(self.path, line, _short(self.node), _short(twin), ast.fix_missing_locations(changed))


def places(path: Path) -> Iterator[Place]:
    tree = ast.parse(path.read_text())
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for statement in function.body:
            for node in _decisions(statement):
                for change in _changes(node):
                    yield Place(path, tree, node, change)


def _decisions(node: ast.AST) -> Iterator[ast.AST]:
    """Without docstrings, log messages, annotations and nested functions, which have their turn."""
    if isinstance(node, ast.FunctionDef) or (isinstance(node, ast.Expr) and _is_prose(node.value)):
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield from _decisions(child)


def _is_prose(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) or ast.unparse(value).startswith("log.")


def _changes(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    """Each changes a copy of *node* in place."""
    match node:
        case ast.Compare(ops=[operator]):
            yield lambda each: setattr(each, "ops", [COMPARISONS[type(operator)]()])
        case ast.BoolOp(op=operator):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield lambda each: setattr(each, "op", other)
        case ast.If() | ast.IfExp() | ast.While() if not isinstance(node.test, ast.Compare | ast.BoolOp):
            yield lambda each: setattr(each, "test", ast.UnaryOp(ast.Not(), each.test))
        case ast.BinOp(op=ast.Add() | ast.Sub() as operator):
            swapped = ast.Sub() if isinstance(operator, ast.Add) else ast.Add()
            yield lambda each: setattr(each, "op", swapped)
        case ast.Constant(value=bool() as value):
            yield lambda each: setattr(each, "value", not value)
        case ast.Constant(value=int() | float() as number):
            yield lambda each: setattr(each, "value", number + 1)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield lambda each: setattr(each, "value", ast.Constant(None))
        case ast.Name(id=name, ctx=ast.Load()) if name in FUNCTIONS:
            yield lambda each: setattr(each, "id", FUNCTIONS[name])
        case ast.comprehension(ifs=[_, *_]):
            yield lambda each: setattr(each, "ifs", [])


def _short(node: ast.AST) -> str:
    text = ast.unparse(node).strip()
    return next(iter(text.splitlines()), "")[:100]


class Finder:
    """Imports *mutant* in the place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = ".".join(mutant.path.with_suffix("").parts)
        self._mutant = mutant

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        return spec_from_file_location(name, self._mutant.path, loader=Loader(name, self._mutant))


class Loader(SourceFileLoader):
    def __init__(self, name: str, mutant: Mutant) -> None:
        super().__init__(name, str(mutant.path))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutant.tree, str(self._mutant.path), "exec")


def survives(mutant: Mutant | None, tests: Sequence[str]) -> bool:
    """Run in a forked process: whether all *tests* pass."""
    import pytest

    if mutant:
        sys.meta_path.insert(0, Finder(mutant))  # type: ignore[arg-type]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return pytest.main([*options, *tests]) == pytest.ExitCode.OK


class Forks:
    """At most *width* processes at once; *survivors* are the mutants whose tests all passed."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._running: dict[int, Mutant] = {}
        self.survivors: list[Mutant] = []

    def run(self, mutant: Mutant, tests: Sequence[str]) -> None:
        self.wait(self._width - 1)
        if pid := os.fork():
            self._running[pid] = mutant
        else:
            end(mutant, tests)

    def wait(self, left: int = 0) -> None:
        """Until at most so many run."""
        while len(self._running) > left:
            pid, status = os.wait()
            mutant = self._running.pop(pid)
            if status == 0:
                self.survivors.append(mutant)
                print(f"survived: {mutant}", flush=True)


def end(mutant: Mutant | None, tests: Sequence[str]) -> None:
    """Run the tests and end this process: with 0 if they passed."""
    signal.alarm(LIMIT)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        code = 0 if survives(mutant, tests) else 1
    except BaseException:
        code = 1
    os._exit(code)


def passes(tests: Sequence[str]) -> bool:
    """Whether *tests* pass without any mutant, which all else rests on."""
    pid = os.fork()
    if not pid:
        end(None, tests)
    return os.waitpid(pid, 0)[1] == 0


def main(words: Sequence[str]) -> int:
    options = _options(words)
    os.chdir(options.root)
    sys.path.insert(0, str(options.root))
    for name in FIRST:
        importlib.import_module(name)
    targets = {key: value.split(",") for key, _, value in map(_parted, options.targets)} or TARGETS
    begin, killed, total = time.monotonic(), 0, 0
    for path, tests in targets.items():
        if not passes(tests):
            print(f"{path}: {', '.join(tests)} do not pass without a mutant", flush=True)
            return 1
        found = list(places(Path(path)))
        chosen = random.Random(0).sample(found, min(options.sample, len(found)))  # noqa: S311
        forks = Forks(options.processes)
        for place in chosen:
            forks.run(place.mutant, tests)
        forks.wait()
        detected = len(chosen) - len(forks.survivors)
        killed, total = killed + detected, total + len(chosen)
        print(f"{path}: {detected} of {len(chosen)} detected, of {len(found)} mutants", flush=True)
    print(f"{killed} of {total} detected ({killed / total:.1%}) in {time.monotonic() - begin:.0f} s")
    return 0


def _parted(target: str) -> tuple[str, str, str]:
    return target.partition("=")


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("targets", nargs="*", help="module.py=tests.py,tests.py in place of the listed ones")
    parser.add_argument("--sample", type=int, default=40, help="so many mutants of each module at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the checkout to work in")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
