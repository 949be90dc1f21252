"""What does not get ready is shown with the reason that Kubernetes gives and the end of its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def describe(pods: Iterable[Mapping[str, Any]], directory: Path) -> str:
    """One part for each container that is not ready; *directory* is the lab's."""
    parts = [
        part(pod, container, directory)
        for pod in pods
        for container in pod.get("status", {}).get("containerStatuses", [])
        if not container["ready"]
    ]
    return "\n".join(parts) or "all containers that were started are ready"


def part(pod: Mapping[str, Any], container: Mapping[str, Any], directory: Path) -> str:
    about = pod["metadata"]
    place = f"{about['namespace']}_{about['name']}_{about['uid']}"
    head = f"{about['name']}/{container['name']} is not ready: {_state(container)}"
    return "\n".join(
        [head, *(f"    {line}" for line in _last_log(directory / "pods" / place / container["name"]))]
    )


def _state(container: Mapping[str, Any]) -> str:
    for state, details in container.get("state", {}).items():
        more = [str(details[key]) for key in ("reason", "message") if details.get(key)]
        return f"{': '.join([state, *more])}, {container['restartCount']} restarts"
    return "not started"


def _last_log(directory: Path, lines: int = 10) -> list[str]:
    """The end of the newest log that says anything: a restarted container's own may still be empty."""
    logs = sorted(directory.glob("*.log"), key=lambda path: int(path.stem), reverse=True)
    texts = (path.read_text(errors="replace").splitlines() for path in logs)
    return next((text[-lines:] for text in texts if text), [])
