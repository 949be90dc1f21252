"""What a release is called, where its image will be, and when its source was committed."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from dev.lab.binaries.table import PLATFORM
from dev.lab.errors import LabError
from dev.lab.repository import ROOT

RELEASES = ROOT / "build" / "release"
"""Where its files are made, in a directory of its version."""
VERSION = re.compile(r"v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)")
IMAGE = re.compile(
    r"(?:(?P<registry>[^/]*[.:][^/]*|localhost)/)?(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
)


@dataclass(frozen=True)
class Release:
    """*registry* and *repository* are the chart's values; each may be empty, and then stays as in the repository."""

    version: str
    registry: str = ""
    repository: str = ""
    source: str = ""

    @property
    def architecture(self) -> str:
        """That of images made on this machine."""
        return PLATFORM["arch"]


def parse(version: str, image: str = "", source: str = "") -> Release:
    """Raises LabError with the field that cannot be used."""
    numbers = VERSION.fullmatch(version)
    if not numbers:
        raise LabError(f"VERSION={version}: not a semantic version; give one such as 0.2.0 or 0.2.0-rc.1")
    named = IMAGE.fullmatch(image) if image else None
    if image and not named:
        raise LabError(
            f"IMAGE={image}: not an image without a tag; give one such as registry.example/team/drawbridge"
        )
    if source and not source.startswith("https://"):
        raise LabError(f"SOURCE={source}: not a URL that begins with https://")
    registry, repository = (named["registry"] or "", named["repository"]) if named else ("", "")
    return Release(numbers[1], registry, repository, source.rstrip("/"))


def revision() -> str:
    return _git("rev-parse", "HEAD") or "unknown"


def committed() -> int:
    """Seconds since 1970; SOURCE_DATE_EPOCH has precedence. The same source makes the same files."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or 0)


def _git(*arguments: str) -> str:
    """Empty where the source is no checkout."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
