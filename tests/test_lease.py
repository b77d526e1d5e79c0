"""One holder a submission; what a dead holder used is not forgotten."""

import os
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lowbit_ray import lease as lease_module
from lowbit_ray.lease import EXPIRES_S, Lease, LeaseHeld, attempts, hold, key, read_lease, this_host
from lowbit_ray.ledger import FolderLedger

ID = "a553eefea2d24359"
LONG_AGO = timedelta(seconds=EXPIRES_S + 1)


@pytest.fixture
def ledger(tmp_path: Path) -> FolderLedger:
    return FolderLedger(tmp_path)


def put(ledger: FolderLedger, **changes: object) -> Lease:
    fields = {"holder": "elsewhere:1:x", "attempt": 0, "renewed_at": datetime.now(UTC), **changes}
    lease = Lease.model_validate(fields)
    assert ledger.create(key(ID), lease.model_dump_json().encode())
    return lease


def test_a_second_holder_is_refused_while_the_first_lives(ledger: FolderLedger) -> None:
    with hold(ledger, ID), pytest.raises(LeaseHeld), hold(ledger, ID):
        pass


def test_a_released_lease_can_be_taken_again_and_counts_on(ledger: FolderLedger) -> None:
    for attempt in range(3):
        with hold(ledger, ID) as tenure:
            assert tenure.lease.attempt == attempt
    assert [lease.attempt for lease in attempts(ledger, ID)] == [0, 1, 2]


def test_a_live_lease_of_another_host_is_respected_until_it_expires(ledger: FolderLedger) -> None:
    put(ledger, renewed_at=datetime.now(UTC) - timedelta(seconds=EXPIRES_S - 5))
    with pytest.raises(LeaseHeld, match="elsewhere"), hold(ledger, ID):
        pass


@pytest.fixture
def short_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "WATCH_S", 0.2)
    monkeypatch.setattr(lease_module, "LOOK_S", 0.05)


@pytest.mark.usefixtures("short_watch")
def test_an_expired_lease_is_taken_over_with_what_it_used(ledger: FolderLedger) -> None:
    put(ledger, renewed_at=datetime.now(UTC) - LONG_AGO, pod_seconds=90.0, gpus=2)
    with hold(ledger, ID) as tenure:
        assert tenure.lease.attempt == 1
        tenure.meter = lambda: (10.0, 1)
    used = [(lease.pod_seconds, lease.gpus) for lease in attempts(ledger, ID)]
    assert used == [(90.0, 2), (10.0, 1)]


def test_a_dead_process_of_this_host_need_not_be_waited_for(ledger: FolderLedger) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    put(ledger, holder=f"{this_host()}:{process.pid}:x")
    with hold(ledger, ID) as tenure:
        assert tenure.lease.attempt == 1


def test_a_living_process_of_this_host_is_respected(ledger: FolderLedger) -> None:
    put(ledger, holder=f"{this_host()}:{os.getpid()}:x")
    with pytest.raises(LeaseHeld), hold(ledger, ID):
        pass


def test_a_process_of_another_host_or_container_of_the_same_name_is_not_looked_for_here(
    ledger: FolderLedger,
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    put(ledger, holder=f"{socket.gethostname()}/0badb007-{os.getpid()}:{process.pid}:x")
    with pytest.raises(LeaseHeld), hold(ledger, ID):
        pass


def test_a_lease_that_is_renewed_by_a_clock_that_is_behind_is_not_taken_over(
    ledger: FolderLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "WATCH_S", 60.0)
    lease = put(ledger, renewed_at=datetime.now(UTC) - LONG_AGO)

    def renew() -> None:
        entry = ledger.read(key(ID))
        assert entry is not None
        later = lease.model_copy(update={"renewed_at": lease.renewed_at + timedelta(seconds=1)})
        assert ledger.swap(key(ID), later.model_dump_json().encode(), entry.version)

    renewal = threading.Timer(1.0, renew)
    renewal.start()
    with pytest.raises(LeaseHeld, match="elsewhere"), hold(ledger, ID):
        pass
    renewal.join()
    assert attempts(ledger, ID) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_holder_whose_renewals_end_knows_that_it_has_lost_its_lease(
    ledger: FolderLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_S", 0.05)
    with hold(ledger, ID) as tenure:
        (ledger.root / key(ID)).write_text("{}")
        assert tenure.lost.wait(30)


def test_a_holder_that_lost_its_lease_notices_and_writes_nothing(ledger: FolderLedger) -> None:
    with hold(ledger, ID) as tenure:
        entry = ledger.read(key(ID))
        assert entry is not None
        other = tenure.lease.model_copy(update={"holder": "elsewhere:1:x", "attempt": 7})
        assert ledger.swap(key(ID), other.model_dump_json().encode(), entry.version)
        tenure.renew()
        assert tenure.lost.is_set()
    assert read_lease(ledger, ID) == other
    assert attempts(ledger, ID) == []
