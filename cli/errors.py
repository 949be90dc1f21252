"""How the command fails: an exit code for scripts, a message for people, and the way out."""

from __future__ import annotations

from typing import IO, Any

import click

from cli.output import printable
from kube.errors import Forbidden, KubeError, NotConfigured, NotFound, Unauthorized, Unreachable

FINE, WRONG, USAGE, UNREADABLE, TIMED_OUT, PAUSED = range(6)
EXIT_CODES = {
    FINE: "all is well, or the change was made",
    WRONG: "something is wrong with what was asked about, or nothing was changed",
    USAGE: "the command line is wrong",
    UNREADABLE: "the cluster cannot be read or written: no connection, no permission",
    TIMED_OUT: "rollout status: still in progress when --timeout was over",
    PAUSED: "rollout status: paused, or the canary waits to be promoted",
}

ALLOW = "have an administrator allow it, or choose another context with --context"
"""What to do about a Forbidden, whose message says what it is about."""


class Failure(click.ClickException):
    """Ends the command with *message* and, on a second line, the *way_out*."""

    exit_code = WRONG

    def __init__(self, message: str, way_out: str = "") -> None:
        super().__init__(message)
        self.way_out = way_out

    def format_message(self) -> str:
        return printable(self.message)

    def show(self, file: IO[Any] | None = None) -> None:
        super().show(file)
        if self.way_out:
            click.echo(f"What to do: {printable(self.way_out)}", file=file, err=file is None)


class Unreadable(Failure):
    exit_code = UNREADABLE


def unreadable(error: KubeError | Failure) -> Failure:
    """*error* of a call to the API server, with what the user can do about it; a Failure says that itself."""
    match error:
        case Failure():
            return error
        case NotConfigured():
            return Unreadable(
                str(error),
                "name a kubeconfig with --kubeconfig or KUBECONFIG, and its context with --context",
            )
        case Unauthorized():
            return Unreadable(
                "the API server does not know who you are: it rejected the credentials of this context (401)",
                "log in to the cluster again, or choose another context with --context; kubectl auth whoami"
                " shows whether it worked",
            )
        case Forbidden():
            return Unreadable(error.message, ALLOW)
        case NotFound():
            return Failure(error.message, "check the name, the namespace (-n) and the cluster (--context)")
        case Unreachable():
            return Unreadable(
                f"the API server cannot be reached: {error}",
                "check that kubectl get --raw /version answers with the same kubeconfig and context",
            )
        case _:
            return Unreadable(
                f"the API server refused: {error}", "repeat it; if it lasts, see the API server's log"
            )
