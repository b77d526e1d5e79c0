"""Perplexity against the closed form."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from loads import prompts
from served import Served

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.perplexity import AnchorLoss, PerplexityResult, anchor_loss, measure_perplexity

pytestmark = pytest.mark.usefixtures("quick")
WINDOWS = prompts(5, 30)


def loss(anchor: Served) -> AnchorLoss:
    return asyncio.run(anchor_loss(anchor.endpoint, WINDOWS, concurrency=2, timeout_s=10))


def measured(candidate: Served, base: AnchorLoss) -> PerplexityResult:
    return asyncio.run(measure_perplexity(candidate.endpoint, base, concurrency=2, timeout_s=10))


def test_both_perplexities_and_their_difference_are_exact(anchor: Served, candidate: Served) -> None:
    result = measured(candidate, loss(anchor))
    mine = [-candidate.bigram.score(window).mean() for window in WINDOWS]
    theirs = [-anchor.bigram.score(window).mean() for window in WINDOWS]
    excess = np.subtract(mine, theirs)
    assert result.ppl == pytest.approx(np.exp(np.mean(mine)), rel=1e-6)
    assert result.ppl_bf16 == pytest.approx(np.exp(np.mean(theirs)), rel=1e-6)
    assert result.dnll == pytest.approx(excess.mean(), abs=1e-6)
    assert result.dnll_se == pytest.approx(excess.std(ddof=1) / 5**0.5, abs=1e-6)
    assert (result.tokens, result.windows) == (145, 5)


def test_the_anchor_against_itself_has_no_excess(anchor: Served) -> None:
    result = measured(anchor, loss(anchor))
    assert (result.dnll, result.dnll_se) == (0, 0)


def test_a_stored_anchor_part_is_the_same(anchor: Served, candidate: Served, tmp_path: Path) -> None:
    base = loss(anchor)
    base.save(tmp_path / "loss.npz")
    assert measured(candidate, AnchorLoss.load(tmp_path / "loss.npz")) == measured(candidate, base)


def test_echo_gives_the_same_perplexity(anchor: Served, candidate: Served) -> None:
    base = loss(anchor)
    first = measured(candidate, base)
    candidate.tell(faults={"no_prompt_logprobs": True})
    assert measured(candidate, base) == first


def test_an_engine_that_scores_only_its_own_tokens_has_no_perplexity(
    anchor: Served, candidate: Served
) -> None:
    base = loss(anchor)
    candidate.tell(faults={"no_prompt_logprobs": True, "no_echo": True})
    with pytest.raises(EngineAnswerError, match="of its own tokens alone"):
        measured(candidate, base)


@pytest.mark.parametrize("windows", [[], [(1, 2, 3), (1, 2)]])
def test_windows_of_unlike_length_are_refused(anchor: Served, windows: list[tuple[int, ...]]) -> None:
    with pytest.raises(ConfigError, match="one length"):
        asyncio.run(anchor_loss(anchor.endpoint, windows, concurrency=1, timeout_s=10))


def test_one_window_has_no_standard_error(anchor: Served, candidate: Served) -> None:
    base = asyncio.run(anchor_loss(anchor.endpoint, WINDOWS[:1], concurrency=1, timeout_s=10))
    assert measured(candidate, base).dnll_se is None
