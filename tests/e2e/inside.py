"""What a container of ours has, seen from within, and its processes as the world sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.real import Real

LOOK = """\
import base64, json, os, pathlib
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
token = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/token").read_text().split(".")[1]
def writes(path):
    try:
        pathlib.Path(path).write_text("")
    except OSError as error:
        return error.strerror
    return "written"
print(json.dumps({
    "uid": os.getuid(),
    "seccomp": status["Seccomp"].strip(),
    "capabilities": int(status["CapBnd"], 16),
    "noNewPrivileges": status["NoNewPrivs"].strip(),
    "root": writes("/written"),
    "home": writes("/var/tmp/written"),
    "claims": json.loads(base64.urlsafe_b64decode(token + "==")),
}))
"""


def seen_in(cluster: Real, place: str, pod: str) -> dict[str, Any]:
    output = cluster.kubectl("--namespace", place, "exec", pod, "--", "python", "-c", LOOK).stdout
    found: dict[str, Any] = json.loads(output)
    return found


def processes_of(pod: str) -> list[int]:
    """Those of a pod of the chart, by the name that it has in its environment."""
    return [pid for pid in _pids() if f"POD_NAME={pod}" in _words(pid, "environ")]


def kubelets() -> list[int]:
    return [pid for pid in _pids() if _words(pid, "cmdline")[0].endswith("/kubelet")]


def _pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def _words(pid: int, what: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace").split("\0")
    except OSError:  # it has ended
        return [""]
