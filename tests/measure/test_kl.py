"""The KL probe on engines whose divergence has an exact value."""

import asyncio
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import pytest
from fakes.bigram import Bigram
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loads import prompts
from served import Served

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.kl import KLResult, Reference, make_reference, measure_kl
from lowbit_ray.measure.logprobs import METHODS, lacks_logprobs
from lowbit_ray.tasks import KLPlan

pytestmark = pytest.mark.usefixtures("quick")
FULL = 260


def reference(anchor: Served, top_k: int = FULL, sequences: int = 6) -> Reference:
    plan = KLPlan(sequences=sequences, prompt_len=12, max_tokens=20, top_k=top_k, max_concurrency=4)
    return asyncio.run(make_reference(anchor.endpoint, prompts(sequences, 12), plan, timeout_s=10))


def probe(served: Served, said: Reference, **fields: Any) -> KLResult:
    return asyncio.run(measure_kl(served.endpoint, said, concurrency=4, timeout_s=10, **fields))


def exact(said: Reference, anchor: Bigram, candidate: Bigram) -> list[float]:
    """Mean divergence of each sequence over the whole vocabulary."""
    table = anchor.kl_to(candidate)
    return [
        float(table[list(text[start - 1 : -1])].mean())
        for text, start in zip(said.texts, said.starts, strict=True)
    ]


def test_with_all_ids_the_estimate_is_the_closed_form(anchor: Served, candidate: Served) -> None:
    said = reference(anchor)
    result = probe(candidate, said)
    sequences = exact(said, anchor.bigram, candidate.bigram)
    assert result.kl == pytest.approx(fmean(sequences), abs=1e-6)
    assert result.kl_median == pytest.approx(median(sequences), abs=1e-6)
    assert result.kl_se == pytest.approx(stdev(sequences) / len(sequences) ** 0.5, abs=1e-6)
    assert (result.sequences, result.tokens, result.top_k) == (6, 120, FULL)
    assert result.tail_mass == pytest.approx(0, abs=1e-6)


@given(top_k=st.integers(1, FULL), noise=st.sampled_from([0.05, 0.3, 1.0]))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_with_any_k_the_estimate_never_exceeds_the_closed_form(
    anchor: Served, candidate: Served, top_k: int, noise: float
) -> None:
    candidate.tell(bigram={"noise": noise})
    said = reference(anchor, top_k, sequences=2)
    result = probe(candidate, said, reorder=0)
    assert 0 < result.kl <= fmean(exact(said, anchor.bigram, Bigram(noise=noise))) + 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_kl_and_is_recorded(
    anchor: Served, candidate: Served, method: str
) -> None:
    said = reference(anchor, 40)
    candidate.tell(
        faults={"no_prompt_logprobs": method != "prompt_logprobs", "no_echo": method == "generation"}
    )
    result = probe(candidate, said)
    assert result.method == method
    assert result.anchor_method == "prompt_logprobs"
    assert result.kl == pytest.approx(probe(candidate.tell(), said).kl, abs=1e-6)


def test_the_noise_floor_of_an_exact_engine_is_zero(anchor: Served) -> None:
    result = probe(anchor, reference(anchor, 40), seed=1)
    assert result.kl == 0
    assert result.reorder_kl == 0


def test_tokens_are_weighted_as_the_spec_says(anchor: Served, candidate: Served) -> None:
    """Sequences of unlike length: the mean over sequences is not that over tokens."""
    anchor.tell(bigram={"eos_logit": 8.5})
    said = reference(anchor)
    lengths = [len(text) - start for text, start in zip(said.texts, said.starts, strict=True)]
    assert len(set(lengths)) > 1
    result = probe(candidate, said)
    sequences = exact(said, Bigram(eos_logit=8.5), candidate.bigram)
    weighted = sum(mean * count for mean, count in zip(sequences, lengths, strict=True)) / sum(lengths)
    assert result.kl_per_token == pytest.approx(weighted, abs=1e-5)
    assert result.kl == pytest.approx(fmean(sequences), abs=1e-5)


def test_a_worse_candidate_has_a_larger_kl(anchor: Served, candidate: Served) -> None:
    said = reference(anchor, 40)
    small = probe(candidate.tell(bigram={"noise": 0.1}), said).kl
    assert probe(candidate.tell(bigram={"noise": 0.4}), said).kl > 4 * small


def test_a_stored_reference_is_the_same_reference(anchor: Served, candidate: Served, tmp_path: Path) -> None:
    said = reference(anchor, 40)
    said.save(tmp_path / "reference.npz")
    read = Reference.load(tmp_path / "reference.npz")
    assert read.texts == said.texts
    assert read.starts == said.starts
    assert probe(candidate, read) == probe(candidate, said)


def test_the_anchors_continuation_is_greedy(anchor: Served) -> None:
    said = reference(anchor, 5)
    for text, start, positions in zip(said.texts, said.starts, said.positions, strict=True):
        assert positions.ids[:, 0].tolist() == list(text[start:])


def test_log_probabilities_that_depend_on_the_order_are_refused(anchor: Served, candidate: Served) -> None:
    said = reference(anchor, 40)
    candidate.tell(faults={"order_dependent": True})
    with pytest.raises(EngineAnswerError, match="depend on the order of requests"):
        probe(candidate, said)


def test_an_evasive_list_does_not_lower_the_kl(anchor: Served, candidate: Served) -> None:
    """Listing unlikely ids leaves the anchor's ids in the dark; the bound then assumes the best it can."""
    said = reference(anchor, 40)
    honest = probe(candidate, said).kl
    evasive = probe(candidate.tell(faults={"evasive_logprobs": True}), said, reorder=0)
    assert evasive.kl > honest
    assert evasive.unlisted > 0.5


def test_no_log_probabilities_is_the_outcome_that_breaks_the_contract(
    anchor: Served, candidate: Served
) -> None:
    said = reference(anchor, 5)
    candidate.tell(faults={"no_logprobs": True})
    with pytest.raises(EngineAnswerError) as caught:
        probe(candidate, said)
    assert lacks_logprobs(caught.value)


def test_an_anchor_that_returns_no_ids_cannot_be_the_reference(anchor: Served) -> None:
    anchor.tell(faults={"no_token_ids": True})
    with pytest.raises(EngineAnswerError, match="no usable token ids"):
        reference(anchor, 5)


def test_one_sequence_has_no_standard_error(anchor: Served) -> None:
    with pytest.raises(ConfigError, match="needs two sequences"):
        reference(anchor, 5, sequences=1)


def test_a_reference_says_nothing_of_its_texts(anchor: Served) -> None:
    said = reference(anchor, 5, sequences=2)
    assert str(said.texts[0][0:3])[1:-1] not in repr(said)
    assert "array" not in repr(said)


def test_float32_on_the_wire_is_close_enough(anchor: Served) -> None:
    said = reference(anchor, 8, sequences=2)
    rows = anchor.bigram.logprobs[list(said.texts[0][said.starts[0] - 1 : -1])]
    assert np.sort(rows, axis=1)[:, ::-1][:, :8] == pytest.approx(said.positions[0].logprobs, abs=2e-6)
