"""The rows of a data set of items: JSONL or Parquet files of the hub, an S3 prefix or a folder.

The revision is exact: a commit on the hub; for a folder or S3 prefix the files' own fingerprint
(`folder_revision`), checked where the task names one. Rows of files are streamed, so that no copy of hidden
data is left in a cache of `datasets`. What its readers say of bad data is not repeated, as it may quote them.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from lowbit_ray.errors import ConfigError, FetchError
from lowbit_ray.tasks import TextSource

__all__ = ["folder_revision", "read_rows"]

_READERS = {".jsonl": "json", ".parquet": "parquet"}


def read_rows(source: TextSource) -> list[dict[str, Any]]:
    """All rows, `source.limit` at most, in the files' order.

    Raises ConfigError where the source is not fully named, its files have another revision or cannot be read,
    FetchError where the hub or S3 does not deliver.
    """
    if source.kind == "docstrings" or not source.path:
        raise ConfigError(
            "accuracy items cannot come from this source",
            where="accuracy: source",
            found=f"kind {source.kind}, path {source.path}",
            expected="kind hub or folder, with a path",
        )
    if source.kind == "hub":
        return _hub_rows(source, source.path)
    if source.path.startswith("s3://"):
        with tempfile.TemporaryDirectory(prefix="lowbit-items-") as folder:
            _download(source.path, Path(folder))
            return _folder_rows(source, Path(folder))
    return _folder_rows(source, Path(source.path))


def folder_revision(folder: Path) -> str:
    """SHA-256 (hexadecimal) over the names and contents of the folder's data files."""
    digest = hashlib.sha256()
    for path in _data_files(folder):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def _data_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in _READERS and path.is_file())


def _folder_rows(source: TextSource, folder: Path) -> list[dict[str, Any]]:
    files = _data_files(folder)
    if not files:
        raise ConfigError("no items", where=source.path or "", expected=f"files {', '.join(_READERS)}")
    if source.revision is not None and source.revision != (found := folder_revision(folder)):
        raise ConfigError(
            "the data are not those of the task",
            where=f"{source.path}: revision",
            found=found,
            expected=source.revision,
            remedy="Restore the files, or pin the new revision in the task's file.",
        )
    rows: list[dict[str, Any]] = []
    for path in files:
        rows += _stream(_READERS[path.suffix], path, source.limit)
    return rows[: source.limit]


def _stream(reader: str, path: Path, limit: int | None) -> list[dict[str, Any]]:
    datasets = _quiet_datasets()
    try:
        with tempfile.TemporaryDirectory(prefix="lowbit-items-") as cache:
            stream = datasets.load_dataset(
                reader, data_files=str(path), split="train", streaming=True, cache_dir=cache
            )
            return [dict(row) for row in islice(stream, limit)]
    except Exception as error:
        if reader == "json" and (number := _first_bad_line(path)) is not None:
            raise ConfigError(
                "a row is not a JSON object", where=f"{path.name}: row {number}", expected="one object a line"
            ) from None
        raise ConfigError(
            "the file cannot be read",
            where=path.name,
            found=type(error).__name__,
            expected="rows whose columns have one type each; lists and objects may be JSON texts",
        ) from None


def _first_bad_line(path: Path) -> int | None:
    with path.open("rb") as file:
        for number, line in enumerate(file):
            try:
                if line.strip() and not isinstance(json.loads(line), dict):
                    return number
            except (ValueError, RecursionError):
                return number
    return None


def _hub_rows(source: TextSource, path: str) -> list[dict[str, Any]]:
    if source.revision is None or source.split is None:
        raise ConfigError(
            "a hub data set needs its exact revision and its split",
            where=f"{path}: {'revision' if source.revision is None else 'split'}",
            expected="a commit of 40 hexadecimal digits, and the name of a split",
        )
    datasets = _quiet_datasets()
    try:
        rows = datasets.load_dataset(path, source.config, split=source.split, revision=source.revision)
        return [dict(row) for row in islice(rows, source.limit)]
    except ValueError as error:
        raise ConfigError(
            "the data set has no such config, split or form", where=path, found=type(error).__name__
        ) from None
    except Exception as error:
        raise FetchError(
            "the hub did not deliver the accuracy items",
            where=f"{path}@{source.revision}",
            found=type(error).__name__,
        ) from None


def _quiet_datasets() -> Any:
    """The module, imported when it is needed, without progress bars, reports of bad rows and calls home."""
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL + 1)
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    return datasets


def _download(url: str, folder: Path) -> None:
    """The data files under `s3://bucket/prefix`."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    prefix = prefix.rstrip("/") + "/" if prefix.rstrip("/") else ""
    try:
        client = boto3.client("s3")
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for entry in page.get("Contents", ()):
                name = PurePosixPath(entry["Key"][len(prefix) :])
                if name.suffix in _READERS and ".." not in name.parts:
                    target = folder / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    client.download_file(bucket, entry["Key"], str(target))
    except (BotoCoreError, ClientError, OSError) as error:
        raise FetchError(
            "S3 did not deliver the accuracy items", where=url, found=type(error).__name__
        ) from None
