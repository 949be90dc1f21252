"""Programs that Debian packages, in a directory of the cache: nothing is installed on the machine."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from dev.lab.binaries import cache, progress
from dev.lab.errors import LabError
from dev.lab.node.requirements import SUITE

NAMES = (
    "bird",
    "buildah",
    "conntrack",
    "containernetworking-plugins",
    "golang-github-containers-common",
    "golang-github-containers-image",
    "haproxy",
    "ipset",
    "iptables",
    "libassuan0",
    "libgpgme11",
    "libip4tc2",
    "libip6tc2",
    "libipset13",
    "liblua5.3-0",
    "libmnl0",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftnl11",
    "libopentracing-c-wrapper0",
    "libopentracing1",
    "libreadline8",
    "libseccomp2",
    "libxtables12",
    "runc",
)
"""Programs, and those of their libraries that a minimal Debian lacks."""
FRONT_ENDS = ("iptables", "ip6tables")
SECONDS = 600
DONE = "done"


def usr() -> Path:
    """Lies over the machine's /usr where these programs run: they find their libraries there."""
    place = (
        cache.root().parent
        / "packages"
        / f"{SUITE}-{hashlib.sha256(' '.join(NAMES).encode()).hexdigest()[:8]}"
    )
    return cache.ensure(place, DONE, _make).parent / "root" / "usr"


def over_usr() -> list[str]:
    """The command that makes them visible, for a separate mount namespace."""
    return ["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={usr()}:/usr", "/usr"]


def _make(making: Path) -> None:
    downloads = making / "downloads"
    downloads.mkdir()
    with progress.step(f"downloading {len(NAMES)} packages of Debian"):
        _download(downloads)
    for package in downloads.glob("*.deb"):
        _run("dpkg-deb", "--extract", str(package), str(making / "root"))
    shutil.rmtree(downloads)
    _link_front_ends(making / "root" / "usr" / "sbin")
    (making / DONE).touch()


def _download(directory: Path) -> None:
    """With the machine's lists of packages, which are updated when they are missing or too old."""
    try:
        _run("apt-get", "--quiet", "download", *NAMES, directory=directory)
    except LabError:
        _run("apt-get", "--quiet", "update")
        _run("apt-get", "--quiet", "download", *NAMES, directory=directory)


def _link_front_ends(sbin: Path) -> None:
    """As update-alternatives does."""
    for name in FRONT_ENDS:
        for ending in ("", "-save", "-restore"):
            (sbin / f"{name}{ending}").symlink_to("xtables-nft-multi")


def _run(*command: str, directory: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()[-2000:]}")
