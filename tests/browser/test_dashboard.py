"""The page as a person meets it: live, by keyboard, in light and dark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dev.fake_api import refusal
from tests.browser.conftest import Served
from tests.dashboard import ROLLOUTS

pytestmark = pytest.mark.browser

PATHS = {
    "/": "Overview",
    "/reservations": "IP reservation",
    "/addresses": "Anycast IP",
    "/elasticity": "Elasticity",
    "/rollouts": "Rollouts",
}
IMAGES = Path(__file__).parents[2] / "docs" / "images"
ENOUGH = 4.5
"""The contrast that WCAG AA requires of text."""
CONTRASTS = (Path(__file__).parent / "contrasts.js").read_text()


@pytest.mark.parametrize("path", PATHS)
def test_each_page_opens_and_is_live(served: Served, path: str) -> None:
    tab = served.open(path)

    assert tab.locator("h1").inner_text() == PATHS[path]
    assert tab.locator("#connection").inner_text() == "● Live"
    assert "cannot be shown" not in tab.content()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(served: Served, path: str, scheme: Any) -> None:
    served.tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    found = served.open(path).evaluate(CONTRASTS)

    assert len(found) > 20
    assert [each for each in found if each["ratio"] < ENOUGH] == []


@pytest.mark.parametrize("path", PATHS)
def test_no_page_is_wider_than_a_small_window(served: Served, path: str) -> None:
    served.tab.set_viewport_size({"width": 390, "height": 800})

    assert served.open(path).evaluate("document.documentElement.scrollWidth") <= 390


OUTSIDE = """(() => {
  const right = innerWidth - parseFloat(getComputedStyle(document.querySelector("main")).paddingRight);
  return [...document.querySelectorAll(".scroll, .card, .rollout")]
    .filter(each => each.getBoundingClientRect().right > right + 1).map(each => each.textContent.trim().slice(0, 40));
})()"""


@pytest.mark.parametrize("width", [800, 1280])
@pytest.mark.parametrize("path", PATHS)
def test_nothing_reaches_into_the_margin(served: Served, path: str, width: int) -> None:
    served.tab.set_viewport_size({"width": width, "height": 800})

    assert served.open(path).evaluate(OUTSIDE) == []


def test_a_rollout_changes_before_ones_eyes_and_what_is_open_or_has_the_focus_stays(served: Served) -> None:
    tab = served.open("/rollouts")
    walk(tab, "Pause…")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    shown = tab.locator(":popover-open [name=shown]").input_value()
    before = tab.locator(".grid .up-to-date").count()
    tab.evaluate("document.body.dataset.same = 'yes'")

    for _ in range(4):
        served.turn()
    tab.wait_for_function("n => document.querySelectorAll('.grid .up-to-date').length > n", arg=before)
    assert focused(tab) == "Pause edge/web"
    assert tab.locator(":popover-open [name=shown]").input_value() == shown
    assert tab.evaluate("document.body.dataset.same") == "yes"


def test_the_first_key_leads_past_the_navigation_and_the_focus_is_seen(served: Served) -> None:
    tab = served.open("/")
    tab.keyboard.press("Tab")
    assert focused(tab) == "Skip to the content"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert focused(tab) == "IP reservation"
    assert tab.evaluate("document.activeElement.closest('main') !== null")


def test_a_rollout_is_paused_by_keyboard(served: Served) -> None:
    tab = served.open("/rollouts")
    walk(tab, "Pause…")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert focused(tab) == "Pause edge/web"
    tab.keyboard.press("Enter")

    tab.wait_for_selector("text=Resume…")
    assert served.api.get(ROLLOUTS, "web", "edge")["spec"]["paused"] is True


def test_pages_can_be_read_without_javascript(served: Served, chromium: Any) -> None:
    with chromium.new_context(java_script_enabled=False) as context:
        tab = context.new_page()
        tab.goto(served.guard.url)
        tab.wait_for_url(f"http://127.0.0.1:{served.guard.port}/")
        tab.click("nav >> text=Rollouts")

        assert tab.locator(".grid li").count() == 24
        assert tab.locator("text=Read again").is_visible()


def test_a_list_is_filtered_while_one_types(served: Served) -> None:
    tab = served.open("/rollouts")
    tab.keyboard.press("/")
    tab.keyboard.type("edge-1")
    tab.wait_for_function("() => document.querySelectorAll('.grid li').length === 10")

    assert tab.url.endswith("/rollouts?q=edge-1")
    assert tab.evaluate("document.activeElement.id") == "filter"
    assert tab.locator("#connection").inner_text() == "● Live"


def test_while_the_api_server_is_away_the_page_is_not_live_and_keeps_what_was_read(served: Served) -> None:
    tab, answers = served.open("/rollouts"), served.api.fault
    served.api.fault = lambda _: refusal(503, "ServiceUnavailable", "shutting down")
    tab.wait_for_selector("#connection.warning")

    assert tab.locator("#connection").inner_text() == "▲ Not live"
    assert "shutting down" in tab.locator("#notice").inner_text()
    assert tab.locator("main.stale .grid li").count() == 24

    served.api.fault = answers
    tab.wait_for_selector("#connection.good")
    assert tab.locator("#notice").is_hidden()
    assert tab.locator("main.stale").count() == 0


def test_a_server_that_answers_again_is_live_also_when_nothing_has_changed(served: Served) -> None:
    tab = served.open("/addresses")
    tab.evaluate("say('▲ Not live: no answer', 'warning')")

    tab.wait_for_selector("#connection.good")


def test_a_server_that_has_ended_is_named_and_tried_again(served: Served) -> None:
    tab = served.open("/")
    tab.route("**/live/*", lambda route: route.abort())
    tab.wait_for_selector("#connection.warning")
    assert "is drawbridge dashboard running?" in tab.locator("#connection").inner_text()
    tab.unroute("**/live/*")

    tab.wait_for_selector("#connection.good")
    served.errors.clear()


@pytest.mark.parametrize(
    ("path", "name"), [("/", "overview"), ("/addresses", "addresses"), ("/rollouts", "rollouts")]
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pictures_of_the_documentation(
    served: Served, path: str, name: str, scheme: Any, tmp_path: Path
) -> None:
    """Of the fake API server: a lab has few nodes, with random names, and goes on between two pictures."""
    target = IMAGES if os.environ.get("SCREENSHOTS") else tmp_path
    file = f"dashboard-{name}-{scheme}.png"
    served.tab.emulate_media(color_scheme=scheme)
    served.open(path).screenshot(path=target / file, full_page=True)

    assert (IMAGES / file).exists()


def focused(tab: Any) -> str:
    return str(tab.evaluate("document.activeElement.textContent.trim()"))


def walk(tab: Any, text: str, most: int = 100) -> None:
    for _ in range(most):
        tab.keyboard.press("Tab")
        if focused(tab) == text:
            return
    raise AssertionError(f"{text} cannot be reached by Tab")
