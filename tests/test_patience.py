"""A store that is away for a while: a driver waits, but not for ever."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from lowbit_ray.errors import LedgerError
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.patience import PatientLedger, open_patiently


@dataclass
class Place:
    """A ledger's folder, which a file takes the place of while the store is away."""

    root: Path

    def go_away(self) -> None:
        self.root.rename(self.root.with_name("away"))
        self.root.write_text("")

    def come_back(self) -> None:
        self.root.unlink()
        self.root.with_name("away").rename(self.root)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "ledger")


def patient(place: Place, seconds: float) -> PatientLedger:
    return PatientLedger(FolderLedger(place.root), patience_s=seconds, first_wait_s=0.05, most_wait_s=0.2)


def test_what_is_written_while_the_store_is_away_is_there_afterwards(place: Place) -> None:
    ledger = patient(place, 60)
    place.go_away()
    back = threading.Timer(0.5, place.come_back)
    back.start()
    assert ledger.create("a/b", b"measured")
    back.join()
    entry = FolderLedger(place.root).read("a/b")
    assert entry is not None
    assert entry.data == b"measured"


def test_a_store_that_stays_away_is_a_fault_of_ours_in_the_end(place: Place) -> None:
    ledger = patient(place, 0.5)
    place.go_away()
    started = time.monotonic()
    with pytest.raises(LedgerError):
        ledger.read("a/b")
    assert time.monotonic() - started >= 0.3


def test_while_the_store_answers_nothing_is_different(place: Place) -> None:
    ledger = patient(place, 60)
    assert ledger.create("a/b", b"1")
    assert not ledger.create("a/b", b"2")
    entry = ledger.read("a/b")
    assert entry is not None
    assert ledger.swap("a/b", b"3", entry.version)
    assert not ledger.swap("a/b", b"4", entry.version)
    assert ledger.keys("a/") == ["a/b"]
    assert not ledger.remove("a/b", entry.version)
    assert ledger.read("a/c") is None


def test_a_ledger_is_opened_once_its_store_is_there(place: Place) -> None:
    FolderLedger(place.root)
    place.go_away()
    back = threading.Timer(0.5, place.come_back)
    back.start()
    assert open_patiently(str(place.root)).keys("") == []
    back.join()
