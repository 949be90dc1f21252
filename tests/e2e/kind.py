"""Where the whole of it is installed as operators do: a cluster of containers, with our image and cert-manager."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from dev.lab.binaries.table import versions
from dev.lab.cloud.remote import Remote
from dev.lab.errors import LabError
from dev.lab.install import CHART, CRDS, merged
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from tests.e2e.cluster import CLOUD_PORT, FIRST, IMAGES, install, values, with_image

ROOT = Path(__file__).parent.parent.parent
NAME = "drawbridge-e2e"
CERT_MANAGER = "https://github.com/cert-manager/cert-manager/releases/download/{}/cert-manager.yaml"
Run = Callable[..., str]


@dataclass(frozen=True)
class Kind(Lab):
    """What the scenes of the other tests need of a lab, of a cluster that kind runs."""

    home: Path
    emulator: str
    """Host and port of the cloud, as this machine reaches it."""

    @property
    def directory(self) -> Path:
        return self.home

    is_real = False
    chart = CHART

    @property
    def workers(self) -> tuple[str, ...]:
        roles = "!node-role.kubernetes.io/control-plane,kubernetes.io/os=linux"
        names = self.kubectl("get", "nodes", f"--selector={roles}", "--output=name").stdout.split()
        return tuple(each for name in names if "eklet" not in (each := name.removeprefix("node/")))

    def archive(self) -> Path:
        path = self.home / "image.tar"
        run("docker", "save", "--output", str(path), FIRST)
        return path

    def status(self, node: str, port: int) -> str:
        ask = ("curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}")
        asked = f"{' '.join(ask)} http://localhost:{port}/healthz || true"
        return run("docker", "exec", node, "sh", "-c", asked)

    @cached_property
    def cloud(self) -> Remote:
        return Remote(self.emulator)


def missing(which: Callable[[str], object], run: Run) -> str:
    """Why there can be no such cluster here, or nothing."""
    absent = [program for program in ("docker", "kind") if not which(program)]
    if absent:
        return f"the end-to-end tests need docker and kind; not on the PATH: {', '.join(absent)}"
    try:
        run("docker", "info")
    except LabError as error:
        return f"the end-to-end tests need a Docker daemon: {error}"
    return ""


def here() -> str:
    """Why not on this machine, or nothing."""
    return missing(shutil.which, run)


def run(*command: str, stdin: str | None = None) -> str:
    """What it prints; LabError with its own words when it fails. What it does is seen meanwhile."""
    print(*command, file=sys.stderr, flush=True)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def configuration() -> dict[str, Any]:
    """Of the cluster: two nodes for the pods, so that there is something to do one after the other."""
    roles = ("control-plane", "worker", "worker")
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": role} for role in roles],
    }


def create(run: Run, kubeconfig: Path, environ: Mapping[str, str]) -> None:
    """Our image, and a cluster whose nodes have it; KIND_NODE_IMAGE names another Kubernetes than kind's own."""
    node_image = ["--image", environ["KIND_NODE_IMAGE"]] if environ.get("KIND_NODE_IMAGE") else []
    base = ["--build-arg", f"BASE={environ['BASE']}"] if environ.get("BASE") else []
    run("docker", "build", *base, *(word for image in IMAGES for word in ("--tag", image)), str(ROOT))
    where = ("--name", NAME, "--kubeconfig", str(kubeconfig), "--wait", "5m", "--config", "-")
    run("kind", "create", "cluster", *where, *node_image, stdin=yaml.safe_dump(configuration()))
    run("kind", "load", "docker-image", *IMAGES, "--name", NAME)


def start_cloud(run: Run) -> tuple[str, str]:
    """The emulator beside the cluster's nodes; where these reach it, and where this machine does."""
    name = f"{NAME}-cloud"
    serve = ("python", "-m", "dev.lab.cloud", "--host", "0.0.0.0", "--port", str(CLOUD_PORT))
    source = ("--volume", f"{ROOT}:/repository:ro", "--workdir", "/repository")
    ports = ("--network", "kind", "--publish", f"127.0.0.1::{CLOUD_PORT}")
    run("docker", "run", "--detach", "--name", name, *ports, *source, FIRST, *serve)
    [found] = json.loads(run("docker", "inspect", name))
    networks, published = found["NetworkSettings"]["Networks"], found["NetworkSettings"]["Ports"]
    [outside] = published[f"{CLOUD_PORT}/tcp"]
    return f"{networks['kind']['IPAddress']}:{CLOUD_PORT}", f"127.0.0.1:{outside['HostPort']}"


def remove(run: Run) -> None:
    """Everything, also what a run that was killed has left."""
    with suppress(LabError):  # some versions of Docker complain when there is none
        run("docker", "rm", "--force", "--volumes", f"{NAME}-cloud")
    run("kind", "delete", "cluster", "--name", NAME)


def with_cert_manager(endpoint: str) -> dict[str, Any]:
    """The values of all scenes, with certificates by cert-manager."""
    return merged(with_image(values(endpoint)), {"certs": {"mode": "cert-manager"}})


def cert_manager(environ: Mapping[str, str]) -> str:
    """The manifest of its release: CERT_MANAGER_MANIFEST, a file or an address, or that of our pinned version."""
    return environ.get("CERT_MANAGER_MANIFEST") or CERT_MANAGER.format(versions()["cert-manager"])


def equip(kind: Kind, endpoint: str, environ: Mapping[str, str]) -> None:
    """As docs/how-to/install.md says; back when the API server calls all webhooks, and trusts them."""
    kind.kubectl("apply", "-f", str(CRDS / "crd.projectcalico.org_ipreservations.yaml"))
    kind.kubectl("apply", "-f", cert_manager(environ))
    wait = ("--for=condition=Available", at_most(300))
    kind.kubectl("-n", "cert-manager", "wait", "deployment", "--all", *wait)
    # Its webhook has no certificate for some moments more, and then refuses the Certificate.
    install(kind, with_cert_manager(endpoint), may_retry="cert-manager")


@contextmanager
def running(home: Path) -> Iterator[Kind]:
    """For the length of a block; *home* is an empty directory. Raises LabError."""
    remove(run)
    try:
        create(run, home / "kubeconfig", os.environ)
        inside, outside = start_cloud(run)
        kind = Kind(NAME, home, outside)
        equip(kind, inside, os.environ)
        yield kind
        kind.close()
    finally:
        remove(run)
