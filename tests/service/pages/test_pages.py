"""The pages over a real ledger: complete without scripts, and nothing a participant wrote can act."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from fakes.records import fill, moved_record, store, wait
from fastapi.testclient import TestClient

from lowbit_ray.ledger import FolderLedger
from lowbit_ray.measure.noise_floor import FloorRun, FloorRuns
from lowbit_ray.stages.floor import floor_key
from lowbit_ray.submission import Submission

EVIL = "</title><script>alert(1)</script><img src=x onerror=alert(1)>'\"&"
HTML = {"accept": "text/html,application/xhtml+xml"}
As = Callable[[str], dict[str, str]]
Eventually = Callable[[Callable[[], bool]], None]


class Parts(HTMLParser):
    """What matters of a page: its elements, links and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "href" and value:
                self.links.append(value)
            if name == "id" and value:
                self.ids.append(value)


def settled(client: TestClient, eventually: Eventually, count: int) -> None:
    eventually(lambda: len(client.get("/api/submissions?limit=200").json()["items"]) >= count)


@pytest.fixture
def board(client: TestClient, ledger: FolderLedger, eventually: Eventually) -> TestClient:
    """A service with twelve records and one submission that waits."""
    fill(ledger, 12)
    wait(ledger, 500)
    settled(client, eventually, 13)
    return client


PATHS = (
    "/",
    "/board/qwen3-8b",
    "/board/qwen35-27b",
    "/submissions",
    "/submissions/0000000000000001",
    "/submissions/00000000000001f4",
    "/compare",
    "/compare?id=0000000000000001&id=0000000000000002",
    "/rules",
    "/scoring",
    "/login",
)


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_whole_and_holds_to_the_policy(path: str, board: TestClient) -> None:
    answer = board.get(path, headers=HTML)
    assert answer.status_code == 200
    parts = Parts(answer.text)
    assert parts.tags.count("h1") == 1
    assert parts.tags.count("main") == 1
    assert len(parts.ids) == len(set(parts.ids))
    assert not {name for name in parts.attributes if name.startswith("on")}
    assert "style" not in parts.attributes | set(parts.tags)  # the policy forbids both
    assert not re.search(r"<script(?![^>]*\bsrc=)", answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", PATHS)
def test_every_link_of_a_page_leads_somewhere(path: str, board: TestClient) -> None:
    for link in set(Parts(board.get(path, headers=HTML).text).links):
        if link.startswith("#"):
            continue
        address = path.partition("?")[0] + link if link.startswith("?") else link
        assert address.startswith("/"), f"{path} links to {link}"
        assert board.get(address, headers=HTML).status_code == 200, f"{path} links to {link}"


def test_the_board_shows_what_the_issue_asks(board: TestClient) -> None:
    text = board.get("/board/qwen3-8b").text
    for words in ("rank", "participant", "score ± se", "cost-adjusted", "precision", "KL", "speed", "memory"):
        assert words in text
    assert "tied" in text
    assert "reference" in text
    assert "GPU-hours" in text
    assert text.count('class="hover"') == 13  # twelve records and BF16
    assert 'aria-sort="ascending"' in text
    assert "/api/board/qwen3-8b.csv" in text


def test_the_board_sorts_by_its_address(board: TestClient) -> None:
    rows = board.get("/api/board/qwen3-8b").json()["rows"]
    shown = re.findall(
        r'<th scope="row" class="who"><a href="/submissions/(\w+)"', board.get("/board/qwen3-8b?sort=kl").text
    )
    assert shown == [row["submission"] for row in sorted(rows, key=lambda row: row["kl"])]


def test_a_flagged_row_is_marked_with_its_reason(
    board: TestClient, ledger: FolderLedger, eventually: Eventually
) -> None:
    flag = {"by": "olga", "at": "2026-11-30T10:00:00Z", "reason": f"replays {EVIL}"}
    ledger.create("flags/0000000000000001.json", json.dumps(flag).encode())
    eventually(lambda: "flagged" in board.get("/board/qwen3-8b").text)
    for page in ("/board/qwen3-8b", "/submissions/0000000000000001", "/submissions", "/"):
        assert "<script>alert" not in board.get(page).text
    assert "Flagged by an organizer" in board.get("/submissions/0000000000000001").text


def test_the_board_shows_the_noise_floor(client: TestClient, ledger: FolderLedger) -> None:
    spread = dict.fromkeys(("speed", "memory", "score"), 1.01) | dict.fromkeys(
        ("kl", "mean_drop", "length_shift"), 0.0
    )
    runs = [
        FloorRun.model_validate(
            spread
            | {
                "submission": f"{number:016x}",
                "finished_at": "2026-11-30T10:00:00Z",
                "measurement": {"device": "1 × H200", "release": "0.25.1", "rules_version": "23"},
                "speeds": {"serve": 1.0 + number / 100},
            }
        )
        for number in (1, 2)
    ]
    floor = FloorRuns(task_id="qwen3-8b", runs=tuple(runs))
    ledger.create(floor_key("qwen3-8b"), floor.model_dump_json().encode())
    text = client.get("/board/qwen3-8b").text
    assert "1 × H200, 0.25.1: BF16 against itself, 2 evaluations" in text


def test_a_record_shows_all_of_its_sections(board: TestClient) -> None:
    text = board.get("/submissions/0000000000000001").text
    for section in (
        "Result",
        "Gates and rules",
        "Workloads",
        "Precision",
        "noise floor",
        "Audit",
        "Time line",
    ):
        assert section in text
    assert "Per-domain results on the hidden split are not released." in text


def test_a_waiting_submission_shows_its_place_in_the_queue(board: TestClient) -> None:
    text = board.get("/submissions/00000000000001f4").text
    assert "Number 1 in the queue" in text
    assert "live.js" in text
    assert 'data-events="/api/submissions/00000000000001f4/events"' in text
    part = board.get("/submissions/00000000000001f4/live")
    assert "Number 1 in the queue" in part.text
    assert "<html" not in part.text


def test_the_live_part_of_a_finished_submission_leads_to_its_page(board: TestClient) -> None:
    answer = board.get("/submissions/0000000000000001/live", follow_redirects=False)
    assert answer.status_code == 303


def test_logs_are_for_their_owner_and_organizers(
    board: TestClient, ledger: FolderLedger, tokens: dict[str, str], as_: As, eventually: Eventually
) -> None:
    wait(ledger, 501, participant="ann")
    ledger.create("submissions/00000000000001f5/logs/candidate.txt", f"loading {EVIL}".encode())
    page = "/submissions/00000000000001f5"
    eventually(lambda: board.get(page).status_code == 200)
    assert "loading" in board.get(page, headers=as_("ann")).text
    assert "loading" in board.get(page, headers=as_("olga")).text
    assert "<script>alert" not in board.get(page, headers=as_("ann")).text
    assert "loading" not in board.get(page, headers=as_("bob")).text
    assert "loading" not in board.get(page).text


def test_a_dev_submission_is_for_its_participant(
    client: TestClient, as_: As, finished: Callable[..., Submission], eventually: Eventually
) -> None:
    one = finished("ann", split="dev")
    page = f"/submissions/{one.id}"
    eventually(lambda: client.get(page, headers=as_("ann")).status_code == 200)
    assert client.get(page, headers=HTML).status_code == 404
    assert client.get(page, headers=as_("bob") | HTML).status_code == 404
    assert one.id not in client.get("/submissions").text
    assert one.id in client.get("/submissions", headers=as_("ann")).text
    assert "is not known" in client.get(f"/compare?id={one.id}").text


HOSTILE: dict[str, Any] = {
    "participant": EVIL,
    "agent": EVIL,
    "error": None,
    "findings": (EVIL,),
}


def hostile(number: int, **changes: Any) -> Any:
    record = moved_record(number, method=EVIL, precision=EVIL)
    solution = record.solution.model_copy(update={"checkpoint": EVIL, "detected_precision": EVIL})
    assert record.result is not None
    startup = record.result.engine.startup
    assert startup is not None
    loud = startup.model_copy(update={"kernels": (EVIL,), "quantization": EVIL, "vllm_version": EVIL})
    executed = record.result.executed
    assert executed is not None
    result = record.result.model_copy(
        update={
            "reason": EVIL,
            "engine": record.result.engine.model_copy(update={"startup": loud}),
            "executed": executed.model_copy(update={"kernels": (EVIL,), "reasons": (EVIL,), "label": EVIL}),
            "precision": record.result.precision.model_copy(update={"label": EVIL, "method": EVIL}),
        }
    )
    return record.model_copy(update=HOSTILE | {"solution": solution, "result": result} | changes)


def test_markup_in_every_string_of_a_participants_stays_text(
    client: TestClient, ledger: FolderLedger, eventually: Eventually
) -> None:
    store(ledger, hostile(1))
    store(ledger, hostile(2, status="rejected", result=None, error=EVIL, participant=f"{EVIL}2"))
    store(ledger, hostile(3, status="failed", result=None, error=EVIL, participant=f"{EVIL}3"))
    wait(ledger, 4, participant=EVIL, method=EVIL, agent=EVIL)
    settled(client, eventually, 4)
    ids = [f"{number:016x}" for number in (1, 2, 3, 4)]
    pages = ["/", "/board/qwen3-8b", f"/board/qwen3-8b?q={EVIL}", "/submissions", "/scoring"]
    pages += [f"/submissions/{name}" for name in ids]
    pages += ["/compare?" + "&".join(f"id={name}" for name in ids), f"/submissions?participant={EVIL}"]
    for page in pages:
        answer = client.get(page, headers=HTML)
        assert answer.status_code == 200
        parts = Parts(answer.text)
        assert "img" not in parts.tags, page
        assert parts.tags.count("script") <= 1, page
        assert "onerror" not in parts.attributes, page


def test_errors_are_pages_for_browsers_and_problems_for_programs(client: TestClient) -> None:
    page = client.get("/board/no-such-task", headers=HTML)
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert "No such task" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    program = client.get("/board/no-such-task")
    assert program.headers["content-type"] == "application/problem+json"
    api = client.get("/api/board/no-such-task", headers=HTML)
    assert api.headers["content-type"] == "application/problem+json"


def test_a_fault_of_ours_is_a_page_that_says_no_more(
    board: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr("lowbit_ray.service.pages.home.task_view", broken)
    page = board.get("/", headers=HTML)
    assert page.status_code == 500
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "a secret of the inside" not in page.text
    assert "a secret of the inside" in caplog.text


def test_an_unknown_address_does_not_come_back_as_markup(client: TestClient) -> None:
    page = client.get("/<script>alert(1)</script>", headers=HTML)
    assert page.status_code == 404
    assert "<script>alert" not in page.text


def test_the_rules_page_has_every_key_of_the_file(client: TestClient) -> None:
    text = client.get("/rules").text

    def keys(value: Any) -> set[str]:
        if not isinstance(value, dict):
            return set()
        return set(value).union(*(keys(inner) for inner in value.values()))

    for key in keys(client.get("/api/rules").json()) - {"workload"}:
        assert f">{key}<" in text, key


def test_the_scoring_page_takes_its_constants_from_the_rules(board: TestClient) -> None:
    text = board.get("/scoring").text
    assert "0.79 · 100 · mean accuracy drop + 0.21 · 42.8 · KL" in text
    assert "The leader, worked through" in text


def test_comparing_marks_the_best_of_each_figure(board: TestClient) -> None:
    text = board.get(
        "/compare?id=0000000000000001&id=0000000000000002&id=00000000000001f4&id=ffffffffffffffff"
    ).text
    assert text.count('<span class="chip good">best</span>') > 5
    assert "00000000000001f4 is not finished" in text
    assert "ffffffffffffffff is not known" in text


def test_compared_figures_carry_errors_and_how_they_were_measured(
    board: TestClient, ledger: FolderLedger, eventually: Eventually
) -> None:
    alike = board.get("/compare?id=0000000000000001&id=0000000000000002").text
    for words in ("KL, nats per token", " ± ", "top 20, ", "1 × NVIDIA H200", "0.25.1", "KL is over"):
        assert words in alike
    assert "not measured alike" not in alike
    other = moved_record(700, participant="elsewhere")
    assert other.host is not None
    (gpu,) = other.host.gpus
    host = other.host.model_copy(update={"gpus": (gpu.model_copy(update={"name": "NVIDIA L4"}),)})
    store(ledger, other.model_copy(update={"host": host}))
    words = "They were not measured alike (device: 1 × NVIDIA H200, 1 × NVIDIA L4)"
    # the index may have seen the submission a moment before its record
    eventually(lambda: words in board.get(f"/compare?id=0000000000000001&id={700:016x}").text)


def test_a_refused_one_says_why_in_the_list_and_on_its_page(
    board: TestClient, ledger: FolderLedger, eventually: Eventually
) -> None:
    why = "config.json: rope_theta: differs from the source, found 1, expected 2"
    record = moved_record(701, participant="linus")
    store(ledger, record.model_copy(update={"result": None, "status": "rejected", "error": why}))
    eventually(lambda: why in board.get("/submissions").text)
    page = board.get(f"/submissions/{701:016x}").text
    assert "What to change." in page
    assert "Copy the named field" in page


def test_the_board_says_units_device_and_release(board: TestClient) -> None:
    text = board.get("/board/qwen3-8b").text
    for words in ("nats per token", "± is one standard error", "vLLM 0.25.1", "measured on 1 × "):
        assert words in text


def test_the_link_of_the_board_is_current_but_not_the_page_on_a_submissions_page(board: TestClient) -> None:
    assert 'href="/board/qwen3-8b" aria-current="page"' in board.get("/board/qwen3-8b").text
    assert 'href="/board/qwen3-8b" aria-current="true"' in board.get("/submissions/0000000000000001").text


def test_static_files_are_named_after_their_content(client: TestClient) -> None:
    (style,) = re.findall(r'href="(/static/lowbit\.css\?v=[0-9a-f]{12})"', client.get("/").text)
    assert client.get(style).status_code == 200
    assert client.get("/static/live.js").status_code == 200


def test_a_signed_in_person_is_named_in_the_head(client: TestClient, tokens: dict[str, str]) -> None:
    assert "Sign in" in client.get("/").text
    client.post("/login", data={"token": tokens["ann"]})
    assert ">ann</a>" in client.get("/").text
    assert "Signed in as ann" in client.get("/login").text
