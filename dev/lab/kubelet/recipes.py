"""How a container of a pod is made on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.lab.kubelet.expand import command, environment
from dev.lab.kubelet.process import Mount, Recipe
from dev.lab.kubelet.values import CannotRun, Place, Pod, Store

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """The directory that stands for an image, and where its programs are."""

    root: str
    programs: str = ""


@dataclass(frozen=True)
class Machine:
    """What all containers of this kubelet share."""

    directory: Path
    images: Mapping[str, Image]
    api: tuple[str, int]

    def logs(self, pod: Pod) -> Path:
        metadata = pod.metadata
        return self.directory / "pods" / f"{metadata.namespace}_{metadata.name}_{metadata.uid}"

    def volumes(self, pod: Pod) -> Path:
        return self.directory / "volumes" / pod.metadata.uid

    @property
    def base(self) -> Path:
        return self.directory / "base"


def image_of(reference: str, images: Mapping[str, Image]) -> Image:
    """By the repository, whole or its last part; tag and digest do not matter."""
    repository = reference.split("@", 1)[0]
    if ":" in repository.rsplit("/", 1)[-1]:
        repository = repository.rsplit(":", 1)[0]
    for name in (repository, repository.rsplit("/", 1)[-1]):
        if name in images:
            return images[name]
    raise CannotRun(
        "ErrImagePull",
        f"no directory stands for image {reference!r}; start the kubelet with --image {name}=DIRECTORY",
    )


def recipe(
    machine: Machine,
    pod: Pod,
    container: Mapping[str, Any],
    place: Place,
    store: Store,
    links: Mapping[str, str],
) -> Recipe:
    """Raises CannotRun, naming what is missing; *links* are the variables of Services."""
    image = image_of(container["image"], machine.images)
    variables = environment(pod, container, place, store, {**links, **_given(machine, pod, image)})
    volumes = list(_mounts(machine, pod, container))
    return Recipe(
        argv=command(container, variables),
        env=variables,
        workingDir=container.get("workingDir") or image.root,
        hostname=pod.metadata.name[:63],
        mounts=[*volumes, *_uncovered(image, volumes)],
        readOnlyRoot=bool(container.get("securityContext", {}).get("readOnlyRootFilesystem")),
        base=str(machine.base),
    )


def _given(machine: Machine, pod: Pod, image: Image) -> dict[str, str]:
    host, port = machine.api
    return {
        "PATH": f"{image.programs}:{os.environ.get('PATH', PATH)}" if image.programs else PATH,
        "HOME": "/root",
        "HOSTNAME": pod.metadata.name,
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
    }


def _mounts(machine: Machine, pod: Pod, container: Mapping[str, Any]) -> Iterator[Mount]:
    kinds = {each["name"]: each for each in pod.spec.get("volumes", ())}
    for mount in sorted(container.get("volumeMounts", ()), key=lambda each: str(each["mountPath"])):
        source = machine.volumes(pod) / mount["name"]
        if not source.exists():
            source.mkdir(parents=True)
        read_only = bool(mount.get("readOnly")) or "emptyDir" not in kinds[mount["name"]]
        yield Mount(str(source.resolve()), mount["mountPath"], read_only)


def _uncovered(image: Image, volumes: list[Mount]) -> Iterator[Mount]:
    """What stands for the image, where a volume such as /tmp would hide it: a real image lies elsewhere."""
    covers = [Path(os.path.realpath(volume.target)) for volume in volumes]
    parts = {os.path.realpath(part) for part in (image.root, image.programs, sys.base_prefix) if part}
    for part in sorted(parts):
        if any(cover in Path(part).parents for cover in covers):
            yield Mount(part, part, readOnly=True)
