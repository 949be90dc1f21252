"""The picture of `drawbridge status` in the README is what the command prints."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests import cli
from tests.browser.conftest import busy
from tests.browser.test_dashboard import IMAGES

pytestmark = pytest.mark.browser

WIDTH = 118
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; display: inline-block; padding: 1rem 1.5rem; background: {background}; color: {foreground} }}
pre {{ margin: 0; font: 14px/1.35 "DejaVu Sans Mono", monospace }}
{stylesheet}</style><pre>{code}</pre>"""


def test_the_picture_of_the_status(chromium: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    printed = cli.run(busy()[0], "status").output
    target = IMAGES if os.environ.get("SCREENSHOTS") else tmp_path
    tab = chromium.new_page(viewport={"width": 1200, "height": 100})
    tab.set_content(html(f"$ kubectl drawbridge status\n{printed}"))

    tab.locator("body").screenshot(path=target / "status.png")
    tab.close()

    assert "\x1b[" in printed, "no colors"
    assert (IMAGES / "status.png").exists()


def html(printed: str) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(printed))
    return console.export_html(theme=MONOKAI, code_format=PAGE)
