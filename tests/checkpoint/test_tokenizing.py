"""A candidate's tokenizer beside the source's."""

import json
from pathlib import Path
from typing import Any

import pytest

from lowbit_ray.checkpoint.tokenizing import compare_tokenizers

MODEL = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}


def write(folder: Path, *, template: str | None = "{{ messages }}", **changes: Any) -> Path:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps({"model": MODEL, "added_tokens": [], **changes}))
    config = {} if template is None else {"chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source")


def test_the_same_tokenizer_gives_no_finding(source: Path, tmp_path: Path) -> None:
    assert list(compare_tokenizers(source, write(tmp_path / "same"))) == []


def test_both_spellings_of_merges_are_the_same_tokenizer(source: Path, tmp_path: Path) -> None:
    pairs = {**MODEL, "merges": [["a", "b"]]}
    assert list(compare_tokenizers(source, write(tmp_path / "pairs", model=pairs))) == []


def test_another_vocabulary_is_a_note_that_breaks_nothing(source: Path, tmp_path: Path) -> None:
    other = {**MODEL, "vocab": {"a": 1, "b": 0, "ab": 2}}
    (finding,) = compare_tokenizers(source, write(tmp_path / "other", model=other))
    assert (finding.file, finding.field, finding.breaks) == ("tokenizer.json", "model", False)


def test_a_changed_chat_template_is_a_note(source: Path, tmp_path: Path) -> None:
    (finding,) = compare_tokenizers(source, write(tmp_path / "told", template="Think first. {{ messages }}"))
    assert finding.field == "chat_template"
    assert "Think first" in finding.found


def test_a_template_of_its_own_file_counts_before_the_configs(source: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "moved", template="another")
    (folder / "chat_template.jinja").write_text("{{ messages }}\n")
    assert list(compare_tokenizers(source, folder)) == []


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"model": 3}'])
def test_a_file_that_is_no_tokenizer_is_passed_over_or_noted(
    damage: str, source: Path, tmp_path: Path
) -> None:
    folder = write(tmp_path / "damaged")
    (folder / "tokenizer.json").write_text(damage)
    assert all(not finding.breaks for finding in compare_tokenizers(source, folder))
