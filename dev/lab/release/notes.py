"""The section of CHANGELOG.md for a version, as release notes and as Artifact Hub's list of changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dev.lab.errors import LabError
from dev.lab.release.identity import Release

LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


@dataclass(frozen=True)
class Change:
    kind: str
    text: str


def of_version(changelog: str, version: str) -> str:
    """The section's text. A version that has no section is one that is being prepared: that of Unreleased."""
    sections = dict(_sections(changelog))
    found = sections.get(version) or sections.get("Unreleased")
    if not found:
        raise LabError(
            f"CHANGELOG.md has no section [{version}], and none [Unreleased]: write what changes for operators"
        )
    return found


def page(release: Release, text: str) -> str:
    """Links to pages of the repository lead to its state at the tag."""
    if not release.source:
        return text
    return re.sub(r"\]\((?=docs/)", f"]({release.source}/blob/v{release.version}/", text)


def changes(text: str) -> list[Change]:
    """Each entry on one line, without links."""
    kind, found = "Changed", list[Change]()
    for line in text.splitlines():
        if line.startswith("### "):
            kind = line[4:].strip()
        elif line.startswith("- "):
            found.append(Change(kind.lower(), line[2:]))
        elif line.startswith("  ") and found:
            found[-1] = Change(found[-1].kind, f"{found[-1].text} {line.strip()}")
    return [Change(each.kind, LINK.sub(r"\1", each.text)) for each in found]


def _sections(changelog: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"(?m)^## ", changelog)[1:]:
        head, _, text = part.partition("\n")
        name = re.match(r"\[([^]]+)\]", head)
        yield (name[1] if name else head.split()[0]), text.strip() + "\n"
