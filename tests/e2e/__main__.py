"""`python -m tests.e2e [PYTEST ARGUMENT...]` runs the end-to-end scenes on what the machine has, or exits with 3.

Kind where Docker runs; else, as root on Linux, real nodes in namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from dev.lab import binaries
from dev.lab.cluster import BINARIES
from dev.lab.errors import LabError
from dev.lab.node import requirements, world
from tests.e2e import kind, real
from tests.e2e.conftest import PROVIDER

NEITHER = 3
PROGRAMS = ("calico-ipam", "calico-node", "metallb-controller", "metallb-speaker")
"""Programs of single scenes."""


def main() -> int:
    scenes = [sys.executable, "-m", "pytest", "-q", "-m", "e2e", *(sys.argv[1:] or ["tests/e2e"])]
    without_kind = kind.here()
    if not without_kind:
        return subprocess.run(scenes, env={**os.environ, PROVIDER: "kind"}, check=False).returncode
    without_nodes = requirements.missing()
    if without_nodes:
        print(f"no end-to-end tests here: {without_kind}; {without_nodes}", file=sys.stderr)
        return NEITHER
    print(f"real nodes, because {without_kind}", file=sys.stderr)
    try:
        binaries.ensure(*BINARIES, *binaries.NODE, *PROGRAMS)
        os.environ |= {PROVIDER: "real", real.ARCHIVES: json.dumps(real.build())}
        return world.run(scenes)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
