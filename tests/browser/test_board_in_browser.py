"""The board as a person uses it, with scripts and without."""

import csv
import io

import pytest
from conftest import Site, keep, watched
from playwright.sync_api import Browser, Page, expect

ROWS = "table.board tbody tr"


@pytest.fixture(params=[True, False], ids=["with-scripts", "without"])
def either(request: pytest.FixtureRequest, browser: Browser, site: Site):  # type: ignore[no-untyped-def]
    """A page with scripts, and one without."""
    with watched(browser, site.url, java_script_enabled=request.param) as opened:
        yield opened


def column(page: Page, number: int) -> list[str]:
    return [text.strip() for text in page.locator(f"{ROWS} td:nth-child({number})").all_inner_texts()]


def test_a_head_sorts_and_sorts_back(either: Page) -> None:
    either.goto("/board/qwen3-8b")
    either.get_by_role("link", name="speed", exact=True).click()
    shown = [float(text.removesuffix("×")) for text in column(either, 8) if text != "—"]
    assert shown == sorted(shown, reverse=True)
    expect(either.locator("th[aria-sort=descending]")).to_have_text("speed ▼")
    either.get_by_role("link", name="speed").first.click()
    shown = [float(text.removesuffix("×")) for text in column(either, 8) if text != "—"]
    assert shown == sorted(shown)


def test_the_form_filters(either: Page) -> None:
    either.goto("/board/qwen3-8b")
    everything = either.locator(ROWS).count()
    either.get_by_label("track").select_option("engine")
    either.get_by_label("without references").check()
    either.get_by_role("button", name="Show").click()
    assert 0 < either.locator(ROWS).count() < everything
    assert set(column(either, 11)) == {"engine"}
    expect(either.get_by_text("reference", exact=True)).to_have_count(0)
    expect(either.get_by_label("track")).to_have_value("engine")
    either.get_by_label("participant or method").fill("nobody at all")
    either.get_by_role("button", name="Show").click()
    either.get_by_role("link", name="Show all").click()
    assert either.locator(ROWS).count() == everything


def test_two_ticked_rows_are_compared(either: Page) -> None:
    either.goto("/board/qwen3-8b")
    either.get_by_label("compare team-01").check()
    either.get_by_label("compare team-02").check()
    either.get_by_role("button", name="Compare ticked rows").click()
    expect(either.get_by_role("heading", level=1)).to_have_text("Compare submissions")
    assert either.locator("table.compare thead th").count() == 3
    expect(either.get_by_role("row", name="score ± se")).to_contain_text("best")


def test_pointing_at_a_mark_tells_its_figures(page: Page) -> None:
    page.goto("/board/qwen3-8b")
    mark = page.locator(".hover", has=page.locator("a[href='/submissions/0000000000000011']"))
    tip = mark.locator(".tip")
    expect(tip).to_be_hidden()
    mark.locator(".target").hover()
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("team-17")
    expect(tip).to_contain_text("S 1.")
    keep(page, "board-hover")
    box, picture = tip.bounding_box(), page.locator("svg.picture").bounding_box()
    assert box is not None
    assert picture is not None
    assert box["x"] >= picture["x"]
    assert box["x"] + box["width"] <= picture["x"] + picture["width"]
    mark.locator(".target").click()
    expect(page.locator("main")).to_contain_text("submission 0000000000000011")


def test_every_tip_stays_inside_the_picture(page: Page) -> None:
    page.goto("/board/qwen3-8b")
    outside = page.evaluate(
        """() => {
          const picture = document.querySelector('svg.picture').getBoundingClientRect();
          return [...document.querySelectorAll('.tip')].filter(tip => {
            tip.style.display = 'inline';
            const box = tip.getBoundingClientRect();
            tip.style.display = '';
            return box.left < picture.left || box.right > picture.right || box.top < picture.top
              || box.bottom > picture.bottom;
          }).map(tip => tip.textContent);
        }"""
    )
    assert outside == []


def test_the_board_is_downloaded_as_a_table(page: Page) -> None:
    page.goto("/board/qwen3-8b")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.suggested_filename == "board-qwen3-8b.csv"
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert len(rows) == page.locator(ROWS).count()


def test_what_is_ranked_tied_flagged_and_refused_is_marked(page: Page) -> None:
    page.goto("/board/qwen3-8b")
    expect(page.get_by_role("row", name="team-01")).to_contain_text("tied")
    flagged = page.get_by_role("row", name="mallory")
    expect(flagged).to_contain_text("flagged")
    expect(flagged).to_contain_text("remembered answers")
    expect(page.get_by_role("row", name="linus")).to_contain_text("rejected")
    expect(page.get_by_role("row", name="grace")).to_contain_text("gate failed")
