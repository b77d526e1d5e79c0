"""Fetching a checkpoint into a sealed folder: `seal("owner/name@commit" | "s3://…" | folder, destination)`.

    list → refuse by name and size → fetch and hash each file, resumably → compare hashes → read-only → rename

The destination appears whole or not at all. An interrupted fetch leaves `<destination>.partial`, from which
the next one goes on; two at once wait for each other.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from lowbit_ray.checkpoint.arrived import Told, counter
from lowbit_ray.checkpoint.files import classify_name
from lowbit_ray.checkpoint.hub import parse_hub
from lowbit_ray.checkpoint.origins import CHUNK, FolderOrigin, Listed, Origin, check_name
from lowbit_ray.checkpoint.sealed import (
    Sealed,
    SealedFile,
    digest_of,
    hash_files,
    load_sealed,
    make_read_only,
    manifest_path,
    seal_record,
)
from lowbit_ray.errors import CheckpointError, ConfigError, FetchError

__all__ = ["Unsafe", "origin_of", "seal"]

Unsafe = Literal["refuse", "skip", "keep"]
LOCK_WAIT_S = 4 * 3600.0
PARALLEL_FILES = 4


def origin_of(source: str | Path) -> Origin:
    """`s3://bucket/prefix`, a hub repository `owner/name@<40 hex digits>`, or a folder on this machine.

    Raises CheckpointError when it is none of them.
    """
    text = str(source)
    if isinstance(source, str) and text.startswith("s3://"):
        from lowbit_ray.checkpoint.s3 import parse_s3  # boto3 is only imported by who uses it

        return parse_s3(text)
    if isinstance(source, Path) or Path(text).is_dir() or text.startswith(("/", ".", "~")):
        return FolderOrigin(Path(text).expanduser())
    return parse_hub(text)


def seal(
    source: str | Path | Origin,
    destination: Path,
    *,
    limit_gib: float,
    unsafe: Unsafe = "refuse",
    told: Told | None = None,
    room: Callable[[int], object] | None = None,
) -> Sealed:
    """Fetches `source` into the read-only folder `destination` and records the hash of every file.

    `told` is told bytes that are there and bytes in all, from several threads; `room` how many bytes are about to be
    written, so that it can free as many.

    `unsafe` says what happens to pickles and programs: the checkpoint track refuses them, an anchor's are
    skipped, an engine's are kept. What is already sealed there with the same content is kept as it is.

    Raises CheckpointError when the checkpoint is too large, unsafe or not there, FetchError when the bytes do
    not arrive or do not hash to what the origin says, ConfigError when another checkpoint is sealed there.
    """
    origin = origin_of(source) if isinstance(source, (str, Path)) else source
    destination.parent.mkdir(parents=True, exist_ok=True)
    with _lock(destination):
        before = load_sealed(destination)
        if before is not None and origin.pinned and before.origin == origin.name:
            return before
        files = _admit(origin.listing(), limit_gib, unsafe)
        if before is not None:
            return _same_or_refuse(before, origin, files)
        try:
            return _fetch_all(origin, files, destination, told, room)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise FetchError(
                "the disk is full" if full else f"a file cannot be written: {error}",
                where=str(destination),
                remedy="Free some space; the next attempt goes on where this one stopped." if full else "",
            ) from None


def _admit(files: list[Listed], limit_gib: float, unsafe: Unsafe) -> list[Listed]:
    """The files to fetch, after every rule that their names and sizes can break."""
    for file in files:
        check_name(file.path)
    kinds = {file.path: kind for file in files if (kind := classify_name(file.path)) is not None}
    if kinds and unsafe == "refuse":
        raise CheckpointError(
            "files that could run code are refused",
            where=", ".join(sorted(kinds))[:400],
            found=", ".join(sorted({f"a {kind}" for kind in kinds.values()})),
            expected="weights in safetensors, configuration and tokenizer files",
            remedy="Remove them from the checkpoint.",
        )
    kept = [file for file in files if unsafe == "keep" or file.path not in kinds]
    total = sum(file.size for file in kept)
    if total > limit_gib * 2**30:
        raise CheckpointError(
            "the checkpoint is too large",
            found=f"{total / 2**30:.2f} GiB",
            expected=f"at most {limit_gib:g} GiB",
        )
    if not kept:
        raise CheckpointError("the checkpoint holds no file", expected="config.json and safetensors files")
    return kept


def _same_or_refuse(before: Sealed, origin: Origin, files: list[Listed]) -> Sealed:
    """What is sealed already, if it is what the origin holds now."""
    same = {file.path: file.size for file in files} == {file.path: file.bytes for file in before.files}
    if same and isinstance(origin, FolderOrigin):
        same = digest_of(hash_files(origin.folder, [file.path for file in files])) == before.digest
    elif same:
        known = {file.path: file.sha256 for file in before.files}
        same = before.origin == origin.name and all(file.sha256 in (None, known[file.path]) for file in files)
    if not same:
        raise ConfigError(
            "another checkpoint is sealed here",
            where=str(before.path),
            found=before.origin,
            expected=origin.name,
            remedy="Seal it into a folder of its own.",
        )
    return before


def _fetch_all(
    origin: Origin,
    files: list[Listed],
    destination: Path,
    told: Told | None,
    room: Callable[[int], object] | None,
) -> Sealed:
    partial = destination.with_name(f"{destination.name}.partial")
    _prepare(partial, origin, files)
    missing = sum(file.size for file in files) - sum(_size(partial / file.path) for file in files)
    if room is not None:
        room(missing)
    free = shutil.disk_usage(partial).free
    if missing > free:
        raise FetchError(
            "not enough disk space", where=str(partial), found=f"{free} bytes", expected=f"{missing}"
        )
    largest_first = sorted(files, key=lambda file: -file.size)
    stop, arrived = threading.Event(), counter(sum(file.size for file in files), told)
    with ThreadPoolExecutor(PARALLEL_FILES) as pool:
        futures = [pool.submit(_fetch_one, origin, file, partial, stop, arrived) for file in largest_first]
        try:
            sealed = [future.result() for future in as_completed(futures)]
        except BaseException:  # also an interrupt: the other files stop at their next chunk
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    record = seal_record(destination, origin.name, sealed)
    if destination.exists():
        raise ConfigError(
            "the destination exists and is not sealed", where=str(destination), remedy="Remove it."
        )
    make_read_only(partial)
    manifest = manifest_path(destination)
    manifest.write_text(record.model_dump_json(indent=1))
    partial.rename(destination)
    _journal(partial).unlink(missing_ok=True)
    return record


def _journal(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _prepare(partial: Path, origin: Origin, files: list[Listed]) -> None:
    """Keeps what an earlier attempt left if it was of the same files, else starts anew."""
    journal = _journal(partial)
    wanted: dict[str, Any] = {"origin": origin.name, "files": [asdict(file) for file in files]}
    try:
        same = json.loads(journal.read_text()) == wanted
    except (OSError, ValueError):
        same = False
    if not same:
        shutil.rmtree(partial, ignore_errors=True)
    for current, _, names in os.walk(partial):  # a stop between read-only and rename
        Path(current).chmod(0o755)
        for name in names:
            (Path(current) / name).chmod(0o644)
    partial.mkdir(exist_ok=True)
    journal.write_text(json.dumps(wanted))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fetch_one(
    origin: Origin, file: Listed, partial: Path, stop: threading.Event, arrived: Callable[[int], None]
) -> SealedFile:
    """Fetches what is missing of one file, hashing on the way, and compares with what the origin says."""
    path = partial / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if _size(path) > file.size:
        path.unlink()
    hashes = [hashlib.sha256()]
    if file.git_blob is not None:
        hashes.append(hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False))
    with path.open("ab") as target, _hasher(hashes) as update:
        start = _rehash(path, update)
        arrived(start)
        if start < file.size:
            for chunk in origin.read(file, start):
                update(chunk)
                target.write(chunk)
                start += len(chunk)
                arrived(len(chunk))
                if stop.is_set():
                    raise FetchError("stopped, as another file failed", where=file.path)
    digests = [digest.hexdigest() for digest in hashes]
    expected = [file.sha256 or digests[0], file.git_blob][: len(digests)]
    if start != file.size or digests != expected:
        path.unlink()
        raise FetchError(
            "the bytes are not those that were listed",
            where=file.path,
            found=f"{start} bytes, {digests[-1][:16]}…",
            expected=f"{file.size} bytes, {str(expected[-1])[:16]}…",
            remedy="Try again; the file has been discarded.",
        )
    return SealedFile(path=file.path, bytes=file.size, sha256=digests[0])


def _rehash(path: Path, update: Any) -> int:
    """Hashes what is there already; its length."""
    length = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            update(chunk)
            length += len(chunk)
    return length


@contextmanager
def _hasher(hashes: list[Any]) -> Iterator[Any]:
    """Feeds hashes in a thread of its own, so that hashing overlaps with reading and writing."""
    chunks: queue.Queue[bytes | None] = queue.Queue(maxsize=4)

    def work() -> None:
        while (chunk := chunks.get()) is not None:
            for digest in hashes:
                digest.update(chunk)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield chunks.put
    finally:
        chunks.put(None)
        thread.join()


@contextmanager
def _lock(destination: Path) -> Iterator[None]:
    """Holds the destination against other processes; FetchError after four hours of waiting."""
    path = destination.with_name(f"{destination.name}.lock")
    deadline = time.monotonic() + LOCK_WAIT_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise FetchError(
                        "another process is sealing this checkpoint", where=str(destination)
                    ) from None
                time.sleep(0.2)
        yield
