"""`python -m dev.lab.release.publish VERSION`: push the made image, for all of its architectures, and the chart.

Both are signed by their digests, which are written beside them: see .github/workflows/release.yaml.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from dev.lab import binaries
from dev.lab.errors import LabError
from dev.lab.release.identity import IMAGE, RELEASES, VERSION
from dev.lab.release.oci import blob

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.lab.release.publish", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--image", required=True, help="where the image is pushed, without a tag")
    parser.add_argument("--charts", required=True, help="the folder of the chart: /drawbridge is added")
    given = parser.parse_args(arguments)
    try:
        version = _checked(given.version, given.image)
        directory = RELEASES / version
        image = push_image(directory, f"{given.image}:{version}")
        pushed = push_chart(directory / f"drawbridge-{version}.tgz", given.charts)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"version={version}\ndigest={image}")
    print(f"image={given.image}@{image}\nchart={given.charts}/drawbridge@{pushed}")
    return 0


def _checked(version: str, image: str) -> str:
    found = VERSION.fullmatch(version)
    if not found or not IMAGE.fullmatch(image):
        raise LabError(
            f"cannot push {image} {version}: give a version such as 0.2.0, and an image without a tag"
        )
    return found[1]


def push_image(directory: Path, name: str) -> str:
    """One index of the images of all archives in *directory*; its digest."""
    archives = sorted(directory.glob("*-image-*.tar"))
    if not archives:
        raise LabError(f"{directory}: no archive of an image; run make release first")
    with tempfile.TemporaryDirectory() as temporary:
        layout = Path(temporary)
        combine(archives, layout)
        crane = str(binaries.ensure("crane")["crane"])
        return _digest(_run(crane, "push", str(layout), name, "--index"))


def combine(archives: list[Path], layout: Path) -> None:
    """The images of *archives* as one in the directory *layout*: a client takes the one of its architecture."""
    images = []
    for archive in archives:
        with tarfile.open(archive) as whole:
            whole.extractall(layout, filter="data")
        index = json.loads((layout / "index.json").read_text())
        images += [each | {"platform": _platform(layout, each)} for each in index["manifests"]]
    (layout / "index.json").write_text(json.dumps({**index, "manifests": images}))


def _platform(layout: Path, image: dict[str, str]) -> dict[str, str]:
    manifest = json.loads((layout / blob(image["digest"])).read_text())
    config = json.loads((layout / blob(manifest["config"]["digest"])).read_text())
    return {"os": config["os"], "architecture": config["architecture"]}


def push_chart(archive: Path, folder: str) -> str:
    helm = str(binaries.ensure("helm")["helm"])
    return _digest(_run(helm, "push", str(archive), f"oci://{folder}"))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command[:2])}` failed: {done.stderr.strip()}")
    return done.stdout + done.stderr


def _digest(printed: str) -> str:
    found = DIGEST.findall(printed)
    if not found:
        raise LabError(f"no digest was printed: {printed.strip()}")
    return str(found[-1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
