"""Reserve an address and release it, with the ServiceAccount of the webhook servers: `helm test` runs this."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Callable, Sequence

from calico.ledger import ADDRESS, round_trip
from calico.reservations import AUTO, Reservations
from kube.client import Client
from kube.connection import MOUNTED, of_pod
from kube.errors import NotConfigured
from runtime import time, utc_now
from webhook.smoke_check import outcome

ATTEMPT = 5.0
"""Seconds for one attempt."""


def main(
    arguments: Sequence[str],
    connect: Callable[[], Client] = lambda: Client(of_pod()),
    writer: str = socket.gethostname(),
) -> int:
    """The exit code: 0 when it is done, else 1; 2 without a ServiceAccount."""
    given = _parser().parse_args(arguments)
    try:
        store = Reservations(connect(), given.calico_api_version)
        namespace = given.namespace or (MOUNTED / "namespace").read_text()
    except (NotConfigured, OSError) as error:
        print(f"the API server cannot be asked: {error}", file=sys.stderr)
        return 2
    end = time.monotonic() + given.seconds
    problem = outcome(lambda: round_trip(store, writer, namespace, utc_now(), ATTEMPT), end)
    print(f"FAILED {problem}" if problem else f"ok {ADDRESS} was reserved and released")
    return 1 if problem else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m webhook.ip_reservation.smoke_check", description=__doc__)
    parser.add_argument(
        "--calico-api-version", default=AUTO, help="as in the settings (default: %(default)s)"
    )
    parser.add_argument("--namespace", default="", help="of the release (default: the pod's)")
    parser.add_argument("--seconds", type=float, default=30, help="how long to try (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
