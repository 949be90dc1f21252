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
ELSEWHERE = ("explain", "simulate")
"""Groups that cli-explain.md has."""
SHARED = ("-h, --help", "-w, --watch", "-l, --selector")
"""Options that the page explains once, above the commands."""


def write() -> None:
    PAGE.write_text(page(PAGE.read_text()))


def page(text: str) -> str:
    """*text* with the help of today: one block for the commands of a group, without the group's own help."""
    head, _, _ = text.partition(MARK)
    groups: dict[str, list[str]] = {}
    for path, context in commands():
        group = path.split()[:2]
        if group[-1] not in ELSEWHERE and (
            context.parent is None or not isinstance(context.command, click.Group)
        ):
            groups.setdefault(" ".join(group), []).append(help_of(context))
    parts = (f"### {group}\n\n```text\n" + "\n\n".join(each) + "\n```\n" for group, each in groups.items())
    return f"{head}{MARK}\n" + "\n".join(parts)


def commands() -> Iterator[tuple[str, click.Context]]:
    settings = drawbridge.context_settings
    root = click.Context(drawbridge, info_name=NAME, terminal_width=WIDTH, **settings)
    yield from _with_subcommands(NAME, root)


def help_of(context: click.Context) -> str:
    """Without what all commands have alike, and without what the page says elsewhere."""
    text = context.command.get_help(context)
    if context.parent is not None:
        text, _, _ = text.partition(f"\n\n  {EPILOG[:40]}")
        text = re.sub(rf"\n *({'|'.join(SHARED)}).*", "", text)
        text = re.sub(r"^Usage:.*", usage(context), text)
    text = "\n".join(line.rstrip() for line in text.splitlines())
    text = re.sub(r"\n\nCommands:\n.*?(?=\n\n|$)", "", text, flags=re.DOTALL)
    return re.sub(r"\n\nOptions:\n*(?=\n\n|$)", "", text.rstrip())


def usage(context: click.Context) -> str:
    """As click's, with the options by name, except those of all commands."""
    options, arguments = [], []
    common = {each.name for each in drawbridge.params}
    for each in context.command.params:
        if not isinstance(each, click.Option):
            arguments.append(each.make_metavar(context))
        elif each.name not in common:
            value = "" if each.is_flag else f" {each.make_metavar(context)}"
            options.append(f"[{each.opts[0]}{value}]")
    return " ".join([context.command_path, *options, *arguments])


def _with_subcommands(path: str, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    yield path, context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None:
                inner = click.Context(command, parent=context, info_name=name, terminal_width=WIDTH)
                yield from _with_subcommands(f"{path} {name}", inner)
