"""Every page, light and dark, on a phone and at a desk: found good by axe, no wider than the window, usable by keys."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import Site, keep, watched
from fakes.records import moved_record
from playwright.sync_api import Browser, Page, expect

from lowbit_ray.report.page import result_page

PAGES = {
    "home": "/",
    "board": "/board/qwen3-8b",
    "empty-board": "/board/qwen35-27b",
    "submissions": "/submissions",
    "scored": f"/submissions/{1:016x}",
    "gate-failed": f"/submissions/{901:016x}",
    "refused": f"/submissions/{902:016x}",
    "failed": f"/submissions/{904:016x}",
    "waiting": f"/submissions/{1000:016x}",
    "compare": f"/compare?id={1:016x}&id={2:016x}&id={900:016x}",
    "rules": "/rules",
    "scoring": "/scoring",
    "sign-in": "/login",
}
WINDOWS = {"desk-light": ("light", 1280), "phone-dark": ("dark", 360)}
RULES = {
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    }
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_keeps_the_guidelines(name: str, window: str, browser: Browser, site: Site) -> None:
    scheme, width = WINDOWS[window]
    view = {"width": width, "height": 800}
    with watched(browser, site.url, color_scheme=scheme, viewport=view, reduced_motion="reduce") as page:
        page.goto(PAGES[name])
        for details in page.locator("details").all():
            details.evaluate("element => element.open = true")
        keep(page, f"{name}-{window}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page, options=RULES)
        assert found.violations_count == 0, found.generate_report()


def test_the_dark_desk_too(browser: Browser, site: Site) -> None:
    with watched(browser, site.url, color_scheme="dark") as page:
        for name, path in (("board", "/board/qwen3-8b"), ("qualified", "/submissions/0000000000000001")):
            page.goto(path)
            keep(page, f"{name}-desk-dark")
            found = Axe().run(page, options=RULES)
            assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("window", WINDOWS)
def test_the_standalone_page_of_a_record_too(window: str, browser: Browser, tmp_path: Path) -> None:
    scheme, width = WINDOWS[window]
    file = tmp_path / "result.html"
    file.write_text(result_page(moved_record(1)))
    view = {"width": width, "height": 800}
    with watched(browser, file.as_uri(), color_scheme=scheme, viewport=view) as page:
        page.goto(file.as_uri())
        keep(page, f"standalone-{window}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page, options=RULES)
        assert found.violations_count == 0, found.generate_report()


def test_the_first_key_offers_to_skip_to_the_content(page: Page) -> None:
    page.goto("/board/qwen3-8b")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_what_has_the_focus_is_seen(page: Page) -> None:
    page.goto("/board/qwen3-8b")
    for _ in range(4):
        page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_nothing_moves_for_who_wants_no_motion(browser: Browser, site: Site) -> None:
    with watched(browser, site.url, reduced_motion="reduce") as page:
        page.goto("/board/qwen3-8b")
        moving = page.evaluate(
            "[...document.querySelectorAll('*')].filter(e => parseFloat(getComputedStyle(e).transitionDuration) > 0"
            " || getComputedStyle(e).animationName !== 'none').length"
        )
        assert moving == 0
