"""Who asks, behind proxies and without: limits go by it, so that nobody else's can be used up."""

from collections.abc import Iterator

import pytest
from fastapi import Request
from fastapi.testclient import TestClient
from pydantic import IPvAnyNetwork, TypeAdapter

from lowbit_ray.ledger import FolderLedger
from lowbit_ray.service.app import create_app
from lowbit_ray.service.limits import Limits, Rate
from lowbit_ray.service.visitor import visitor
from lowbit_ray.settings import Settings

PROXIES = TypeAdapter(tuple[IPvAnyNetwork, ...]).validate_python(["10.0.0.0/8", "fd00::/8"])


def asked(client: str | None, *told: str) -> Request:
    headers = [(b"x-forwarded-for", text.encode()) for text in told]
    return Request({"type": "http", "client": (client, 1) if client else None, "headers": headers})


@pytest.mark.parametrize(
    ("client", "told", "who"),
    [
        ("192.0.2.1", (), "192.0.2.1"),
        ("192.0.2.1", ("198.51.100.7",), "192.0.2.1"),  # no proxy of ours: not believed
        ("10.1.2.3", ("198.51.100.7",), "198.51.100.7"),
        ("10.1.2.3", ("203.0.113.9, 198.51.100.7",), "198.51.100.7"),  # the first was made up
        ("10.1.2.3", ("203.0.113.9", "198.51.100.7, 10.9.9.9"), "198.51.100.7"),  # two proxies
        ("10.1.2.3", (), "10.1.2.3"),
        ("10.1.2.3", ("10.4.4.4",), "10.4.4.4"),  # somebody of our own network
        ("10.1.2.3", ("nonsense",), "nonsense"),
        ("10.1.2.3", ("x" * 500,), "x" * 64),
        ("fd00::1", ("2001:db8:1:2:3:4:5:6",), "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", (), "2001:db8:1:2::/64"),
        (None, (), "?"),
        ("testclient", (), "testclient"),
    ],
)
def test_the_address_that_asks(client: str | None, told: tuple[str, ...], who: str) -> None:
    assert visitor(asked(client, *told), PROXIES) == who


@pytest.fixture
def behind(ledger: FolderLedger, settings: Settings) -> Iterator[TestClient]:
    limits = Limits(reads=Rate(3, 0.01), wrong_tokens=Rate(2, 0.01))
    configured = settings.model_copy(update={"proxies": PROXIES})
    app = create_app(ledger, configured, limits=limits)
    with TestClient(app, client=("10.0.0.1", 1)) as client:
        yield client


def test_one_visitor_behind_a_proxy_uses_up_nobody_elses_limits(
    behind: TestClient, tokens: dict[str, str]
) -> None:
    loud, quiet = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}
    assert [behind.get("/api/tasks", headers=loud).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert behind.get("/api/tasks", headers=quiet).status_code == 200
    wrong = {"Authorization": "Bearer lowbit_wrong"}
    assert [behind.get("/api/me", headers=loud | wrong).status_code for _ in range(3)] == [401, 401, 429]
    right = {"Authorization": f"Bearer {tokens['ann']}"}
    assert behind.get("/api/me", headers=quiet | right).status_code == 200
