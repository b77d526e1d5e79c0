"""A submission, from the command line to its score, followed in a browser: real driver, Ray and HTTP, fake engines."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Site, keep, serving, watched
from fakes.arena import SMALL, Arena
from playwright.sync_api import Browser, expect

from lowbit_ray.people import issue_token

pytestmark = pytest.mark.timeout(540)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = Path(__file__).parents[1] / "fakes" / "hub.py"
PATIENCE_MS = 240_000
"""For whatever a busy machine takes its time with."""


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    pod = {"tensor_parallel": 0, "cpus": 1, "memory_gib": 0.25, "wait_s": 120}
    return Arena.build(tmp_path_factory.mktemp("arena"), **SMALL | {"pod": pod})


@pytest.fixture(scope="module")
def hub(arena: Arena) -> Iterator[str]:
    """A hub with one candidate at a commit; its address."""
    root = arena.root / "hub"
    shutil.copytree(arena.candidate("candidate"), root / "ann" / "small" / COMMIT)
    with subprocess.Popen([sys.executable, str(HUB), str(root)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


@pytest.fixture(scope="module")
def live(arena: Arena) -> Iterator[Site]:
    tokens = {"ann": issue_token(arena.ledger, "ann")}
    with serving(arena.settings) as url:
        yield Site(url, arena.ledger, tokens)


@contextlib.contextmanager
def working(arena: Arena, name: str) -> Iterator[subprocess.Popen[str]]:
    """The driver at work on a submission; what it said is told where the test fails."""
    with arena.start_job("jobs.evaluate", name) as job:
        try:
            yield job
        except BaseException:
            job.terminate()
            said, _ = job.communicate(timeout=60)
            print(said)
            raise


def lowbit(site: Site, folder: Path, *arguments: str) -> str:
    """What a participant's command prints."""
    token = folder / "token"
    token.write_text(site.tokens["ann"])
    environment = os.environ | {"LOWBIT_URL": site.url, "LOWBIT_TOKEN_FILE": str(token)}
    command = [sys.executable, "-c", "from lowbit_ray.cli import main; main()", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_submission_is_followed_live_to_its_score(
    browser: Browser,
    arena: Arena,
    hub: str,
    live: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handed_in = lowbit(
        live, tmp_path, "submit", f"ann/small@{COMMIT}", "--task", "fake", "--method", "round to nearest",
        "--precision", "W8A8KV16", "--split", "test", "--json",
    )  # fmt: skip
    name = json.loads(handed_in)["id"]
    with watched(browser, live.url) as page:
        cookie = {"name": "lowbit_token", "value": live.tokens["ann"], "url": live.url}
        page.context.add_cookies([cookie])  # type: ignore[list-item]
        page.goto(f"/submissions/{name}")
        expect(page.get_by_role("heading", name="Waiting")).to_be_visible()
        expect(page.get_by_text("Number 1 in the queue")).to_be_visible()
        keep(page, "live-1-waiting")
        page.evaluate("window.neverLoadedAgain = true")
        monkeypatch.setenv("HF_ENDPOINT", hub)
        with working(arena, name) as job:
            expect(page.get_by_role("heading", name="Running")).to_be_visible(timeout=PATIENCE_MS)
            expect(page.locator("#live strong")).to_contain_text("efficiency", timeout=PATIENCE_MS)
            assert page.evaluate("window.neverLoadedAgain"), "the page was loaded again, not followed"
            expect(page.locator("details[data-log]").first).to_be_attached(timeout=PATIENCE_MS)
            keep(page, "live-2-running")
            expect(page.locator(".score")).to_be_visible(timeout=PATIENCE_MS)
            job.wait(120)
        keep(page, "live-3-scored")
        score = page.locator(".score").inner_text().split()[0]
        assert float(score) > 0
        page.get_by_role("link", name="fake", exact=True).first.click()
        row = page.get_by_role("row", name="ann")
        deadline = time.monotonic() + 30
        while row.count() == 0:  # the board is the index's, which looks ten times a second
            assert time.monotonic() < deadline
            page.reload()
        expect(row).to_contain_text(score)
    assert score in lowbit(live, tmp_path, "board", "fake")


def test_a_cancelled_submission_says_so_without_being_loaded_again(
    browser: Browser, live: Site, tmp_path: Path
) -> None:
    handed_in = lowbit(
        live, tmp_path, "submit", f"ann/other@{COMMIT}", "--task", "fake", "--method", "a mistake", "--json"
    )
    name = json.loads(handed_in)["id"]
    with watched(browser, live.url) as page:
        page.context.add_cookies(
            [{"name": "lowbit_token", "value": live.tokens["ann"], "url": live.url}]  # type: ignore[list-item]
        )
        page.goto(f"/submissions/{name}")
        expect(page.get_by_role("heading", name="Waiting")).to_be_visible()
        lowbit(live, tmp_path, "cancel", name)
        expect(page.get_by_role("heading", name="Cancelled")).to_be_visible(timeout=PATIENCE_MS)
