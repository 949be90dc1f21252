"""The style check finds words to avoid wherever users and maintainers read, and leaves quoted code alone."""

import re
from pathlib import Path

import pytest

from dev.lab import style

FOUND = {
    "whatever the case": ("page.md", "Whoever reads this\n", "1: Whoever"),
    "an end of a line in a comment": ("module.py", "x = 1\n# a lease of\n# its own\n", "2: of # its own"),
    "parts of a text": ("module.py", 'text = "it is of "\n"its own"\n', '1: of " "its own'),
    "a name": ("module.py", "def is_told() -> None: ...\n", "1: told"),
    "a constant": ("module.py", "NOBODY = 1\n", "1: NOBODY"),
    "a class": ("module.py", "class SceneReader: ...\n", "1: Scene"),
    "an import": ("module.py", "\nfrom x import book\n", "2: book"),
    "a term in a docstring": ("module.py", '"""Watch the api server."""\n', "1: api server"),
    "a comment of a chart": ("values.yaml", "a: 1\n# for the api server\n", "2: api server"),
    "a text of a chart": ("alerts.yaml", "summary: Nobody leads\n", "1: Nobody"),
    "a note": ("NOTES.txt", "The rights of it\n", "1: rights"),
    "a title of a dashboard": ("board.json", '{"title": "Pods at home"}', "1: at home"),
}
LEFT = {
    "a part of a word": ("page.md", "untold bookmarks\n"),
    "code of a page": ("page.md", "the answer `nobody` of\n```sh\nkubectl auth whoever\n```\n"),
    "a link": ("page.md", "[the limits](of-its-own.md)\n"),
    "a term as a name in code": ("module.py", 'SELECTED = "daemonset"\n'),
    "a term as a key of a chart": ("values.yaml", "serviceaccount: kubernetes\n"),
    "a term in an address": ("page.md", "see kubernetes.io/os and x/kubernetes\n"),
}


@pytest.mark.parametrize(("name", "text", "expected"), FOUND.values(), ids=FOUND)
def test_is_found_in(name: str, text: str, expected: str) -> None:
    assert [f"{each.line}: {each.found}" for each in style.check(Path(name), text)] == [expected]


@pytest.mark.parametrize(("name", "text"), LEFT.values(), ids=LEFT)
def test_is_left_alone(name: str, text: str) -> None:
    assert style.check(Path(name), text) == []


def test_every_word_to_avoid_is_found() -> None:
    simple = [word for word in (*style.WORDS, *style.TERMS) if re.fullmatch("[a-z ]+", word)]

    assert [word for word in simple if not style.check(Path("page.md"), f"a {word} b")] == []


def test_what_is_in_scope_has_nothing_to_change() -> None:
    assert [str(found) for path in style.in_scope() for found in style.check(path, path.read_text())] == []


def test_every_path_in_scope_exists() -> None:
    assert [name for name in style.SCOPE if not (style.ROOT / name).exists()] == []
