"""The demo's end: the dashboard of its lab, served by the command as users do, and each of its pages opened."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.parse import urljoin

from dev.lab.errors import LabError
from dev.lab.session import Lab

SHOWN = {
    "/": "Overview",
    "/reservations": "IP reservation",
    "/addresses": "Anycast IP",
    "/elasticity": "Elasticity",
    "/rollouts": "Rollouts",
}
"""Each page and its heading."""
TROUBLE = "This cannot be shown"


@contextmanager
def dashboard(lab: Lab) -> Iterator[str]:
    """Its address, which only who knows it may read; LabError when it does not start."""
    command = [sys.executable, "-m", "cli", "dashboard", "--no-browser"]
    environment = os.environ | {"KUBECONFIG": str(lab.kubeconfig)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = next(iter(process.stdout or ()), "").strip()
            if not address.startswith("http://127.0.0.1:"):
                raise LabError(f"drawbridge dashboard printed no address but {address!r}")
            yield address
        finally:
            process.terminate()


def faults(address: str) -> list[str]:
    """Pages that do not show what they should."""
    browser = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor()
    )
    browser.open(address, timeout=30).close()
    pages = {path: _text(browser, urljoin(address, path)) for path in SHOWN}
    return [
        f"{path} shows {text[:200]!r}"
        for path, text in pages.items()
        if f"<h1>{SHOWN[path]}" not in text or TROUBLE in text
    ]


def _text(browser: urllib.request.OpenerDirector, address: str) -> str:
    try:
        with browser.open(address, timeout=30) as answer:
            text: str = answer.read().decode()
    except HTTPError as error:
        return str(error)
    return text
