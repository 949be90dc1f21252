"""What a container of ours has, seen from within, and its processes as the world sees them."""

from __future__ import annotations

import json
from typing import Any

from dev.lab import processes
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
    return processes.with_variable("POD_NAME", pod)


def kubelets() -> list[int]:
    return [pid for pid in processes.running() if processes.name_of(pid) == "kubelet"]
