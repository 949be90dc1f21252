"""`python -m dev.lab up`, `down` and `list`: labs that stay for as long as they are wanted."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dev.lab import bootstrap, owner, session, teardown, workdir
from dev.lab.cloud import fixture
from dev.lab.errors import LabError
from dev.lab.waiting import until
from kube.errors import KubeError

DEFAULT_NAME = "default"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (LabError, KubeError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; what was started is being taken down", file=sys.stderr)
        return 130
    return 0


def up(options: argparse.Namespace) -> None:
    values = read_values(options.values)
    if not _is_up(options.name):
        knobs: dict[str, Any] | None = {} if fixture.is_wanted(values) and not options.bare else None
        with bootstrap.running(
            options.name,
            values=values,
            chart=not options.bare,
            nodes=options.nodes,
            cloud=knobs,
            policy=options.policy,
            tied=False,
            progress=_progress(),
        ):
            print(
                f"lab '{options.name}' is up; end it with: python -m dev.lab down --name {options.name}",
                file=sys.stderr,
            )
    lab = session.Lab(options.name)
    if cloud := fixture.find(lab.logs):
        print(f"its cloud is at http://{cloud.endpoint}", file=sys.stderr)
    print(f"export KUBECONFIG={shlex.quote(str(lab.kubeconfig))}")


def down(options: argparse.Namespace) -> None:
    teardown.sweep()
    ended = teardown.down(options.name)
    print(f"lab '{options.name}' {'is gone' if ended else 'was not there'}", file=sys.stderr)


def show(_options: argparse.Namespace) -> None:
    teardown.sweep()
    for name in workdir.names():
        state = workdir.read_state(name)
        stands = "up" if state and state.kept else "held by a run, or coming up"
        print(f"{name}\t{stands}\t{session.Lab(name).kubeconfig}")


def read_values(path: Path | None) -> Mapping[str, Any]:
    """A file of Helm values; LabError names the file when it is none."""
    if path is None:
        return {}
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise LabError(f"--values: {path} cannot be read: {error}") from error
    if not isinstance(values, dict | None):
        raise LabError(f"--values: {path} holds a {type(values).__name__}; Helm values are a mapping")
    return values or {}


def _is_up(name: str) -> bool:
    """Whether a complete lab of this name runs already; one that is coming up is waited for."""
    teardown.sweep()
    if not workdir.directory(name).exists():
        return False
    print(f"lab '{name}' is there already: nothing is started or changed", file=sys.stderr)

    def complete_or_gone() -> bool:
        state = workdir.read_state(name)
        return bool(state and state.kept) or not workdir.directory(name).exists()

    until(complete_or_gone, owner.START_SECONDS, f"lab '{name}', which is coming up or held by a run")
    return workdir.directory(name).exists()


def _progress() -> Callable[[str], None]:
    start = time.monotonic()

    def report(text: str) -> None:
        print(f"[{time.monotonic() - start:5.1f} s] {text}", file=sys.stderr, flush=True)

    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dev.lab", description="A real Kubernetes control plane on this machine."
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_up(verbs.add_parser("up", help="bring a lab up and leave it running"))
    ending = verbs.add_parser("down", help="take a lab down and remove all of it")
    ending.add_argument("--name", default=DEFAULT_NAME, help="which lab (default: %(default)s)")
    ending.set_defaults(run=down)
    verbs.add_parser("list", help="show the labs of this user").set_defaults(run=show)
    return parser


def _add_up(parser: argparse.ArgumentParser) -> None:
    parser.description = """Bring a lab up: control plane, nodes, an emulated cloud, and the chart. Progress goes
        to stderr; the last line on stdout is the export of KUBECONFIG. A lab of that name that is up is left as
        it is. With cloud.endpoint in the values, that cloud is used, and none is started."""
    parser.add_argument(
        "--name",
        default=DEFAULT_NAME,
        help="of the lab: labs of different names do not meet (default: %(default)s)",
    )
    parser.add_argument("--values", type=Path, metavar="FILE", help="Helm values, merged over the lab's own")
    parser.add_argument("--bare", action="store_true", help="only the cluster, without cloud and chart")
    parser.add_argument(
        "--nodes", type=int, default=3, help="nodes that run pods as processes (default: %(default)s)"
    )
    parser.add_argument(
        "--policy", action="store_true", help="a policy engine that changes all workloads, pods and nodes"
    )
    parser.set_defaults(run=up)


if __name__ == "__main__":
    sys.exit(main())
