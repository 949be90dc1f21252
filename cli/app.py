"""The root command; which sub-commands it has is the one list below."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from cli.errors import EXIT_CODES, unreadable
from cli.session import shared_options
from kube.errors import KubeError
from telemetry.build import VERSION

COMMANDS: Mapping[str, str] = {
    "status": "cli.status.command:status",
    "explain": "cli.explain.command:explain",
    "simulate": "cli.simulate.command:simulate",
    "doctor": "cli.doctor.command:doctor",
    "reservations": "cli.reservations.command:reservations",
    "addresses": "cli.addresses.command:addresses",
    "elasticity": "cli.elasticity.command:elasticity",
    "rollout": "cli.rollout.command:rollout",
    "dashboard": "dashboard.command:dashboard",
    "completion": "cli.completion:completion",
}
"""Each sub-command's name, and where it is; a module is imported when its command is used."""

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
