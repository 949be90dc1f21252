"""How programs in an image reach the package registries that this machine reaches."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from lab.image.process import Mount

HERE = "/run/drawbridge-image"
AUTHORITIES, PIP = f"{HERE}/ca.crt", f"{HERE}/pip.conf"
PIP_CONF = Path("/etc/pip.conf")
PROXIES = ("http_proxy", "https_proxy", "no_proxy")


def environment() -> dict[str, str]:
    """As this machine is set up: pip's settings and proxies, and where its own files are seen."""
    given = {name: value for name, value in os.environ.items() if _is_passed_on(name)}
    seen = {
        name: target
        for name, target in (("PIP_CERT", AUTHORITIES), ("PIP_CONFIG_FILE", PIP))
        if target in mounts()
    }
    return {"HOME": "/root", **given, **seen}


def mounts() -> Mapping[str, Mount]:
    authorities = ssl.get_default_verify_paths().cafile
    files = {"/etc/resolv.conf": Path("/etc/resolv.conf"), PIP: PIP_CONF}
    if authorities:
        files[AUTHORITIES] = Path(authorities)
    return {target: Mount(source) for target, source in files.items() if source.is_file()}


def _is_passed_on(name: str) -> bool:
    return name.startswith("PIP_") or name.lower() in PROXIES
