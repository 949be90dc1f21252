"""A program in which the same seed gives the same history: with the order of sets fixed, and on virtual time."""

from __future__ import annotations

import os
import sys

from dev.simulator.core.kernel import Kernel
from dev.simulator.core.seam import install

HASHING = "PYTHONHASHSEED"


def begin() -> Kernel:
    """To be called before anything of the product is imported; begins the program again where it must."""
    if os.environ.get(HASHING) != "0":
        os.environ[HASHING] = "0"
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - itself
    kernel = Kernel()
    install(kernel)
    return kernel
