"""Keep the volumes of one pod as its ConfigMaps, Secrets, tokens and labels say."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from dev.lab.kubelet import volumes
from dev.lab.kubelet.sources import TokenBox, fetch
from dev.lab.kubelet.values import Place, Pod, Store
from kube.client import Client


class MountedVolumes:
    def __init__(self, client: Client, directory: Path) -> None:
        self._client = client
        self._directory = directory
        self._tokens = TokenBox(client)
        self._stale = threading.Event()
        self._stale.set()

    def outdate(self) -> None:
        """Something that they show may have changed."""
        self._stale.set()

    def due_in(self, now: float) -> float:
        """Seconds until they have to be written again."""
        return 0.0 if self._stale.is_set() else max(0.0, self._tokens.renewal() - now)

    def write(self, pod: Pod, place: Place, now: float) -> Store:
        """Write what has changed; what they were made of. Raises CannotRun when a part is missing."""
        self._stale.clear()
        try:
            store = fetch(self._client, pod)
            tokens = self._tokens.current(pod, now)
            for volume in pod.spec.get("volumes", ()):
                self._write(
                    volume["name"], volumes.contents(pod, volume, place, store, tokens), "emptyDir" in volume
                )
        except Exception:
            self._stale.set()
            raise
        return store

    def _write(self, name: str, files: volumes.Files, empty: bool) -> None:
        if empty:
            (self._directory / name).mkdir(parents=True, exist_ok=True)
        else:
            volumes.write(self._directory / name, files)

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
