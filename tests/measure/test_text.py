"""Where natural text comes from."""

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.s3 import hidden_bucket

from lowbit_ray.errors import ConfigError, FetchError
from lowbit_ray.measure.folders import folder_revision
from lowbit_ray.measure.text import SUFFIXES, text_mark, text_of
from lowbit_ray.tasks import TextSource


def test_docstrings_are_prose_in_an_order_that_stays() -> None:
    source = TextSource(kind="docstrings", limit=200)
    texts = list(text_of(source))
    assert texts == list(text_of(source))
    assert len(texts) == 200
    assert all(len(text) >= 80 for text in texts)
    assert sum(" the " in text for text in texts) > 100


def test_a_folder_is_read_in_the_order_of_names_and_only_its_text(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.md").write_text("first")
    (tmp_path / "c.bin").write_bytes(b"\x00\xff")
    assert list(text_of(TextSource(kind="folder", path=str(tmp_path)))) == ["first", "second"]


def test_bytes_that_are_no_text_do_not_stop_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ok \xff")
    assert list(text_of(TextSource(kind="folder", path=str(tmp_path)))) == ["ok \ufffd"]


@pytest.mark.parametrize("path", [None, "/nowhere/at/all"])
def test_a_folder_that_is_not_there_is_refused(path: str | None) -> None:
    with pytest.raises(ConfigError, match="folder of hidden data is not there"):
        list(text_of(TextSource(kind="folder", path=path)))


def test_a_folder_of_another_revision_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first")
    source = TextSource(kind="folder", path=str(tmp_path), revision=folder_revision(tmp_path, SUFFIXES))
    assert list(text_of(source)) == ["first"]
    (tmp_path / "a.txt").write_text("other")
    with pytest.raises(ConfigError, match="not those of the task"):
        list(text_of(source))


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """A client of moto's server, and a bucket with text under two prefixes that begin alike."""
    text = {
        "text/b.txt": b"second",
        "text/a/a.md": b"first",
        "texts/c.txt": b"another",
        "text/no.bin": b"\x00",
    }
    with hidden_bucket(text) as client:
        yield client


@pytest.mark.usefixtures("bucket")
def test_text_comes_from_the_files_under_a_prefix() -> None:
    assert list(text_of(TextSource(kind="folder", path="s3://hidden/text"))) == ["first", "second"]


@pytest.mark.usefixtures("bucket")
def test_a_prefix_of_another_revision_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"s3://hidden/text: revision: the data are not those of the task"):
        list(text_of(TextSource(kind="folder", path="s3://hidden/text", revision="0" * 64)))


@pytest.mark.usefixtures("bucket")
def test_an_empty_prefix_and_a_bucket_that_is_not_there_are_named() -> None:
    with pytest.raises(ConfigError, match=r"s3://hidden/nothing: the folder of hidden data is not there"):
        list(text_of(TextSource(kind="folder", path="s3://hidden/nothing")))
    with pytest.raises(FetchError, match=r"s3://nowhere/x: S3 did not deliver"):
        list(text_of(TextSource(kind="folder", path="s3://nowhere/x")))


def test_a_mark_changes_with_the_files_of_a_prefix(bucket: Any) -> None:
    source = TextSource(kind="folder", path="s3://hidden/text")
    before = text_mark(source)
    bucket.put_object(Bucket="hidden", Key="text/no.bin", Body=b"\x01")
    assert text_mark(source) == before, "no text"
    bucket.put_object(Bucket="hidden", Key="text/c.txt", Body=b"third")
    assert text_mark(source) != before
    assert text_mark(source.model_copy(update={"revision": "0" * 64})) == "0" * 64
    assert text_mark(TextSource(kind="docstrings")) == ""


@pytest.mark.parametrize("fields", [{}, {"path": "a/b"}, {"split": "test"}])
def test_a_hub_source_needs_its_data_set_and_split(fields: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs path and split"):
        list(text_of(TextSource(kind="hub", **fields)))


def jsonl(folder: Path, *lines: str) -> TextSource:
    """A data set that the real library reads without a network: JSON lines in a folder."""
    (folder / "part.jsonl").write_text("\n".join(lines))
    return TextSource(kind="hub", path=str(folder), split="train")


@pytest.fixture
def library() -> types.ModuleType:
    return pytest.importorskip("datasets")


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_gives_its_column_without_empty_rows(tmp_path: Path, library: types.ModuleType) -> None:
    source = jsonl(tmp_path, '{"text": "one"}', '{"text": ""}', '{"text": "two"}')
    assert list(text_of(source)) == ["one", "two"]


@pytest.mark.filterwarnings("ignore")
def test_rows_of_one_text_are_joined_empty_ones_included(tmp_path: Path, library: types.ModuleType) -> None:
    source = jsonl(
        tmp_path, '{"text": ""}', '{"text": " = Title = \\n"}', '{"text": null}', '{"text": "two"}'
    )
    joined = source.model_copy(update={"joined_by": "\n\n"})
    assert list(text_of(joined)) == ["\n\n = Title = \n\n\n\n\ntwo"]
    assert list(text_of(joined.model_copy(update={"limit": 2}))) == ["\n\n = Title = \n"]


@pytest.mark.filterwarnings("ignore")
def test_a_column_that_is_not_there_is_named(tmp_path: Path, library: types.ModuleType) -> None:
    with pytest.raises(ConfigError, match="no such column, found text"):
        list(text_of(jsonl(tmp_path, '{"body": "one"}')))


@pytest.mark.filterwarnings("ignore")
def test_a_hub_that_does_not_deliver_is_a_fetch_error(tmp_path: Path, library: types.ModuleType) -> None:
    with pytest.raises(FetchError, match="did not deliver"):
        list(text_of(TextSource(kind="hub", path=str(tmp_path / "missing"), split="train")))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"Install lowbit-ray\[cluster\]"):
        list(text_of(TextSource(kind="hub", path="a/b", split="test")))
