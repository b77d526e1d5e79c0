"""A real browser before a real service: Debian's Chromium, driven by playwright.

Screenshots go to `artefacts/screenshots` (LOWBIT_ARTEFACTS names another folder). Without a browser the tests are
skipped, but fail where LOWBIT_BROWSER=required says that there has to be one, as CI does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from fakes.records import fill, moved_record, store, wait
from playwright.sync_api import Browser, Page, sync_playwright

from lowbit_ray.conduct import Fault
from lowbit_ray.errors import EngineStartError
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.people import issue_token
from lowbit_ray.service.app import create_app
from lowbit_ray.service.limits import Limits, Rate
from lowbit_ray.settings import Settings

ARTEFACTS = Path(os.environ.get("LOWBIT_ARTEFACTS", Path(__file__).parents[2] / "artefacts")) / "screenshots"
PATIENT = Limits(reads=Rate(100_000, 10_000))
"""A browser of one address asks for more in a minute than people do."""


@dataclass(frozen=True, slots=True)
class Site:
    """A service that answers at `url`."""

    url: str
    ledger: FolderLedger
    tokens: dict[str, str]


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """The service over a ledger on a port of its own; its address."""
    app = create_app(FolderLedger(Path(settings.ledger)), settings, limits=PATIENT, follow_s=0.1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = os.environ.get("LOWBIT_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        missing = "no browser: apt-get install chromium, or name one in LOWBIT_CHROMIUM"
        if os.environ.get("LOWBIT_BROWSER") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A board of every kind of row, and a submission in every state."""
    root = tmp_path_factory.mktemp("site")
    settings = Settings(ledger=str(root / "ledger"), cache=root / "cache")
    ledger = FolderLedger(root / "ledger")
    fill(ledger, 24)
    store(ledger, moved_record(900, participant="ada", method="plain int4, everything", kl=0.22, drop=0.03))
    store(ledger, moved_record(901, participant="grace", method="slow and forgetful", rate=0.6, drop=0.07))
    refused = {
        "result": None,
        "status": "rejected",
        "error": "config.json: rope_theta: differs from the source's, found 10000.0, expected 1000000.0 (and 1 more)",
        "findings": (
            "config.json: rope_theta: differs from the source's, found 10000.0, expected 1000000.0",
            "model.layers.3.mlp.down_proj.weight: the weight is missing",
        ),
    }
    store(ledger, moved_record(902, participant="linus", method="another rope").model_copy(update=refused))
    died = EngineStartError(
        "the engine died: ValueError: There is no module or parameter named 'layers.0.mlp.down_proj.weight_scale'",
        where="timed-0.log",
        found="exit code 1",
        expected="a server that answers",
    )
    failed = {"result": None, "status": "failed", "error": str(died), "fault": Fault.of(died)}
    store(ledger, moved_record(904, participant="alan", method="does not start").model_copy(update=failed))
    store(ledger, moved_record(903, participant="mallory", method="replays its answers", rate=1.3))
    flag = {
        "by": "olga",
        "at": "2026-11-30T10:00:00Z",
        "reason": "remembered answers, see the audit of serve",
    }
    ledger.create(f"flags/{903:016x}.json", json.dumps(flag).encode())
    wait(ledger, 1000)
    wait(ledger, 1001, participant="grace", method="the second in the queue")
    ledger.create(f"submissions/{1001:016x}/logs/candidate-timed.txt", b"INFO loading took 8.84 GiB\n" * 30)
    tokens = {"grace": issue_token(ledger, "grace")}
    with serving(settings) as url:
        yield Site(url, ledger, tokens)


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """A desktop window; whatever the console calls an error fails the test, the policy's refusals among them."""
    with watched(browser, site.url) as opened:
        yield opened


@contextlib.contextmanager
def watched(browser: Browser, url: str, **options: object) -> Iterator[Page]:
    """A page in a context of its own, whose console must stay without errors."""
    settings: dict[str, object] = {"viewport": {"width": 1280, "height": 900}, "base_url": url} | options
    context = browser.new_context(**settings)  # type: ignore[arg-type]
    opened = context.new_page()
    errors: list[str] = []
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []


def keep(page: Page, name: str) -> None:
    """A screenshot of the whole page among the artefacts."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)
