"""Keep what each set of values in tests/data/renders makes of the chart, as the difference to its defaults."""

from __future__ import annotations

import difflib
import re
import textwrap
from pathlib import Path

import yaml

from dev.lab import chart
from dev.lab.repository import ROOT

RENDERS = ROOT / "tests" / "data" / "renders"
CHANGES = "changes: |\n"
FILES = chart.CHART / "files"


def write() -> None:
    base = chart.manifests("{}")
    for file in sorted(RENDERS.glob("*.yaml")):
        text = file.read_text()
        file.write_text(renewed(text, base, chart.manifests(values_in(text))))


def values_in(text: str) -> str:
    return yaml.safe_dump(yaml.safe_load(text.partition(CHANGES)[0])["values"])


def renewed(text: str, base: str, after: str) -> str:
    """The file with what became of *base*, the manifests of the defaults; its values stay as they are written."""
    return text.partition(CHANGES)[0] + CHANGES + textwrap.indent(changes(base, after), "  ")


def changes(before: str, after: str) -> str:
    """The names of the objects that went, those that came as a whole, and of the others the lines that differ."""
    old, new = objects(shortened(before)), objects(shortened(after))
    gone = [f"gone: {name}\n" for name in old if name not in new]
    return "".join(gone + [_change(name, old.get(name), text) for name, text in new.items()])


def objects(text: str) -> dict[str, str]:
    """The manifests of *text* by kind and name, in its order."""
    parts = (part.strip() + "\n" for part in re.split(r"(?m)^---$", text))
    return {name: part for part in parts if (name := _kind_and_name(part))}


def _kind_and_name(manifest: str) -> str:
    """Found without reading all of it, as many are long; nothing for a template that gave nothing."""
    kind = re.search(r"^kind: (\S+)", manifest, re.MULTILINE)
    name = re.search(r"^  name: \"?([^\s\"]+)", manifest, re.MULTILINE)
    return f"{kind[1]}/{name[1]}" if kind and name else ""


def shortened(text: str) -> str:
    """With the names of the chart's files in place of what stands in them, where that is taken over as it is."""
    for file in sorted(FILES.rglob("*.json")):
        text = text.replace(textwrap.indent(file.read_text().strip(), "    "), f"    {_name(file)}")
    definition = FILES / "ingressdaemonsets.yaml"
    return text.replace(definition.read_text().partition("\nspec:\n")[2], f"  {_name(definition)}\n")


def _name(file: Path) -> str:
    return f"<{file.relative_to(chart.CHART)}>"


def _change(name: str, before: str | None, after: str) -> str:
    if before is None:
        return f"added: {name}\n" + textwrap.indent(after, "+", lambda _: True)
    lines = [*difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)]
    described = [_described(line, before.splitlines()) for line in lines[2:]]
    return "\n".join([f"changed: {name}", *described, ""]) if described else ""


def _described(line: str, before: list[str]) -> str:
    """A line of the difference; where it begins again, what that is a part of, because numbers say nothing."""
    begin = re.match(r"@@ -(\d+)", line)
    return f"@@ {' / '.join(_parents(before[: int(begin[1])]))}".rstrip() if begin else line.rstrip()


def _parents(lines: list[str]) -> list[str]:
    """The keys that the last of *lines* stands under, from the outermost one on."""
    keys: list[str] = []
    depth = _depth(lines[-1])
    for line in reversed(lines):
        key = re.match(r"[\s-]*([^\s#:][^:]*):(?: \|-?)?$", line)
        if key and _depth(line) < depth:
            depth = _depth(line)
            keys.insert(0, key[1])
    return keys


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
