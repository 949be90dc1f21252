"""`python -m dev.lab.release.kubernetes`: the minor versions of Kubernetes that are supported, in JSON for CI."""

from __future__ import annotations

import json

from dev.lab.binaries.table import versions


def supported() -> list[str]:
    """From the oldest that README requires to the one that the labs run."""
    first, last = (_minor(versions(column)["kubernetes"]) for column in ("oldest", "versions"))
    return [f"1.{minor}" for minor in range(first, last + 1)]


def _minor(version: str) -> int:
    return int(version.split(".")[1])


if __name__ == "__main__":
    print(json.dumps(supported()))
