"""The lines to which the pages of docs/contributing lead: each link's text is a name that its line defines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from dev.lab.repository import ROOT

PAGES = ROOT / "docs" / "contributing"
LINK = re.compile(r"\[`(?P<name>[\w.]+)(?P<call>\(\))?`\]\((?P<path>[\w./-]+\.py)#L(?P<line>\d+)\)")


def write() -> None:
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(renewed(page))


def renewed(page: Path) -> str:
    """Its text, with each link at the line of today; ValueError for a name that its file does not define."""

    def link(found: re.Match[str]) -> str:
        path, name = found["path"], found["name"]
        return f"[`{name}{found['call'] or ''}`]({path}#L{line_of((page.parent / path).resolve(), name)})"

    return LINK.sub(link, page.read_text())


def line_of(path: Path, name: str) -> int:
    """Of the definition of *name*, which may be ``Class.method``."""
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    line = 0
    for part in name.split("."):
        found = next((node for node in body if part in _defined(node)), None)
        if found is None:
            raise ValueError(f"{path.name} does not define {name}")
        line, body = found.lineno, getattr(found, "body", [])
    return line


def _defined(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {each.id for each in targets if isinstance(each, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


if __name__ == "__main__":
    write()
