"""The ledger in a bucket where the network is at fault: lost answers, conflicts, a store that is away."""

import time
from collections.abc import Iterator

import boto3
import pytest
from fakes.lossy import Fate, Lossy, lossy
from fakes.s3 import CREDENTIALS, s3_server

from lowbit_ray.bucket import TRIES, _waits, open_s3_ledger
from lowbit_ray.errors import ConfigError, LedgerError
from lowbit_ray.ledger import Ledger, open_ledger


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def proxy(store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lossy]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with lossy(store) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        yield proxy


@pytest.fixture
def ledger(proxy: Lossy) -> Ledger:
    bucket = f"b{time.monotonic_ns()}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return open_ledger(f"s3://{bucket}/prefix")


def once(proxy: Lossy, fate: Fate, method: str, times: int = 1) -> None:
    """The next `times` requests of this method meet this fate."""
    left = [fate] * times
    proxy.fate = lambda asked, path: left.pop() if asked == method and left else "pass"


def test_a_creation_whose_answer_was_lost_is_known_again(ledger: Ledger, proxy: Lossy) -> None:
    once(proxy, "lose the answer", "PUT")
    assert ledger.create("a", b"mine")
    assert [method for method, path in proxy.seen if path.endswith("/prefix/a")].count("PUT") == 2
    assert not ledger.create("a", b"mine")


def test_a_creation_that_somebody_else_won_while_the_answer_was_lost_is_theirs(
    ledger: Ledger, proxy: Lossy
) -> None:
    assert ledger.create("a", b"same bytes")
    once(proxy, "lose the answer", "PUT")
    assert not ledger.create("a", b"same bytes")


def test_a_swap_whose_answer_was_lost_is_known_again(ledger: Ledger, proxy: Lossy) -> None:
    ledger.create("a", b"1")
    entry = ledger.read("a")
    assert entry is not None
    once(proxy, "lose the answer", "PUT")
    assert ledger.swap("a", b"2", entry.version)
    assert not ledger.swap("a", b"3", entry.version)


def test_two_writes_at_the_same_moment_are_tried_again(ledger: Ledger, proxy: Lossy) -> None:
    once(proxy, "conflict", "PUT", times=3)
    assert ledger.create("a", b"1")


def test_nothing_is_waited_for_before_the_first_try_nor_after_the_last() -> None:
    waits = list(_waits())
    assert len(waits) == TRIES
    assert waits[0] == 0
    assert sum(waits) < 3.2


def test_a_store_that_is_busy_for_a_moment_is_asked_again(ledger: Ledger, proxy: Lossy) -> None:
    ledger.create("a", b"1")
    once(proxy, "unavailable", "GET", times=2)
    assert ledger.read("a") is not None


def test_a_store_that_stays_away_is_an_error_in_bounded_time(ledger: Ledger, proxy: Lossy) -> None:
    proxy.fate = lambda method, path: "unavailable"
    started = time.monotonic()
    with pytest.raises(LedgerError, match="nothing stored is lost"):
        ledger.create("a", b"")
    assert time.monotonic() - started < 120
    proxy.fate = lambda method, path: "pass"
    assert ledger.read("a") is None


def test_a_bucket_that_is_not_there_is_said(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="NoSuchBucket"):
        open_ledger("s3://nobody-made-this").create("a", b"")


@pytest.mark.parametrize("address", ["s3://", "s3:///prefix", "s3://bucket//x", "http://bucket/x"])
def test_what_is_no_address_of_a_bucket_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        open_s3_ledger(address)
