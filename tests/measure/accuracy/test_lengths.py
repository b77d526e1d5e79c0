from pathlib import Path

import pytest
from fakes.checkpoints import write_anchor

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.accuracy.answers import Answer, Answers
from lowbit_ray.measure.accuracy.lengths import check_lengths


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One token a byte."""
    return write_anchor(tmp_path_factory.mktemp("anchor")) / "tokenizer.json"


def answers(*given: tuple[str, int]) -> Answers:
    return Answers(
        items_digest="0" * 64,
        answers=tuple(
            Answer(item_id=str(number), text=text, completion_tokens=tokens)
            for number, (text, tokens) in enumerate(given)
        ),
        wall_s=1,
    )


def test_honest_counts_pass(tokenizer: Path) -> None:
    check = check_lengths(answers(("four", 5), ("sixsix", 7), ("", 1)), tokenizer)
    assert (check.reported_tokens, check.counted_tokens) == (13, 10)


def test_reasoning_that_is_not_sent_is_no_lie(tokenizer: Path) -> None:
    assert check_lengths(answers(("four", 400)), tokenizer).reported_tokens == 400


def test_a_server_that_reports_too_little_is_refused_without_its_text(tokenizer: Path) -> None:
    with pytest.raises(EngineAnswerError, match=r"found 50 over 1 answers, expected about 60") as caught:
        check_lengths(answers(("canary" * 10, 50)), tokenizer)
    assert "canary" not in str(caught.value)


def test_unanswered_items_are_left_out(tokenizer: Path) -> None:
    unanswered = Answers(items_digest="0" * 64, answers=(Answer(item_id="0", error="HTTP 500"),), wall_s=1)
    assert check_lengths(unanswered, tokenizer).reported_tokens == 0


def test_lone_surrogates_are_counted(tokenizer: Path) -> None:
    assert check_lengths(answers(("\ud800", 3)), tokenizer).counted_tokens >= 1


def test_a_tokenizer_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json: the tokenizer cannot be read"):
        check_lengths(answers(("a", 1)), tmp_path / "tokenizer.json")
