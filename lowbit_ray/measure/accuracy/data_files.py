"""The rows of a data set of items: JSONL or Parquet files of the hub, an S3 prefix or a folder.

The revision is exact: a commit on the hub; for a folder or S3 prefix the files' own fingerprint (folders.py). Rows of
files are streamed, so that no copy of hidden data is left in a cache of `datasets`. What its readers say of bad data
is not repeated, as it may quote them.
"""

from __future__ import annotations

import json
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from lowbit_ray.errors import ConfigError, FetchError
from lowbit_ray.measure.folders import files_of, open_folder
from lowbit_ray.tasks import TextSource

__all__ = ["read_rows"]

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
    with open_folder(source, _READERS) as folder:
        return _folder_rows(source, folder)


def _folder_rows(source: TextSource, folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in files_of(folder, _READERS):
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
    except Exception as error:  # the library raises a kind of its own for each reader, and what they raise
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
    except Exception as error:  # the library raises whatever its transports raise
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
