"""What the documents of the originals say is shown by a test, or a page says how Drawbridge differs."""

import ast
import functools
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tests.pages import ROOT, sections, slug

STATEMENTS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (ROOT / "docs" / "contributing" / "statements.yaml").read_text()
)


def test_each_statement_has_one_answer() -> None:
    for original, statements in STATEMENTS.items():
        for statement in statements:
            assert set(statement) - {"says"} in ({"test"}, {"differs"}, {"environment"}), statement
        repeated = [says for says, times in Counter(each["says"] for each in statements).items() if times > 1]
        assert not repeated, original


def test_each_test_is_there() -> None:
    missing = [each for each in answers("test") if not is_there(*each.split("::"))]
    assert not missing


def test_each_page_has_its_section() -> None:
    for link in answers("differs"):
        path, _, anchor = link.partition("#")
        assert not anchor or anchor in {slug(title) for title in sections(ROOT / path)}, link


def answers(kind: str) -> list[str]:
    return [each[kind] for statements in STATEMENTS.values() for each in statements if kind in each]


def is_there(path: str, name: str = "") -> bool:
    """A golden case, or a test in a module."""
    return name in names_in(ROOT / path) if name else (ROOT / path).is_file()


@functools.cache
def names_in(module: Path) -> set[str]:
    return {each.name for each in ast.parse(module.read_text()).body if isinstance(each, ast.FunctionDef)}
