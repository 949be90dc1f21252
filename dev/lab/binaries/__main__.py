"""`python -m dev.lab.binaries [NAME...]` prints `name path` of each program once it is there."""

import argparse
import sys

from dev.lab import binaries
from dev.lab.binaries.table import programs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.lab.binaries", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(programs())}")
    try:
        for name, path in binaries.ensure(*parser.parse_args().names).items():
            print(name, path)
    except binaries.BinaryError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
