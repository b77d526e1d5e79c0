"""A sealed checkpoint: a read-only folder, and beside it a manifest with the hash of every file.

The manifest is not inside the folder, so that the folder holds the checkpoint's own files and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import ValidationError

from lowbit_ray.errors import FetchError
from lowbit_ray.rules import _Frozen

__all__ = [
    "Sealed",
    "SealedFile",
    "digest_of",
    "discard",
    "hash_files",
    "load_sealed",
    "manifest_path",
    "verify_sealed",
]


class SealedFile(_Frozen):
    path: str
    """Relative POSIX path."""
    bytes: int
    sha256: str


class Sealed(_Frozen):
    """What was fetched, and what it is."""

    path: Path
    """The read-only folder."""
    origin: str
    """Where it came from: a path, `owner/name@commit`, `s3://bucket/prefix`."""
    files: tuple[SealedFile, ...]
    """Sorted by path."""
    total_bytes: int
    digest: str
    """SHA-256 over `<sha256>  <bytes>  <path>\\n` of every file, in order of path."""
    stored_gib: float
    """Bytes of the safetensors files / 2^30."""


def seal_record(path: Path, origin: str, files: Iterable[SealedFile]) -> Sealed:
    """The record of a folder whose files have these hashes."""
    ordered = tuple(sorted(files, key=lambda file: file.path))
    weights = sum(file.bytes for file in ordered if file.path.endswith(".safetensors"))
    return Sealed(
        path=path,
        origin=origin,
        files=ordered,
        total_bytes=sum(file.bytes for file in ordered),
        digest=digest_of(ordered),
        stored_gib=weights / 2**30,
    )


def digest_of(files: Iterable[SealedFile]) -> str:
    """One hash for all files, as `Sealed.digest` says."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        digest.update(f"{file.sha256}  {file.bytes}  {file.path}\n".encode())
    return digest.hexdigest()


def manifest_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.seal.json")


def load_sealed(folder: Path) -> Sealed | None:
    """The record of a sealed folder whose files are all there in full; None when it is not sealed."""
    try:
        sealed = Sealed.model_validate_json(manifest_path(folder).read_bytes())
        whole = all((folder / file.path).stat().st_size == file.bytes for file in sealed.files)
    except (OSError, ValidationError):
        return None
    return sealed.model_copy(update={"path": folder}) if whole else None


def hash_files(folder: Path, paths: Iterable[str]) -> list[SealedFile]:
    """Hashes files on all cores."""

    def one(path: str) -> SealedFile:
        with (folder / path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return SealedFile(path=path, bytes=file.tell(), sha256=digest.hexdigest())

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(one, paths))


def verify_sealed(sealed: Sealed) -> None:
    """Hashes every file again; FetchError names the first that is not what was sealed."""
    try:
        found = hash_files(sealed.path, [file.path for file in sealed.files])
    except OSError as error:
        raise FetchError(f"a sealed file cannot be read: {error}", where=str(sealed.path)) from None
    for before, now in zip(sealed.files, found, strict=True):
        if before != now:
            raise FetchError(
                "a sealed file has changed",
                where=before.path,
                found=now.sha256[:16],
                expected=before.sha256[:16],
            )


def make_read_only(folder: Path) -> None:
    """Files 0444, folders 0555, the deepest first."""
    for current, _, names in os.walk(folder, topdown=False):
        for name in names:
            (Path(current) / name).chmod(0o444)
        Path(current).chmod(0o555)


def discard(folder: Path) -> None:
    """Removes a sealed folder and its manifest; nothing happens where there is none."""
    manifest_path(folder).unlink(missing_ok=True)
    for current, _, _ in os.walk(folder):
        Path(current).chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
