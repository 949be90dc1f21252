"""Reads what the documents say: their sections, tables and the commands in them."""

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.lab.waiting import stretch

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(
    r"(?:<!-- run: (?P<where>\w+)(?:, prints \"(?P<prints>[^\n]+?)\")? -->\n"
    r"|<!-- not run: (?P<reason>[^\n]+?) -->\n)?"
    r"(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)\n *```\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block; *where* it is to be run, and what it then *prints*, or for what *reason* it is not."""

    page: Path
    line: int
    language: str
    text: str
    where: str
    prints: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("indent")) + 1,
            found["language"],
            re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            found["where"] or "",
            found["prints"] or "",
            found["reason"] or "",
        )
        for found in FENCE.finditer(text)
    ]


SHELL = [block for page in PAGES for block in blocks(page) if block.language == "sh"]


def commands(block: Block) -> list[list[str]]:
    """The words of each of its simple commands; those within a command's substitution are left out."""
    text = re.sub(r"\\\n|(?<=\s)#[^\n]*|\"\$\(.*?\)\"", " ", block.text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("();<>|&\n"):
            found.append([])
        else:
            found[-1].append(word)
    return [each for each in found if each]


def run(block: Block, directory: Path, environment: Mapping[str, str], seconds: float = 240) -> str:
    """Run *block* as a careful reader would, and return what it printed; fails at its first failing command."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds * stretch(),
    )
    assert done.returncode == 0, f"{block}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def sections(page: Path) -> dict[str, str]:
    """What stands under each heading; a section has its subsections, too."""
    text = prose(page)
    headings = list(re.finditer(r"^(#+) (.+)$", text, re.MULTILINE))
    return {
        heading[2]: text[heading.end() : _end(headings[number + 1 :], len(heading[1]), len(text))]
        for number, heading in enumerate(headings)
    }


def slug(title: str) -> str:
    """A heading's anchor, as the usual renderers make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _end(following: list[re.Match[str]], level: int, default: int) -> int:
    return next((heading.start() for heading in following if len(heading[1]) <= level), default)


def terms(page: Path, section: str) -> list[str]:
    """What the items of the lists in *section* explain, each after its colon."""
    return re.findall("^- ((?:`[^`]*`|[^`])+?): ", sections(page)[section], re.MULTILINE)


def table(page: Path, section: str) -> list[list[str]]:
    """The rows of all tables in *section*, without their heads."""
    lines = sections(page)[section].splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    heads = {number - 1 for number, row in enumerate(rows) if set("".join(row)) <= set("- ")}
    return [
        [cell.strip() for cell in row]
        for number, row in enumerate(rows)
        if number not in heads and number - 1 not in heads
    ]
