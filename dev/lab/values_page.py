"""Write the tables of the charts' READMEs: every value with its default and the comment that values.yaml has for it.

Names that only the originals have are in the pages on migration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from dev.lab import chart, values_comments

THEIRS = tuple(f"{values_comments.VALUE}{each}" for each in ("As ", "No effect", "For chart eklet: "))
"""What begins the comment of a name that only the originals have."""
MARK = "<!-- From here on written by make manifests: change the comments of values.yaml instead. -->\n"


def write() -> None:
    for folder in (chart.CHART, chart.EKLET):
        file = folder / "README.md"
        file.write_text(page(file.read_text(), (folder / "values.yaml").read_text()))


def page(text: str, values: str) -> str:
    """*text* with the tables of today."""
    head, _, _ = text.partition(MARK)
    return f"{head}{MARK}\n" + "\n".join(_sections(values))


def _sections(values: str) -> Iterator[str]:
    defaults = yaml.safe_load(values)
    for part in values.split(f"# {values_comments.SECTION}")[1:]:
        title, _, rest = part.partition("\n")
        lines = rest.splitlines()
        length = next(number for number, line in enumerate(lines) if not line.startswith("# "))
        about = " ".join(line.removeprefix("# ") for line in lines[:length])
        rows = [
            _row(path, comment, defaults)
            for path, comment in values_comments.marked(rest)
            if comment.startswith(values_comments.VALUE) and not comment.startswith(THEIRS)
        ]
        table = ["| value | default | meaning |", "|---|---|---|", *rows, ""]
        yield "\n".join([f"### {title}", "", *([_linked(about), ""] if about else []), *table])


def _row(path: str, comment: str, defaults: Any) -> str:
    for name in path.split("."):
        defaults = defaults[name]
    return f"| `{path}` | `{json.dumps(defaults)}` | {comment.removeprefix(values_comments.VALUE)} |"


def _linked(text: str) -> str:
    return re.sub(r"docs/([\w/-]+/)?([\w-]+)\.md", r"[\2](../../docs/\g<1>\2.md)", text)
