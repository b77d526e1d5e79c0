"""A ledger as one file, and back: everything, nothing replaced, nothing else let in."""

import io
import tarfile
from pathlib import Path

import pytest

from lowbit_ray.archive import export_ledger, import_ledger
from lowbit_ray.errors import ConfigError
from lowbit_ray.ledger import FolderLedger

OBJECTS = {
    "accepted/20261130T100000.000000-0123456789abcdef": b"",
    "people/ann.json": b"{}",
    "submissions/0123456789abcdef/submission.json": b"\x00\xff" * 5000,
}


@pytest.fixture
def ledger(tmp_path: Path) -> FolderLedger:
    ledger = FolderLedger(tmp_path / "ledger")
    for key, data in OBJECTS.items():
        ledger.create(key, data)
    return ledger


def content(ledger: FolderLedger) -> dict[str, bytes]:
    return {key: (ledger.root / key).read_bytes() for key in ledger.keys("")}


def packed(path: Path, *names: str, link: bool = False) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            info = tarfile.TarInfo(name)
            if link:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            file.addfile(info, io.BytesIO(b""))
    return path


def test_what_is_exported_comes_back_whole(ledger: FolderLedger, tmp_path: Path) -> None:
    assert export_ledger(ledger, tmp_path / "all.tar.gz") == len(OBJECTS)
    other = FolderLedger(tmp_path / "other")
    done = import_ledger(other, tmp_path / "all.tar.gz")
    assert (done.created, done.known, done.conflicts) == (len(OBJECTS), 0, ())
    assert content(other) == OBJECTS
    again = import_ledger(other, tmp_path / "all.tar.gz")
    assert (again.created, again.known) == (0, len(OBJECTS))


def test_an_import_replaces_nothing_and_names_what_differs(ledger: FolderLedger, tmp_path: Path) -> None:
    export_ledger(ledger, tmp_path / "all.tar.gz")
    other = FolderLedger(tmp_path / "other")
    other.create("people/ann.json", b"another Ann")
    done = import_ledger(other, tmp_path / "all.tar.gz")
    assert done.conflicts == ("people/ann.json",)
    assert (other.root / "people/ann.json").read_bytes() == b"another Ann"


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "a/../../b", ".lock", "a//b"])
def test_a_name_that_leaves_the_ledger_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="not an export"):
        import_ledger(FolderLedger(tmp_path / "ledger"), packed(tmp_path / "x.tar.gz", name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger", "x.tar.gz"]


def test_a_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not an export"):
        import_ledger(FolderLedger(tmp_path / "ledger"), packed(tmp_path / "x.tar.gz", "a", link=True))


@pytest.mark.parametrize("data", [b"", b"not gzip", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_export_is_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ConfigError, match="not an export"):
        import_ledger(FolderLedger(tmp_path / "ledger"), tmp_path / "x")


def test_an_export_that_fails_leaves_no_file(ledger: FolderLedger, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        export_ledger(ledger, tmp_path / "nowhere" / "all.tar.gz")
    assert not (tmp_path / "nowhere").exists()
