"""Write the generated part of docs/reference/cli.md: the help of each command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from cli.app import drawbridge
from cli.session import EPILOG

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
MARK = "<!-- From here on written by make manifests: change the help of the commands instead. -->\n"
NAME, WIDTH = "drawbridge", 110


def write() -> None:
    PAGE.write_text(page(PAGE.read_text()))


def page(text: str) -> str:
    """*text* with the help of today; groups say nothing that their commands do not say."""
    head, _, _ = text.partition(MARK)
    parts = (
        f"### {path}\n\n```text\n{help_of(context)}\n```\n"
        for path, context in commands()
        if context.parent is None or not isinstance(context.command, click.Group)
    )
    return f"{head}{MARK}\n" + "\n".join(parts)


def commands() -> Iterator[tuple[str, click.Context]]:
    settings = drawbridge.context_settings
    root = click.Context(drawbridge, info_name=NAME, terminal_width=WIDTH, **settings)
    yield from _with_subcommands(NAME, root)


def help_of(context: click.Context) -> str:
    """Without what all commands have alike."""
    text = context.command.get_help(context)
    if context.parent is not None:
        text, _, _ = text.partition(f"\n\n  {EPILOG[:40]}")
        text = re.sub(r"\n *-h, --help.*", "", text)
    text = "\n".join(line.rstrip() for line in text.splitlines())
    return re.sub(r"\n\nOptions:\n*(?=\n\n|$)", "", text.rstrip())


def _with_subcommands(path: str, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    yield path, context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None:
                inner = click.Context(command, parent=context, info_name=name, terminal_width=WIDTH)
                yield from _with_subcommands(f"{path} {name}", inner)
