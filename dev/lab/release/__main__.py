"""`python -m dev.lab.release VERSION`: make what a release consists of, in build/release/VERSION."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dev.lab.errors import LabError
from dev.lab.release import checksums, frozen, krew, notes
from dev.lab.release.identity import RELEASES, Release, parse
from dev.lab.repository import ROOT

PARTS = ("image", "cli", "chart", "checksums")


def main(arguments: list[str]) -> int:
    given = _arguments(arguments)
    try:
        made = make(parse(given.version, given.image, given.source), RELEASES, given.parts)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    print(*made, sep="\n")
    return 0


def make(release: Release, output: Path, parts: list[str]) -> list[Path]:
    """The files that were written, in a directory of the version."""
    directory = output / release.version
    directory.mkdir(parents=True, exist_ok=True)
    if "image" in parts:
        _make_image(release, directory)
    if "cli" in parts:
        frozen.archive(release, directory)
    if "chart" in parts:
        _make_chart(release, directory)
    if "checksums" in parts:
        if release.source:
            krew.write(release, directory)
        checksums.write(directory)
    return sorted(directory.iterdir())


def _make_image(release: Release, directory: Path) -> None:
    """Imported here: a chart is made without root, and without a builder of images."""
    from dev.lab.release import image, sbom

    archive = image.write(release, directory)
    archive.with_suffix(".cdx.json").write_text(sbom.of_archive(archive, release))


def _make_chart(release: Release, directory: Path) -> None:
    """Imported here: the command is frozen on Windows, too, where no lab is."""
    from dev.lab.release import packages

    changes = notes.of_version((ROOT / "CHANGELOG.md").read_text(), release.version)
    (directory / "NOTES.md").write_text(notes.page(release, changes))
    packages.write(release, changes, directory)


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dev.lab.release", description=__doc__)
    parser.add_argument("version", help="such as 0.2.0, or v0.2.0 as in a tag")
    parser.add_argument(
        "--image", default="", help="where the image is pushed, without a tag: the chart's default"
    )
    parser.add_argument(
        "--source", default="", help="URL of the repository, for the chart's home page and icon"
    )
    parser.add_argument("--part", dest="parts", action="append", choices=PARTS, help="default: all")
    given = parser.parse_args(arguments)
    given.parts = given.parts or [*PARTS]
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
