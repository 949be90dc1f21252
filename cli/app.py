"""The root command; which sub-commands it has is the one list below."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from cli.errors import EXIT_CODES, unreadable
from cli.session import shared_options
from kube.errors import KubeError
from telemetry.build import VERSION

COMMANDS: Mapping[str, str] = {
    "status": "cli.commands.status:status",
    "explain": "cli.commands.explain:explain",
    "simulate": "cli.commands.simulate:simulate",
    "doctor": "cli.commands.doctor:doctor",
    "reservations": "cli.commands.reservations:reservations",
    "addresses": "cli.commands.addresses:addresses",
    "elasticity": "cli.commands.elasticity:elasticity",
    "rollout": "cli.commands.rollout:rollout",
    "dashboard": "dashboard.command:dashboard",
    "completion": "cli.commands.completion:completion",
}
"""Each sub-command's name, and where it is; a module is imported when its command is used."""
SUMMARIES: Mapping[str, str] = {
    "status": "All features at a glance; what is wrong comes first.",
    "explain": "Why an object is treated as it is, and what would happen to it now.",
    "simulate": "What would happen, decided as Drawbridge decides.",
    "doctor": "Find out what is wrong with the installation.",
    "reservations": "List, release and hold reserved IPs.",
    "addresses": "List anycast IPs of nodes.",
    "elasticity": "See where pods are placed, and return them.",
    "rollout": "See, pause, resume, start or undo rollouts.",
    "dashboard": "Show all of this live in the browser, on a page of this machine.",
    "completion": "Print a script that completes commands and options.",
}
"""The first sentence of each one's help: to complete a name, a shell need not wait for the import of them all."""

HELP = "See what Drawbridge does in a cluster, and what is wrong; change what is changed by hand."
EXITS = "\b\nExit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())


class Application(click.Group):
    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

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
