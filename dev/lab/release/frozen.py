"""`python -m dev.lab.release.frozen`: make build/drawbridge, the command as a program that needs no Python.

It is a folder: one file would unpack itself at each start. PyInstaller freezes for the machine that it runs on.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import packages_distributions
from pathlib import Path

from dev.lab.binaries.table import PLATFORM
from dev.lab.errors import LabError
from dev.lab.release.identity import Release, committed, revision
from dev.lab.repository import PRODUCT, ROOT
from telemetry.program import VERSION

NAME = "drawbridge"
NEEDLESS = {
    "aiohappyeyeballs",
    "aiohttp",
    "aiohttp-retry",
    "aiosignal",
    "attrs",
    "frozenlist",
    "gunicorn",
    "markdown-it-py",
    "mdurl",
    "multidict",
    "propcache",
    "pycparser",
    "pygments",
    "tencentcloud-sdk-python-common",
    "yarl",
}
"""Packages that only servers in the cluster use, or only parts of others that the command does not."""
UNUSED = {"kubernetes.aio", "kubernetes.client.api", "readline"}
NAMELESS = ("cel_expr_python.ext.ext_optional", "cel_expr_python.ext.ext_strings")
"""Modules in a folder without `__init__`, which PyInstaller does not find."""
ENTRY = """\
import atexit
import contextlib
import gc
import os
import sys

# While it starts, a tenth of its time would go into looking for garbage that is not there.
gc.set_threshold(100_000)
code = None


@atexit.register
def leave():
    # The first one is called last. To take modules and objects apart would take a fifth of its time.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        if isinstance(code, int):
            os._exit(code)


# It says the version that it was built of, whatever this environment says.
os.environ.update(DRAWBRIDGE_VERSION={version!r}, DRAWBRIDGE_REVISION={revision!r})
# Pydantic would look for plugins in the metadata of all packages.
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"
# Its TLS looks for authorities where the machine that built it has them.
for file in {authorities}:
    if os.path.exists(file):
        os.environ.setdefault("SSL_CERT_FILE", file)
from cli.app import main

try:
    main()
except SystemExit as end:
    code = end.code
    raise
"""
AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Of Debian, Red Hat, SUSE, and of Alpine and macOS; Windows has a store."""


def freeze(directory: Path, version: str = VERSION) -> Path:
    """The program, in a folder of its name in *directory*; raises LabError with what PyInstaller says."""
    with tempfile.TemporaryDirectory() as work:
        entry = Path(work) / f"{NAME}.py"
        named = {"version": version, "revision": revision(), "authorities": AUTHORITIES}
        entry.write_text(ENTRY.format(**named))
        places = [f"--distpath={directory}", f"--workpath={work}", f"--specpath={work}"]
        command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level=ERROR", *places]
        # The same source makes the same program.
        fixed = {"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": str(committed())}
        done = subprocess.run(
            [*command, *_options(), str(entry)],
            cwd=ROOT,
            env={**os.environ, **fixed},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise LabError(f"the command cannot be frozen: {done.stderr.strip()}")
    (directory / NAME / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
    return directory / NAME / (f"{NAME}.exe" if PLATFORM["os"] == "windows" else NAME)


def archive(release: Release, directory: Path) -> Path:
    """Only folders and files: krew unpacks no links."""
    file = directory / "{}-{}-{os}-{arch}.tar.gz".format(NAME, release.version, **PLATFORM)
    with (
        tempfile.TemporaryDirectory() as temporary,
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", dereference=True) as whole,
    ):
        folder = freeze(Path(temporary), release.version).parent
        whole.add(folder, NAME, filter=_same_each_time)
    return file


def _same_each_time(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if ".framework" in member.name:
        # What is used of macOS's Python is a link into it.
        return None
    member.mtime, member.uid, member.gid, member.uname, member.gname = committed(), 0, 0, "", ""
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    return member


def _options() -> list[str]:
    """The licences of packages are among their metadata; whatever else is installed stays out.

    A module is a file: to unpack an archive of them takes a tenth of the CPU time of `status`.
    """
    given = "".join((ROOT / f"requirements{part}.txt").read_text() for part in ("", "-cli"))
    packages = {*re.findall(r"(?m)^([\w.-]+)==", given)} - NEEDLESS
    owners = packages_distributions().items()
    needless = {module for module, names in owners if packages.isdisjoint(map(_normal, names))}
    return [
        "--collect-data=dashboard",
        "--python-option=X utf8_mode=1",
        "--debug=noarchive",
        *(f"--collect-submodules={package}" for package in (*PRODUCT, "rich")),
        *(f"--hidden-import={module}" for module in NAMELESS),
        *(f"--copy-metadata={package}" for package in sorted(packages)),
        *(f"--exclude-module={module}" for module in sorted(needless | UNUSED)),
    ]


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(freeze(ROOT / "build"))
