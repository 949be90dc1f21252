"""`python -m dev.lab.cloud --port 8300`: serve the emulator until the program ends."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from dev.lab.cloud.config import Knobs, read
from dev.lab.cloud.server import HOST, serving
from dev.lab.errors import LabError


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        knobs = read(options.knobs.read_bytes()) if options.knobs else Knobs()
        with serving(knobs, host=options.host, port=options.port) as cloud:
            print(f"the cloud is at http://{cloud.endpoint}\nready", flush=True)
            signal.sigwait(signals)
    except (LabError, OSError) as error:
        print(f"dev.lab.cloud: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.lab.cloud", description=__doc__)
    parser.add_argument("--host", default=HOST, help=f"where it listens, {HOST} when not given")
    parser.add_argument("--port", type=int, default=0, help="of that host; any that is free when not given")
    parser.add_argument("--knobs", type=Path, help="a JSON file with knobs that are not to be as by default")
    return parser


if __name__ == "__main__":
    sys.exit(main())
