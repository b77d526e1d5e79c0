"""Files of hidden data in a folder or under an S3 prefix, at an exact revision where the task names one.

The revision of a folder or prefix is the files' own fingerprint (`folder_revision`). What comes from S3 lies in a
temporary folder as long as it is read.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from lowbit_ray.errors import ConfigError, FetchError
from lowbit_ray.tasks import TextSource

__all__ = ["files_of", "folder_mark", "folder_revision", "open_folder"]

S3 = "s3://"


@contextmanager
def open_folder(source: TextSource, suffixes: Collection[str]) -> Iterator[Path]:
    """The source's folder, fetched where it is an S3 prefix.

    Raises ConfigError where it is not there, holds no file with one of `suffixes`, or is not of the source's
    revision; FetchError where S3 does not deliver.
    """
    path = source.path or ""
    if not path.startswith(S3):
        _check(source, Path(path), suffixes)
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="lowbit-hidden-") as folder:
        _download(path, Path(folder), suffixes)
        _check(source, Path(folder), suffixes)
        yield Path(folder)


def files_of(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files of these kinds, at any depth, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if path.suffix in suffixes and path.is_file())


def folder_revision(folder: Path, suffixes: Collection[str]) -> str:
    """SHA-256 (hexadecimal) over the names and contents of the folder's files of these kinds."""
    digest = hashlib.sha256()
    for path in files_of(folder, suffixes):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def folder_mark(source: TextSource, suffixes: Collection[str]) -> str:
    """Changes when the files do, and is told without reading them: their names, sizes and times, or S3's tags.

    The source's revision where it has one. Errors as `open_folder`.
    """
    path = source.path or ""
    if source.revision is not None:
        return source.revision
    if path.startswith(S3):
        marks = [f"{entry['Key']} {entry['ETag']}" for entry in _entries(_client(path), path, suffixes)]
    else:
        _check(source, Path(path), suffixes)
        stats = [(file, file.stat()) for file in files_of(Path(path), suffixes)]
        marks = [f"{file} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats]
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()


def _check(source: TextSource, folder: Path, suffixes: Collection[str]) -> None:
    if not source.path or not files_of(folder, suffixes):
        raise ConfigError(
            "the folder of hidden data is not there, or is empty",
            where=source.path or "path",
            found="no files",
            expected=f"files {', '.join(sorted(suffixes))}",
        )
    if source.revision is not None and source.revision != (found := folder_revision(folder, suffixes)):
        raise ConfigError(
            "the data are not those of the task",
            where=f"{source.path}: revision",
            found=found,
            expected=source.revision,
            remedy="Restore the files, or pin the new revision in the task's file.",
        )


def _client(url: str) -> Any:
    import boto3

    with _fetching(url):
        return boto3.client("s3")


def _entries(client: Any, url: str, suffixes: Collection[str]) -> list[dict[str, Any]]:
    """Objects of these kinds below the prefix, in the order of their names."""
    bucket, prefix = _split(url)
    with _fetching(url):
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [
            entry
            for page in pages
            for entry in page.get("Contents", ())
            if (name := PurePosixPath(entry["Key"][len(prefix) :])).suffix in suffixes
            and ".." not in name.parts
        ]


def _download(url: str, folder: Path, suffixes: Collection[str]) -> None:
    client, (bucket, prefix) = _client(url), _split(url)
    for entry in _entries(client, url, suffixes):
        target = folder / entry["Key"][len(prefix) :].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        with _fetching(url):
            client.download_file(bucket, entry["Key"], str(target))


def _split(url: str) -> tuple[str, str]:
    """Bucket, and the prefix with a slash at its end: `math` is not to find `mathematics/`."""
    bucket, _, prefix = url.removeprefix(S3).partition("/")
    return bucket, prefix.rstrip("/") + "/" if prefix.rstrip("/") else ""


@contextmanager
def _fetching(url: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, OSError) as error:
        raise FetchError(
            "S3 did not deliver the hidden data", where=url, found=type(error).__name__
        ) from None
