"""The root command, with the list of its sub-commands, and what a shell, or kubectl, needs to complete them."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from pkgutil import resolve_name
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from cli.errors import EXIT_CODES, Failure, unreadable
from cli.session import Command, shared_options
from features import FEATURES
from kube.errors import KubeError
from telemetry.program import VERSION

COMMANDS = {
    "status": ("cli.status:status", "Show all features at a glance, problems first."),
    "explain": (
        "cli.explain.kinds:explain",
        "Explain why an object is treated as it is, and what would happen to it now.",
    ),
    "simulate": ("cli.simulate:simulate", "Predict what a change would do."),
    "doctor": ("cli.doctor:doctor", "Diagnose the installation."),
    **{name: found for row in FEATURES for name, found in row.commands.items()},
    "dashboard": ("dashboard.command:dashboard", "Open a live dashboard in the browser."),
    "convert-values": ("cli.convert_values:convert_values", "Convert the values of an original's chart."),
    "completion": ("cli.app:completion", "Print a completion script for your shell."),
}
"""Where each sub-command is, and the first sentence of its help: a module is imported when its command is used, and not
to list or complete the names."""

NAME, VARIABLE = "drawbridge", "_DRAWBRIDGE_COMPLETE"
KUBECTL = """\
#!/bin/sh
# Save this as kubectl_complete-drawbridge, executable, on the PATH: kubectl completes its plugins with it.
COMP_WORDS="drawbridge $*" COMP_CWORD=$# _DRAWBRIDGE_COMPLETE=bash_complete kubectl-drawbridge | cut -d, -f2
echo :4
"""
SHELLS = ("bash", "zsh", "fish", "kubectl")
HELP = "Show what Drawbridge is doing in a cluster and what is wrong, and make changes by hand."
EXITS = "\b\nExit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())


class Application(click.Group):
    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        found: click.Command | None = resolve_name(COMMANDS[name][0]) if name in COMMANDS else None
        return found

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        options = click.Command.shell_complete(self, context, incomplete)
        names = (name for name in COMMANDS if name.startswith(incomplete))
        return [*(CompletionItem(name, help=COMMANDS[name][1]) for name in names), *options]

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except KubeError as error:
            raise unreadable(error) from error
        except KeyboardInterrupt:
            # As shells expect it, and at once: an exit waits for all threads that read.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)


@click.group(
    cls=Application,
    help=HELP,
    epilog=EXITS,
    params=shared_options(hidden=False),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(VERSION, prog_name=NAME)
def drawbridge() -> None:
    pass


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a completion script for your shell.

    For example: source <(drawbridge completion bash). For kubectl, save it as its comment says.
    """
    script = KUBECTL
    if found := get_completion_class(shell):
        # As click's own source() without its check of the version of bash, which starts one.
        made = found(click.Group(NAME), {}, NAME, VARIABLE)
        script = made.source_template % made.source_vars()
    click.echo(script, nl=False)


def main() -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names and messages have letters of all languages
    try:
        drawbridge(prog_name=NAME)
    except OSError as error:
        # Of standard output, which has no file name; where its reader is gone, click has ended quietly.
        if error.filename is not None:
            raise
        # Python flushes once more at exit, and would fail with a second message and 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        failure = Failure(f"cannot write the output: {error.strerror}")
        failure.show()
        sys.exit(failure.exit_code)
