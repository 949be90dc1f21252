"""What the documents ask of kubectl, Helm and our command is what these understand, also where no test can run it."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import pytest

from dev.lab import binaries
from tests.pages import PAGES, ROOT, Block, blocks, commands

SHELL = [block for page in PAGES for block in blocks(page) if block.language == "sh"]
PARENTS = {
    "kubectl": {"auth", "create", "rollout", "secret"},
    "helm": {"get"},
    "drawbridge": {"reservations", "addresses", "elasticity", "rollout", "explain", "simulate"},
}
"""Commands that have subcommands."""
LEAST = {"kubectl": 10, "helm": 10, "drawbridge": 8}
"""A help text has more options than so many."""
OF_THE_MOMENT = {"--wait", "--install", "--reset-then-reuse-values", "--take-ownership", "--force-conflicts"}
"""Options of an installation that say nothing of what is installed."""
YOURS = {"-f", "--set-file"}
"""Options that name files of the reader, without which the rest may be too little."""


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_every_command_and_option_is_one_that_the_program_has(block: Block) -> None:
    for program, *words in commands(block):
        if (program, *words[:1]) == ("kubectl", "drawbridge"):
            program = words.pop(0)
        if program in PARENTS:
            plain = [word for word in words[: words.index("--") if "--" in words else None] if word != "-"]
            used = {word.partition("=")[0] for word in plain if re.match("--?[A-Za-z]", word)}
            assert used <= options(program, *path(program, plain)), words


def path(program: str, words: list[str]) -> list[str]:
    """Of *words*, those that name the command: ``rollout status``."""
    names = [word for before, word in zip(["", *words], words, strict=False) if before != "-n"]
    names = [word for word in names if not word.startswith("-")]
    depth = next(number for number, word in enumerate(names, 1) if word not in PARENTS[program])
    return names[:depth]


@functools.cache
def options(program: str, *command: str) -> set[str]:
    """Those of a command, and those of the whole program."""
    of_all = {"kubectl": [["options"]], "drawbridge": [["--help"]]}
    asked = [[*command, "--help"], *of_all.get(program, [])]
    text = "\n".join(output_of(program, *each) for each in asked)
    found = re.findall(r"^ +(?:(-\w), )?(--[\w-]+)", text, re.MULTILINE)
    assert len(found) > LEAST[program], f"{program} {command}: {text[:500]}"
    return {option for pair in found for option in pair if option}


def output_of(program: str, *arguments: str) -> str:
    ours = [sys.executable, "-m", "cli"]
    command = ours if program == "drawbridge" else [str(binaries.ensure(program)[program])]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installations(block: Block) -> list[list[str]]:
    """The options of each ``helm install`` and ``helm upgrade`` that needs no file of the reader's."""
    found = [words for words in commands(block) if words[:2] in (["helm", "install"], ["helm", "upgrade"])]
    return [[here(word) for word in words[2:]] for words in found if not YOURS & {*words}]


def here(word: str) -> str:
    """The chart of a registry is the one of this checkout, with another image."""
    return "charts/drawbridge" if word.startswith("oci://") else word


@pytest.mark.parametrize("block", [block for block in SHELL if installations(block)], ids=str)
def test_the_chart_takes_every_set_of_values_as_it_is_given(block: Block) -> None:
    for words in installations(block):
        rendered = output_of("helm", "template", *(word for word in words if word not in OF_THE_MOMENT))

        assert "kind: Deployment" in rendered
