"""`python -m dashboard`: serve the page in the cluster, behind a proxy that authenticates."""

from __future__ import annotations

import argparse
from functools import partial

from dashboard.proxied import Server, app_of
from telemetry.http import listen_address


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dashboard", description=__doc__)
    parser.add_argument("--listen", default=":8090", help="the address, which gets no TLS (default: :8090)")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="it is served as")
    chosen = parser.parse_args()
    hosts = {each.lower() for each in chosen.allow_host}
    Server(listen_address(chosen.listen), partial(app_of, hosts)).run()


if __name__ == "__main__":
    main()
