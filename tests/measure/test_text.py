"""Where natural text comes from."""

import sys
import types
from pathlib import Path

import pytest

from lowbit_ray.errors import ConfigError, FetchError
from lowbit_ray.measure.text import text_of
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
    with pytest.raises(ConfigError, match="text folder is not there"):
        list(text_of(TextSource(kind="folder", path=path)))


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
