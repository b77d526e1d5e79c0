"""Prompts: natural text, cut by a secret seed, never twice the same beginning."""

from pathlib import Path

import numpy as np
import pytest
from fakes.checkpoints import write_anchor
from hypothesis import given, settings
from hypothesis import strategies as st

from lowbit_ray.errors import CheckpointError, ConfigError
from lowbit_ray.measure.prompts import (
    PREFIX,
    Tokenizer,
    cut_beginnings,
    cut_prompts,
    cut_windows,
    derive_seed,
    token_pool,
)
from lowbit_ray.tasks import TextSource

POOL = np.random.default_rng(0).integers(0, 200, 20_000).astype(np.int32)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.of(write_anchor(tmp_path_factory.mktemp("model")))


@given(
    count=st.integers(1, 40),
    length=st.integers(PREFIX, 600),
    seed=st.binary(min_size=1, max_size=8),
    size=st.integers(700, 20_000),
)
@settings(max_examples=150, deadline=None)
def test_prompts_have_their_length_and_no_two_share_a_beginning(
    count: int, length: int, seed: bytes, size: int
) -> None:
    cut = cut_prompts(POOL[:size], count, length, seed)
    assert [len(prompt) for prompt in cut] == [length] * count
    assert len({prompt[:PREFIX] for prompt in cut}) == count


def test_prompts_are_pieces_of_the_text() -> None:
    text = POOL.tobytes()
    for prompt in cut_prompts(POOL, 5, 100, b"s"):
        assert np.asarray(prompt, np.int32).tobytes() in text


def test_a_long_pool_gives_pieces_that_do_not_overlap() -> None:
    pool = np.arange(10_000, dtype=np.int32)
    starts = sorted(prompt[0] for prompt in cut_prompts(pool, 20, 100, b"s"))
    assert min(np.diff(starts)) >= 100


def test_the_same_seed_gives_the_same_prompts_and_another_one_others() -> None:
    first = cut_prompts(POOL, 6, 50, b"one")
    assert first == cut_prompts(POOL, 6, 50, b"one")
    assert not {prompt[:PREFIX] for prompt in first} & {
        prompt[:PREFIX] for prompt in cut_prompts(POOL, 6, 50, b"two")
    }


def test_repeated_text_is_not_cut_twice() -> None:
    pool = np.concatenate([POOL[:300]] * 4 + [POOL[300:600]])
    cut = cut_prompts(pool, 5, 100, b"s")
    assert len({prompt[:PREFIX] for prompt in cut}) == 5


@pytest.mark.parametrize("pool", [POOL[:100], np.zeros(5000, np.int32)])
def test_too_little_text_says_how_much_there_is(pool: np.ndarray) -> None:
    with pytest.raises(
        ConfigError, match=r"too short, found .* tokens, expected 6 different pieces of 99 tokens"
    ):
        cut_prompts(pool, 6, 99, b"s")


def test_windows_do_not_overlap_and_stand_in_order() -> None:
    pool = np.arange(1000, dtype=np.int32)
    windows = cut_windows(pool, 4, 100, b"s")
    starts = [window[0] for window in windows]
    assert starts == sorted(starts)
    assert all(start % 100 == 0 for start in starts)
    assert len(set(starts)) == 4


def test_windows_without_a_seed_are_the_first_ones() -> None:
    assert [window[0] for window in cut_windows(np.arange(1000), 3, 100)] == [0, 100, 200]


def test_without_a_number_every_window_of_the_text_is_taken() -> None:
    pool = np.arange(1050)
    assert cut_windows(pool, None, 100, b"s") == cut_windows(pool, 10, 100)
    with pytest.raises(ConfigError, match="too short"):
        cut_windows(pool, None, 1051)


def test_too_few_windows_are_refused() -> None:
    with pytest.raises(ConfigError, match="too short"):
        cut_windows(POOL[:1000], 11, 100)


def test_a_seed_depends_on_the_secret_and_on_each_label() -> None:
    seeds = {
        derive_seed(secret, *labels)
        for secret in (b"a", b"b")
        for labels in (("x", "y"), ("xy",), ("x",), ("y", "x"), ("", "xy"), ("xy", ""))
    }
    assert len(seeds) == 12
    assert all(len(seed) == 32 for seed in seeds)


def test_the_pool_is_the_text_and_is_read_from_the_cache_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    text, cache = tmp_path / "text", tmp_path / "cache"
    text.mkdir()
    (text / "a.txt").write_text("one ")
    (text / "b.md").write_text("two")
    source = TextSource(kind="folder", path=str(text))
    pool = token_pool(source, tokenizer, cache=cache)
    assert bytes(pool.tolist()) == b"one two"
    (kept,) = cache.glob("pool-*.npy")
    np.save(kept, pool[:3])
    assert bytes(token_pool(source, tokenizer, cache=cache).tolist()) == b"one"


def test_a_text_that_was_changed_is_read_anew(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The cache would go on with the old one for ever."""
    (tmp_path / "a.txt").write_text("old")
    source = TextSource(kind="folder", path=str(tmp_path))
    assert bytes(token_pool(source, tokenizer, cache=tmp_path / "cache").tolist()) == b"old"
    (tmp_path / "a.txt").write_text("newer")
    assert bytes(token_pool(source, tokenizer, cache=tmp_path / "cache").tolist()) == b"newer"


def test_a_limit_cuts_the_pool_and_has_a_cache_of_its_own(tokenizer: Tokenizer, tmp_path: Path) -> None:
    source = TextSource(kind="docstrings", limit=30)
    assert len(token_pool(source, tokenizer, cache=tmp_path, limit=50)) == 50
    assert len(token_pool(source, tokenizer, cache=tmp_path)) > 1000
    assert len(list(tmp_path.glob("pool-*.npy"))) == 2


def test_no_text_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ConfigError, match="no text"):
        token_pool(TextSource(kind="folder", path=str(tmp_path)), tokenizer)


def test_text_comes_back_from_its_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("naïve café\n")) == "naïve café\n"
    assert tokenizer.encode_all(["ab", "c"]) == [[97, 98], [99]]


@pytest.mark.parametrize("content", [None, "{", "[]", '{"model": 3}'])
def test_a_broken_tokenizer_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: the tokenizer cannot be read"):
        Tokenizer.of(tmp_path)


def test_beginnings_that_were_used_before_are_left_out() -> None:
    taken = cut_beginnings(POOL, 20, 64, b"a")
    assert taken == {piece[:PREFIX] for piece in cut_prompts(POOL, 20, 64, b"a")}
    again = cut_prompts(POOL, 20, 64, b"a", taken=taken)
    assert len(again) == 20
    assert not {piece[:PREFIX] for piece in again} & taken


def test_beginnings_that_were_used_before_come_again_where_there_are_no_others() -> None:
    pool = np.arange(40, dtype=np.int32)
    once = cut_prompts(pool, 10, 4, b"a")
    again = cut_prompts(pool, 10, 4, b"a", taken=once)
    assert len(set(again)) == 10
    assert set(again) & set(once)
