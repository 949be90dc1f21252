"""The demo's last promise: each page of the dashboard shows what is in the cluster."""

from __future__ import annotations

from demo.page import SHOWN, shows_all

PAGES = {path: f"<main><h1>{heading}</h1></main>" for path, heading in SHOWN.items()}


def test_pages_with_their_headings_keep_the_promise() -> None:
    assert shows_all(PAGES).kept


def test_a_page_that_says_why_it_shows_nothing_breaks_the_promise() -> None:
    trouble = {"/addresses": "<h1>Anycast IP</h1><strong>This cannot be shown:</strong> forbidden"}

    shown = shows_all(PAGES | trouble)

    assert not shown.kept
    assert "/addresses" in shown.evidence
    assert "forbidden" in shown.evidence


def test_a_page_of_another_heading_breaks_the_promise() -> None:
    assert not shows_all(PAGES | {"/": "HTTP Error 403: FORBIDDEN"}).kept
