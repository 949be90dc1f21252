"""Images by a real builder: buildah carries out a Dockerfile in a chroot, and its archive goes into containerd."""

from __future__ import annotations

import configparser
import os
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dev.lab import binaries
from dev.lab.binaries import cache, progress
from dev.lab.errors import LabError
from dev.lab.node.packages import over_usr
from dev.lab.node.requirements import SUITE
from dev.lab.node.settings import PAUSE

BASE = f"localhost/drawbridge-base:{SUITE}"
SECONDS = 1500
ANY_SIGNATURE = '{"default": [{"type": "insecureAcceptAnything"}]}'
NO_REGISTRIES = "unqualified-search-registries = []\nshort-name-mode = 'disabled'\n"
AUTHORITIES, PIP = "/run/machine-ca.crt", "/etc/pip.conf"
"""Where a RUN sees the machine's trusted authorities, and pip's configuration."""


def home() -> Path:
    """Where the builder keeps its layers, and their archives."""
    return cache.root().parent / "containers"


def build(
    context: Path, name: str, dockerfile: Path | None = None, arguments: Mapping[str, str] | None = None
) -> Path:
    """The archive of image *name*, built from *context* on the base; made again only when a layer changed.

    Raises LabError with the end of what the builder says.
    """
    with _builder() as (buildah, settings):
        _ensure_base(buildah, settings)
        identity = settings / "image"
        given = {"BASE": BASE, **(arguments or {})}
        options = [word for key, value in given.items() for word in ("--build-arg", f"{key}={value}")]
        options += ["--file", str(dockerfile or context / "Dockerfile"), *mounts(settings)]
        with progress.step(f"building {name} with buildah"):
            buildah(
                "bud",
                *_policy(settings),
                *BUILD,
                "--iidfile",
                str(identity),
                *options,
                "--tag",
                name,
                str(context),
            )
        return _archive(buildah, settings, name, identity.read_text().rpartition(":")[2].strip())


def pause() -> Path:
    """The archive of the image whose only program holds a pod's namespaces."""
    program = binaries.ensure("pause")["pause"]
    with tempfile.TemporaryDirectory() as directory:
        dockerfile = Path(directory) / "Dockerfile"
        dockerfile.write_text('FROM scratch\nCOPY pause /\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n')
        return build(program.parent, PAUSE, dockerfile)


BUILD = ("--isolation", "chroot", "--layers", "--quiet")


class Buildah:
    """Calls it with its storage in our cache, in a mount namespace in which its packages are visible."""

    def __init__(self, settings: Path) -> None:
        self._environment = {**os.environ, "CONTAINERS_REGISTRIES_CONF": str(settings / "registries.conf")}
        self._storage = ["--root", str(home() / "root"), "--runroot", str(home() / "run")]

    def __call__(self, verb: str, *arguments: str) -> str:
        command = ["buildah", *self._storage, "--storage-driver", "overlay", verb, *arguments]
        mounted = [
            "unshare",
            "--mount",
            "sh",
            "-ec",
            '"$1" "$2" "$3" "$4" "$5" "$6" "$7"; shift 7; exec "$@"',
            "sh",
        ]
        done = subprocess.run(
            [*mounted, *over_usr(), *command],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        if done.returncode != 0:
            raise LabError(f"`buildah {verb}` failed: {(done.stdout + done.stderr)[-3000:]}")
        return done.stdout.strip()


@contextmanager
def _builder() -> Iterator[tuple[Buildah, Path]]:
    home().mkdir(parents=True, exist_ok=True)
    with cache.locked(home()), tempfile.TemporaryDirectory() as directory:
        settings = Path(directory)
        (settings / "policy.json").write_text(ANY_SIGNATURE)
        (settings / "registries.conf").write_text(NO_REGISTRIES)
        yield Buildah(settings), settings


def _policy(settings: Path) -> list[str]:
    return ["--signature-policy", str(settings / "policy.json")]


def mounts(settings: Path) -> list[str]:
    """How a RUN reaches the registries of packages: as this machine does."""
    found = ssl.get_default_verify_paths().cafile
    pip = configparser.ConfigParser()
    pip.read(PIP)
    mounts = {}
    if found:
        pip.read_dict({"global": {"cert": AUTHORITIES}})
        mounts[AUTHORITIES] = found
    with (settings / "pip.conf").open("w") as file:
        pip.write(file)
    mounts[PIP] = str(settings / "pip.conf")
    return [word for target, source in mounts.items() for word in ("--volume", f"{source}:{target}:ro")]


def _ensure_base(buildah: Buildah, settings: Path) -> None:
    """The official image cannot be pulled everywhere: the same release, made by debootstrap from its packages."""
    if buildah("images", "--quiet", "--filter", f"reference={BASE}"):
        return
    context = settings / "base"
    context.mkdir()
    with progress.step(
        f"making the base image of Debian {SUITE} with debootstrap: no registry is asked for it"
    ):
        _run("debootstrap", "--variant=minbase", SUITE, str(settings / "root"))
        _run("tar", "--numeric-owner", "-C", str(settings / "root"), "-cf", str(context / "base.tar"), ".")
    (context / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
    buildah("bud", *_policy(settings), *BUILD, "--tag", BASE, str(context))


def _archive(buildah: Buildah, settings: Path, name: str, identity: str) -> Path:
    """Of one image; that of an earlier build by the same name goes."""
    label = name.translate(str.maketrans("/:", "--"))
    archive = home() / "archives" / f"{label}-{identity[:20]}.tar"
    if archive.exists():
        return archive
    archive.parent.mkdir(exist_ok=True)
    for earlier in archive.parent.glob(f"{label}-*.tar"):
        earlier.unlink()
    making = archive.with_name("making")
    making.unlink(missing_ok=True)  # of a run that was killed
    buildah("push", *_policy(settings), "--quiet", identity, f"docker-archive:{making}:{name}")
    return making.rename(archive)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()[-2000:]}")
