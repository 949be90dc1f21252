"""docs/reference/cli.md says what the commands say of themselves."""

from __future__ import annotations

import re

import click

from cli.app import COMMANDS, drawbridge
from dev.lab import cli_page
from tests.pages import PAGES, sections


def test_the_page_has_the_help_of_each_command() -> None:
    text = cli_page.PAGE.read_text()

    assert cli_page.page(text) == text, "make manifests writes it again"


def test_the_page_of_explain_and_simulate_has_their_commands_and_options() -> None:
    parts = sections(cli_page.PAGE.with_name("cli-explain.md"))

    for path, context in cli_page.commands():
        _, *words = path.split()
        if len(words) > 1 and words[0] in cli_page.ELSEWHERE:
            assert f"`{cli_page.usage(context)}`" in parts[" ".join(words)], path


def test_each_command_has_a_help_of_one_line_first() -> None:
    for path, context in cli_page.commands():
        first = (context.command.help or "").strip().partition("\n")[0]
        assert first.endswith("."), path
        assert len(first) <= 100, path


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    context = click.Context(drawbridge)
    for name, (_, summary) in COMMANDS.items():
        made = drawbridge.get_command(context, name)
        assert made
        assert made.get_short_help_str(100) == summary


def test_every_command_that_a_page_names_exists() -> None:
    known = {path for path, _ in cli_page.commands()}
    named = {
        (page.name, found)
        for page in PAGES
        for found in re.findall(r"`(?:kubectl )?(drawbridge [a-z]+(?:-[a-z]+)*)", page.read_text())
    }

    assert {(page, name) for page, name in named if name not in known} == set()
    assert COMMANDS.keys() == {path.split()[1] for path in known if path.count(" ") == 1}
