"""The cluster of real nodes: Drawbridge in containers of containerd, addresses by Calico, Services by kube-proxy."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dev.lab import processes
from dev.lab.cloud.remote import Remote
from dev.lab.node import cluster, images
from dev.lab.node.cluster import Image, RealNodes
from dev.lab.node.network import CONTROL_PLANE
from dev.lab.node.settings import PAUSE
from dev.lab.release import image
from dev.lab.release.__main__ import make
from dev.lab.release.identity import parse
from dev.lab.waiting import until
from tests.e2e.cluster import CLOUD_PORT, EDGE_IMAGE, FIRST, IMAGE, SECOND, VERSION, install, values

ROOT = Path(__file__).parent.parent.parent
ARCHIVES = "DRAWBRIDGE_E2E_ARCHIVES"
"""The environment variable with the files of images and of the chart, which are made where packages can be had."""
EDGE = Path(__file__).parent / "edge"
ENDPOINT = f"{CONTROL_PLANE}:{CLOUD_PORT}"


@dataclass(frozen=True)
class Real(RealNodes):
    """What the scenes need of a lab, of real nodes."""

    is_real = True

    @property
    def chart(self) -> Path:
        return Path(_made()["chart"])

    @cached_property
    def cloud(self) -> Remote:
        return Remote(ENDPOINT)

    def archive(self) -> Path:
        return Path(_made()["saved"])

    def edge_archive(self) -> Path:
        return Path(_made()["images"][EDGE_IMAGE])

    def status(self, node: str, port: int) -> str:
        connection = http.client.HTTPConnection(self.address(node), port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return str(connection.getresponse().status)
        except OSError:
            return "000"
        finally:
            connection.close()


def build() -> dict[str, Any]:
    """Drawbridge as it is released, its image as it is saved, and archives of all images by name."""
    release = parse(VERSION, IMAGE)
    files = {each.name: str(each) for each in make(release, ROOT / "build" / "e2e", ["image", "chart"])}
    return {
        "chart": files[f"drawbridge-{VERSION}.tgz"],
        "saved": str(image.saved(release)),
        "images": {
            FIRST: files[f"drawbridge-{VERSION}-image-{release.architecture}.tar"],
            EDGE_IMAGE: str(images.build(EDGE, EDGE_IMAGE)),
            PAUSE: str(images.pause()),
        },
    }


def _made() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ[ARCHIVES])
    return found


@contextmanager
def running() -> Iterator[Real]:
    """For the length of a block, in a world; raises LabError."""
    archives = _made()["images"].items()
    given = [Image(Path(path), name, (SECOND,) if name == FIRST else ()) for name, path in archives]
    with cluster.running(given, progress=lambda text: print(text, file=sys.stderr, flush=True)) as lab:
        real = Real(lab.name, lab.home, lab.workers)
        with _cloud(real):
            install(real, values(ENDPOINT))
            yield real
        real.close()


@contextmanager
def _cloud(real: Real) -> Iterator[None]:
    log = real.logs / "cloud.log"
    command = [sys.executable, "-m", "dev.lab.cloud", "--host", "0.0.0.0", "--port", str(CLOUD_PORT)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=dict(os.environ),
            stdout=output,
            stderr=output,
            preexec_fn=processes.die_with_parent,
        ) as process,
    ):
        until(lambda: b"the cloud is at" in log.read_bytes(), 60, "the emulated cloud to listen")
        try:
            yield
        finally:
            process.kill()
