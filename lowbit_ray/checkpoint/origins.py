"""Where a checkpoint comes from: what a listing says, and the folder on this machine.

`fetch.seal` asks an origin for its files and sizes first, so that every rule is applied before a byte moves.
The hub and S3 have their own modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from lowbit_ray.checkpoint.files import list_files
from lowbit_ray.errors import CheckpointError, FetchError

__all__ = ["CHUNK", "FolderOrigin", "Listed", "Origin", "check_name"]

CHUNK = 4 * 2**20
"""Bytes that are read, hashed and written at a time."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One file of a listing."""

    path: str
    """Relative POSIX path."""
    size: int
    version: str
    """Changes when the content does: a hash, an ETag, a modification time."""
    sha256: str | None = None
    """Where the origin knows it."""
    git_blob: str | None = None
    """SHA-1 of git's blob, for small files of a hub repository."""


class Origin(Protocol):
    """A place that holds one checkpoint."""

    @property
    def name(self) -> str:
        """As a record shows it: path, `owner/name@commit`, `s3://bucket/prefix`."""

    @property
    def pinned(self) -> bool:
        """Whether `name` says the content, so that it never changes under it."""

    def listing(self) -> list[Listed]:
        """All files. Raises FetchError, or CheckpointError when what is asked for is not there."""

    def read(self, file: Listed, start: int) -> Iterator[bytes]:
        """The bytes from `start`, in chunks. Raises FetchError."""


def check_name(path: str) -> str:
    """`path` if it stays inside the folder it is written to; CheckpointError otherwise."""
    parts = PurePosixPath(path).parts
    clean = path.isprintable() and "\\" not in path and path == "/".join(parts) and len(path) <= 512
    if not parts or not clean or path.startswith("/") or ".." in parts:
        raise CheckpointError("not a file name that can be stored", where=ascii(path)[:200])
    return path


@dataclass(frozen=True, slots=True)
class FolderOrigin:
    """A folder on this machine."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def pinned(self) -> bool:
        return False

    def listing(self) -> list[Listed]:
        found = []
        for name in list_files(self.folder):
            status = (self.folder / name).stat()
            found.append(Listed(name, status.st_size, f"{status.st_mtime_ns}"))
        return found

    def read(self, file: Listed, start: int) -> Iterator[bytes]:
        try:
            with (self.folder / file.path).open("rb", buffering=0) as stream:
                stream.seek(start)
                while chunk := stream.read(CHUNK):
                    yield chunk
        except OSError as error:
            raise FetchError(f"the file cannot be read: {error.strerror}", where=file.path) from None
