"""Natural text from where a task says: docstrings of Python's standard library, a folder or S3 prefix, a hub data
set."""

from __future__ import annotations

import ast
import importlib
import itertools
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from lowbit_ray.errors import ConfigError, FetchError
from lowbit_ray.measure.folders import files_of, folder_mark, open_folder
from lowbit_ray.tasks import TextSource

__all__ = ["text_mark", "text_of"]

SKIPPED = frozenset({"idlelib", "lib2to3", "site-packages", "dist-packages", "test", "tests", "turtledemo"})
"""Folders of the standard library with little prose, or not part of it."""
LEAST_CHARACTERS = 80
"""Docstrings shorter than this are no natural text."""
SUFFIXES = frozenset({".md", ".rst", ".text", ".txt"})


def text_of(source: TextSource) -> Iterator[str]:
    """The source's texts in an order that is always the same, at most `limit` of them.

    Raises ConfigError for a source that is not there or not of its revision, FetchError where the hub or S3 does not
    deliver.
    """
    texts = {"docstrings": _docstrings, "folder": _folder, "hub": _hub}[source.kind](source)
    for number, text in enumerate(texts):
        if source.limit is not None and number >= source.limit:
            return
        yield text


def _docstrings(_: TextSource) -> Iterator[str]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if SKIPPED.isdisjoint(path.relative_to(root).parts):
            yield from _docstrings_of(path)


def _docstrings_of(path: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escape sequences in others' sources
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # a file for another Python version
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= LEAST_CHARACTERS:
                yield text + "\n\n"


def text_mark(source: TextSource) -> str:
    """Changes when the text does, where it may do so under one name; empty for the other kinds."""
    return folder_mark(source, SUFFIXES) if source.kind == "folder" else ""


def _folder(source: TextSource) -> Iterator[str]:
    with open_folder(source, SUFFIXES) as folder:
        for path in files_of(folder, SUFFIXES):
            yield path.read_text(encoding="utf-8", errors="replace")


def _hub(source: TextSource) -> Iterator[str]:
    if not source.path or not source.split:
        raise ConfigError("a hub text source needs path and split", where="text source", found=source.path)
    try:
        datasets = importlib.import_module("datasets")
        rows = datasets.load_dataset(
            source.path, source.config, split=source.split, revision=source.revision, streaming=True
        )
        texts = (row[source.column] or "" for row in rows)
        if source.joined_by is None:
            yield from filter(None, texts)
        else:
            yield source.joined_by.join(itertools.islice(texts, source.limit))
    except ImportError:
        raise ConfigError(
            "the data set library is not installed",
            where="text source: hub",
            remedy="Install lowbit-ray[cluster].",
        ) from None
    except KeyError:
        raise ConfigError(
            "the data set has no such column", where=f"{source.path}: column", found=source.column
        ) from None
    except Exception as error:  # the library raises whatever its transports raise
        raise FetchError(
            "the hub did not deliver the text", where=source.path, found=type(error).__name__
        ) from None
