"""Where everything that must last lives: objects under keys, created once or swapped against a version.

A protocol of five verbs; `FolderLedger` keeps the objects as files of one folder, `S3Ledger` in a bucket.
Processes may be killed at any moment: an object is either whole or absent, and of two writers exactly one wins.

    submissions/<id>/submission.json    what was handed in                    created once
    submissions/<id>/lease.json         who is evaluating it                  swapped
    submissions/<id>/stages/<name>.json what a stage measured, and by what    created once, swapped by another plan
    submissions/<id>/attempts/<n>.json  what an attempt held and how it ended created once
    submissions/<id>/record.json        the public record                     created once
    accepted/<time>-<id>                the order of arrival                  created once, after submission.json
    submissions/<id>/progress.json      what is being done just now           swapped
    submissions/<id>/logs/<name>.txt    how a server of it started            created once
    submissions/<id>/cancelled.json     by whom, when, why                    created once
    dispatch/<id>.json                  its Ray job, and faults of ours       swapped, removed with the verdict
    flags/<id>.json                     an organizer's flag and its reason    swapped
    people/<name>.json                  participant or organizer, tokens      swapped
    quotas/<name>/<task>.json           places taken in a task                swapped
    audit/<time>-<random>.json          an organizer's action                 created once
    tasks/<task>/anchors/<key>/…        reusable results of the anchor        created once
    tasks/<task>/anchors/<key>/claim.json  who is asking the anchor for them  swapped
    tasks/<task>/noise_floor.json       the anchor against itself             swapped
    nodes/<node>.json                   a node out of service, and why        created once, removed
    doctor/<random>                     what `lowbit doctor` tries it with    created, swapped, removed at once
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lowbit_ray.errors import ConfigError, LedgerError

__all__ = ["Entry", "FolderLedger", "Ledger", "check_key", "open_ledger"]

KEY = re.compile(r"[^/.\x00-\x1f][^/\x00-\x1f]*(/[^/.\x00-\x1f][^/\x00-\x1f]*)*")


@dataclass(frozen=True, slots=True)
class Entry:
    """An object and the version it was read at."""

    data: bytes
    version: str


class Ledger(Protocol):
    """Five verbs; all raise LedgerError where the store fails."""

    def create(self, key: str, data: bytes) -> bool:
        """Stores a new object; False, and nothing changed, where the key exists."""
        ...

    def read(self, key: str) -> Entry | None:
        """The object, or None."""
        ...

    def swap(self, key: str, data: bytes, version: str) -> bool:
        """Replaces the object read at `version`; False, and nothing changed, where it has moved on."""
        ...

    def keys(self, prefix: str, *, after: str = "") -> list[str]:
        """All keys that start with `prefix` and come after `after`, sorted."""
        ...

    def remove(self, key: str, version: str) -> bool:
        """Removes the object read at `version`; False where it has moved on or is gone."""
        ...


class FolderLedger:
    """A ledger in a folder of one file system that has hard links and locks (not NFS version 2 or 3)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _failed("opened", root, error) from None

    def create(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with _whole_file(path, data) as part:
            try:
                path.hardlink_to(part)  # atomic, and refuses to replace
            except FileExistsError:
                return False
        _sync_folder(path.parent)
        return True

    def read(self, key: str) -> Entry | None:
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed("read", path, error) from None
        return Entry(data, _version(data))

    def swap(self, key: str, data: bytes, version: str) -> bool:
        path = self._path(key)
        with self._lock(), _whole_file(path, data) as part:
            entry = self.read(key)
            if entry is None or entry.version != version:
                return False
            part.replace(path)
        _sync_folder(path.parent)
        return True

    def keys(self, prefix: str, *, after: str = "") -> list[str]:
        folder, _, _ = prefix.rpartition("/")
        try:
            return sorted(_walk(self.root, folder, prefix, after))
        except OSError as error:
            raise _failed("listed", self.root / folder, error) from None

    def remove(self, key: str, version: str) -> bool:
        with self._lock():
            entry = self.read(key)
            if entry is None or entry.version != version:
                return False
            try:
                self._path(key).unlink()
            except OSError as error:
                raise _failed("removed", self._path(key), error) from None
        return True

    def _path(self, key: str) -> Path:
        check_key(key, f"ledger {self.root}")
        return self.root.joinpath(*key.split("/"))

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            file = (self.root / ".lock").open("w")
        except OSError as error:
            raise _failed("locked", self.root, error) from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)  # given up by the kernel when the process dies
            except OSError as error:
                raise _failed("locked", self.root, error) from None
            yield


def check_key(key: str, ledger: str) -> None:
    """LedgerError where `key` is none: it names words parted by slashes, none of which starts with a full stop."""
    if not KEY.fullmatch(key):
        raise LedgerError("not a key", where=ledger, found=repr(key)[:200], expected="words parted by /")


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _walk(root: Path, folder: str, prefix: str, after: str) -> Iterator[str]:
    """Keys below `folder`; of a subfolder no file is looked at where none of its keys can be wanted."""
    try:
        entries = list(os.scandir(root / folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        key = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_dir():
            inside = f"{key}/"
            if (
                inside.startswith(prefix) or prefix.startswith(inside)
            ) and after < f"{key}0":  # "0" follows "/"
                yield from _walk(root, key, prefix, after)
        elif key.startswith(prefix) and key > after:
            yield key


@contextlib.contextmanager
def _whole_file(path: Path, data: bytes) -> Iterator[Path]:
    """Writes `data` beside `path`, synced to disk; gone afterwards unless it was renamed."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield part
    except OSError as error:
        raise _failed("written", path, error) from None
    finally:
        with contextlib.suppress(OSError):  # gone, or with its folder
            part.unlink()


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise _failed("written", folder, error) from None


def _failed(what: str, path: Path, error: OSError) -> LedgerError:
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return LedgerError(
        f"the ledger could not be {what}: {error.strerror}",
        where=str(path),
        remedy="Free some space: nothing that was stored is lost."
        if full
        else "Check LOWBIT_LEDGER and its rights.",
    )


def open_ledger(address: str) -> Ledger:
    """The ledger at `address`: a folder, or `s3://bucket/prefix`."""
    if address.startswith("s3://"):
        from lowbit_ray.bucket import open_s3_ledger

        return open_s3_ledger(address)
    if "://" in address:
        raise ConfigError(
            "no ledger of this kind",
            where="LOWBIT_LEDGER",
            found=address,
            expected="a folder or s3://bucket/prefix",
        )
    return FolderLedger(Path(address).expanduser().resolve())
