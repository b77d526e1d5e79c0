"""Nodes out of service, in a ledger."""

from pathlib import Path

import pytest

from lowbit_ray.engines.quarantine import Quarantined, list_quarantined, quarantine, release
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.submission import now


@pytest.fixture
def ledger(tmp_path: Path) -> FolderLedger:
    return FolderLedger(tmp_path)


def found(node: str = "ab12", address: str = "10.0.0.7", reason: str = "left 1 GiB") -> Quarantined:
    return Quarantined(node=node, address=address, reason=reason, found_by="0" * 16, at=now())


def test_a_node_is_taken_out_once_and_the_first_reason_stays(ledger: FolderLedger) -> None:
    assert quarantine(ledger, found())
    assert not quarantine(ledger, found(reason="another"))
    assert list_quarantined(ledger) == {
        "ab12": found().model_copy(update={"at": list_quarantined(ledger)["ab12"].at})
    }


@pytest.mark.parametrize("name", ["ab12", "ab", "10.0.0.7"])
def test_a_node_is_released_by_its_id_the_beginning_of_it_or_its_address(
    ledger: FolderLedger, name: str
) -> None:
    quarantine(ledger, found())
    quarantine(ledger, found("cd34", "10.0.0.8"))
    assert release(ledger, name) == ["ab12"]
    assert list(list_quarantined(ledger)) == ["cd34"]


def test_releasing_nothing_releases_nothing(ledger: FolderLedger) -> None:
    quarantine(ledger, found())
    assert release(ledger, "") == []
    assert release(ledger, "nobody") == []
    assert list(list_quarantined(ledger)) == ["ab12"]


def test_an_object_that_is_no_quarantine_is_passed_over(ledger: FolderLedger) -> None:
    ledger.create("nodes/odd.json", b"{}")
    assert list_quarantined(ledger) == {}
