"""Ledgers, in a folder and in a bucket: objects are whole or absent, and of two writers exactly one wins."""

import errno
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from fakes.s3 import CREDENTIALS, s3_server

from lowbit_ray.errors import ConfigError, LedgerError
from lowbit_ray.ledger import FolderLedger, Ledger, open_ledger

WRITERS = 4
TIMES = 12


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["folder", "s3"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of an empty ledger."""
    if request.param == "folder":
        return str(tmp_path / "ledger")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("store"))
    bucket = f"b{time.monotonic_ns()}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/some/prefix"


@pytest.fixture
def ledger(address: str) -> Ledger:
    return open_ledger(address)


@pytest.fixture
def folder(tmp_path: Path) -> FolderLedger:
    return FolderLedger(tmp_path / "ledger")


def test_an_object_is_created_once(ledger: Ledger) -> None:
    assert ledger.create("a/b", b"first")
    assert not ledger.create("a/b", b"second")
    entry = ledger.read("a/b")
    assert entry is not None
    assert entry.data == b"first"


def test_what_is_not_there_reads_as_none(ledger: Ledger) -> None:
    assert ledger.read("a") is None


def test_a_swap_needs_the_version_it_read(ledger: Ledger) -> None:
    ledger.create("a", b"1")
    entry = ledger.read("a")
    assert entry is not None
    assert ledger.swap("a", b"2", entry.version)
    assert not ledger.swap("a", b"3", entry.version)
    assert not ledger.swap("missing", b"3", entry.version)
    now = ledger.read("a")
    assert now is not None
    assert now.data == b"2"


def test_removal_needs_the_version_it_read(ledger: Ledger) -> None:
    ledger.create("a", b"1")
    assert not ledger.remove("a", "stale")
    entry = ledger.read("a")
    assert entry is not None
    assert ledger.remove("a", entry.version)
    assert ledger.read("a") is None


def test_keys_are_listed_by_prefix_and_sorted(ledger: Ledger) -> None:
    for key in ("s/2/x", "s/1/y", "s/1/x", "t/1"):
        ledger.create(key, b"")
    assert ledger.keys("s/1/") == ["s/1/x", "s/1/y"]
    assert ledger.keys("s/") == ["s/1/x", "s/1/y", "s/2/x"]
    assert ledger.keys("nothing/") == []


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/..", ".lock", "a/.hidden"])
def test_a_key_cannot_leave_the_folder(ledger: Ledger, key: str) -> None:
    with pytest.raises(LedgerError, match="not a key"):
        ledger.create(key, b"")


def _count_up(address: str, times: int) -> None:
    ledger = open_ledger(address)
    for _ in range(times):
        while True:
            entry = ledger.read("count")
            assert entry is not None
            if ledger.swap("count", str(int(entry.data) + 1).encode(), entry.version):
                break


def test_concurrent_swaps_lose_no_update(ledger: Ledger, address: str) -> None:
    ledger.create("count", b"0")
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_count_up, args=(address, TIMES)) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    entry = ledger.read("count")
    assert entry is not None
    assert entry.data == str(TIMES * WRITERS).encode()


def test_a_writer_killed_at_any_moment_leaves_whole_objects(folder: FolderLedger) -> None:
    size = 200_000
    program = (
        "import sys; from pathlib import Path; from lowbit_ray.ledger import FolderLedger\n"
        f"ledger = FolderLedger(Path({str(folder.root)!r}))\n"
        f"for n in range(10**6): ledger.create(f'o/{{n}}', bytes([n % 251]) * {size})\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as writer:
        deadline = time.monotonic() + 30
        while len(folder.keys("o/")) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        writer.send_signal(signal.SIGKILL)
    keys = folder.keys("o/")
    assert len(keys) >= 5
    for key in keys:
        entry = folder.read(key)
        assert entry is not None
        assert len(entry.data) == size


def test_a_full_disk_is_said_and_loses_nothing(folder: FolderLedger) -> None:
    folder.create("a", b"1")
    program = (
        "import resource, signal, sys; from pathlib import Path; from lowbit_ray.ledger import FolderLedger\n"
        "from lowbit_ray.errors import LedgerError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"ledger = FolderLedger(Path({str(folder.root)!r}))\n"
        "try: ledger.create('b', b'x' * 5000)\n"
        "except LedgerError as error: print(error); sys.exit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 7, done.stderr
    assert os.strerror(errno.EFBIG) in done.stdout  # the limit stands in for the disk's own ENOSPC
    assert folder.keys("") == ["a"]
    assert [path.name for path in folder.root.iterdir()] == ["a"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000


def test_a_folder_that_goes_away_at_any_moment_is_a_fault_of_the_store(folder: FolderLedger) -> None:
    """Also between the read and the write of a swap: whoever renews a lease tries again, and does not end."""
    folder.create("a", b"1")
    entry = folder.read("a")
    assert entry is not None
    folder.root.rename(folder.root.with_name("away"))
    folder.root.write_text("")
    for verb in (
        lambda: folder.swap("a", b"2", entry.version),
        lambda: folder.remove("a", entry.version),
        lambda: folder.create("b", b"2"),
    ):
        with pytest.raises(LedgerError):
            verb()


def test_a_ledger_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="ftp://"):
        open_ledger("ftp://somewhere")


def test_a_listing_goes_on_after_a_key(ledger: Ledger) -> None:
    for key in ("a/1", "a/2", "a/3/x", "a/3/y", "a/30", "b/1"):
        ledger.create(key, b"")
    assert ledger.keys("a/", after="a/2") == ["a/3/x", "a/3/y", "a/30"]
    assert ledger.keys("a/", after="a/3/x") == ["a/3/y", "a/30"]
    assert ledger.keys("a/3", after="a/3/y") == ["a/30"]
    assert ledger.keys("a/", after="b") == []


def _create_all(address: str, writer: int, count: int) -> None:
    ledger = open_ledger(address)
    for n in range(count):
        if ledger.create(f"once/{n}", str(writer).encode()):
            assert ledger.create(f"won/{writer}-{n}", b"")


def test_of_concurrent_creators_exactly_one_wins(ledger: Ledger, address: str) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_create_all, args=(address, n, TIMES)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    won = [key.removeprefix("won/").split("-") for key in ledger.keys("won/")]
    assert sorted(int(n) for _, n in won) == list(range(TIMES))
    for writer, n in won:
        entry = ledger.read(f"once/{n}")
        assert entry is not None
        assert entry.data.decode() == writer


def test_keys_are_listed_past_one_page(ledger: Ledger) -> None:
    names = [f"many/{n:04d}" for n in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda name: ledger.create(name, b""), names))
    assert ledger.keys("many/") == names
    assert ledger.keys("many/", after=names[1000]) == names[1001:]
