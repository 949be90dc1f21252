"""The first module of `build/kubectl-drawbridge`: unpack the file once, and run the command from there.

Python imports no compiled module out of an archive. What is unpacked is named for the content of the file.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

CONTENT = "content.zip"
"""All files, in an archive within the archive: each call reads the directory of the outer one, twice."""


def main() -> None:
    archive = Path(sys.argv[0]).resolve()
    with zipfile.ZipFile(archive) as file:
        built = json.loads(file.read("built.json"))
        here = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "platform": platform()}
        if here != built["for"]:
            wanted = built["for"]
            sys.exit(
                f"{archive} was built for Python {wanted['python']} on {wanted['platform']}, and this is Python"
                f" {here['python']} on {here['platform']}: start it with that Python, or build one here with make cli"
            )
        place = cache() / built["digest"]
        if not place.is_dir():
            try:
                with zipfile.ZipFile(file.open(CONTENT)) as content:
                    unpack(content, place)
            except OSError as error:
                sys.exit(f"cannot unpack into {place}: {error}; set XDG_CACHE_HOME to a writable directory")
    # It says the version that it was built of, whatever this environment says.
    os.environ.update({name: built[name] for name in ("DRAWBRIDGE_VERSION", "DRAWBRIDGE_REVISION")})
    sys.path.insert(0, str(place))
    from cli.app import main as run

    run()


def platform() -> str:
    return f"{sys.platform}-{os.uname().machine}"


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drawbridge"


def unpack(file: zipfile.ZipFile, place: Path) -> None:
    """Completely or not at all, also when two of them do it at the same time."""
    place.parent.mkdir(parents=True, exist_ok=True)
    here = Path(tempfile.mkdtemp(dir=place.parent))
    file.extractall(here)
    try:
        here.rename(place)
    except OSError:
        shutil.rmtree(here)
        if not place.is_dir():
            raise


if __name__ == "__main__":
    main()
