"""What the documents ask of kubectl, Helm and our command is what these understand, also where no test can run it."""

from __future__ import annotations

import functools
import re
import subprocess

import pytest

from dev.lab import binaries, cli_page
from tests.charts import helm_needed
from tests.pages import ROOT, SHELL, Block, commands

pytestmark = helm_needed

PARENTS = {
    "kubectl": {"auth", "create", "rollout", "secret"},
    "helm": {"get"},
}
"""Commands that have subcommands."""
OURS = dict(cli_page.commands())
LEAST = {"kubectl": 10, "helm": 10, "drawbridge": 8}
"""A help text has more options than so many."""
OF_THE_MOMENT = {"--wait", "--install", "--reset-then-reuse-values", "--take-ownership", "--force-conflicts"}
"""Options of an installation that say nothing of what is installed."""
YOURS = {"-f", "--set-file"}
"""Options that name files of the reader, without which the rest may be too little."""


def test_every_command_and_option_is_one_that_the_program_has(subtests: pytest.Subtests) -> None:
    for block in SHELL:
        for program, *words in commands(block):
            if (program, *words[:1]) == ("kubectl", "drawbridge"):
                program = words.pop(0)
            if program in LEAST and words[:1] != ["krew"]:  # another plugin of kubectl
                plain = [
                    word for word in words[: words.index("--") if "--" in words else None] if word != "-"
                ]
                used = {word.partition("=")[0] for word in plain if re.match("--?[A-Za-z]", word)}
                with subtests.test(str(block), words=words):
                    assert used <= options(program, *path(program, plain))


def path(program: str, words: list[str]) -> list[str]:
    """Of *words*, those that name the command: ``rollout status``."""
    names = [word for before, word in zip(["", *words], words, strict=False) if before != "-n"]
    names = [word for word in names if not word.startswith("-")]
    depths = range(1, len(names) + 1)
    if program == "drawbridge":
        depth = max((each for each in depths if " ".join((program, *names[:each])) in OURS), default=0)
    else:
        depth = next(each for each in depths if names[each - 1] not in PARENTS[program])
    return names[:depth]


@functools.cache
def options(program: str, *command: str) -> set[str]:
    """Those of a command, and those of the whole program."""
    asked = [command] if program == "helm" else [command, ()]
    text = "\n".join(help_text(program, *words) for words in asked)
    found = re.findall(r"^ +(?:(-\w), )?(--[\w-]+)", text, re.MULTILINE)
    assert len(found) > LEAST[program], f"{program} {command}: {text[:500]}"
    return {option for pair in found for option in pair if option}


def help_text(program: str, *command: str) -> str:
    if program == "drawbridge":
        context = OURS[" ".join(("drawbridge", *command))]
        return context.command.get_help(context)
    return output_of(program, *command, "--help") if command else output_of(program, "options")


def output_of(program: str, *arguments: str) -> str:
    command = str(binaries.ensure(program)[program])
    done = subprocess.run([command, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installations(block: Block) -> list[list[str]]:
    """The options of each ``helm install`` and ``helm upgrade`` that needs no file of the reader's."""
    found = [words for words in commands(block) if words[:2] in (["helm", "install"], ["helm", "upgrade"])]
    return [[here(word) for word in words[2:]] for words in found if not YOURS & {*words}]


def here(word: str) -> str:
    """The chart of a registry is the one of this checkout, with another image."""
    return "charts/drawbridge" if word.startswith("oci://") else word


def test_the_chart_takes_every_set_of_values_as_it_is_given(subtests: pytest.Subtests) -> None:
    for block in SHELL:
        for words in installations(block):
            with subtests.test(str(block), words=words):
                rendered = output_of(
                    "helm", "template", *(each for each in words if each not in OF_THE_MOMENT)
                )

                assert "kind: Deployment" in rendered
