"""What a machine needs to run real nodes."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

PROGRAMS = ("apt-get", "dpkg-deb", "debootstrap", "unshare", "nsenter", "ip", "mount")
SUITE = "bookworm"
"""Debian's release, from whose packages programs and libraries come."""
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc")


def missing() -> str:
    """Why there can be no real node here, or nothing."""
    if os.geteuid() != 0:
        return "real nodes need root"
    absent = [program for program in PROGRAMS if not shutil.which(program)]
    if absent:
        return f"real nodes need programs that are not on the PATH: {', '.join(absent)}"
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME")
    if suite != SUITE:
        return f"real nodes need packages of Debian {SUITE}; this machine is {suite or 'no Debian'}"
    done = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"real nodes need namespaces: `{' '.join(NAMESPACES)}` failed: {done.stderr.strip()}"
    return ""
