"""The root command; which sub-commands it has is the one list below."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

import click
from click.shell_completion import CompletionItem

from cli.errors import EXIT_CODES, unreadable
from cli.session import shared_options
from features import FEATURES
from kube.errors import KubeError
from telemetry.build import VERSION

_BEFORE = {
    "status": ("cli.status:status", "All features at a glance; what is wrong comes first."),
    "explain": (
        "cli.explain.kinds:explain",
        "Why an object is treated as it is, and what would happen to it now.",
    ),
    "simulate": ("cli.simulate.command:simulate", "What would happen, decided as Drawbridge decides."),
    "doctor": ("cli.doctor:doctor", "Find out what is wrong with the installation."),
}
_AFTER = {
    "dashboard": (
        "dashboard.command:dashboard",
        "Show all of this live in the browser, on a page of this machine.",
    ),
    "completion": (
        "cli.completion:completion",
        "Print a script that completes commands and options.",
    ),
}
_ALL = {**_BEFORE, **{name: found for row in FEATURES for name, found in row.commands.items()}, **_AFTER}
COMMANDS = {name: reference for name, (reference, _) in _ALL.items()}
"""Each sub-command's name, and where it is; a module is imported when its command is used."""
SUMMARIES = {name: summary for name, (_, summary) in _ALL.items()}
"""The first sentence of each one's help: to complete a name, a shell need not wait for the import of them all."""

HELP = "See what Drawbridge does in a cluster, and what is wrong; change what is changed by hand."
EXITS = "\b\nExit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())


class Application(click.Group):
    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        found: click.Command | None = resolve_name(COMMANDS[name]) if name in COMMANDS else None
        return found

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*SUMMARIES.items()])

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        options = click.Command.shell_complete(self, context, incomplete)
        names = (name for name in SUMMARIES if name.startswith(incomplete))
        return [*(CompletionItem(name, help=SUMMARIES[name]) for name in names), *options]

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except KubeError as error:
            raise unreadable(error) from error


@click.group(
    cls=Application,
    help=HELP,
    epilog=EXITS,
    params=shared_options(hidden=False),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(VERSION, prog_name="drawbridge")
def drawbridge() -> None:
    pass


def main() -> None:
    drawbridge(prog_name="drawbridge")
