"""The environment in which an operator types what the documents say."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dev.lab import binaries
from dev.lab.session import Lab


def shell(lab: Lab) -> Mapping[str, str]:
    """With kubectl and helm, and the cluster of *lab*."""
    programs = binaries.ensure("kubectl", "helm")
    path = ":".join(str(program.parent) for program in programs.values())
    return {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", **lab.environment}
