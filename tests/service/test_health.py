"""Alive, ready, and figures for Prometheus."""

from collections.abc import Callable

from fastapi.testclient import TestClient

from lowbit_ray.ledger import FolderLedger
from lowbit_ray.service.app import create_app
from lowbit_ray.settings import Settings
from lowbit_ray.submission import Submission


def test_a_process_without_its_index_is_alive_but_not_ready(ledger: FolderLedger, settings: Settings) -> None:
    client = TestClient(create_app(ledger, settings))  # not entered: nothing follows the ledger
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503


def test_metrics_count_requests_by_route_and_never_by_path(client: TestClient) -> None:
    client.get("/api/board/qwen3-8b")
    client.get("/made/up/by/a/scanner")
    text = client.get("/metrics").text
    assert 'lowbit_http_requests_total{method="GET",route="/api/board/{task}",status="200"} 1' in text
    assert 'route="(none)",status="404"} 1' in text
    assert "scanner" not in text


def test_metrics_count_submissions_by_state(
    client: TestClient, finished: Callable[..., Submission], eventually: Callable[..., None]
) -> None:
    finished()
    eventually(lambda: 'lowbit_submissions{state="done"} 1' in client.get("/metrics").text)


def test_every_answer_forbids_inline_scripts_and_sniffing(client: TestClient) -> None:
    for path in ("/healthz", "/api/rules", "/nowhere"):
        headers = client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
