"""The audit of timed outputs: honest words pass, every way to skip work shows."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loads import prompts
from served import Served

from lowbit_ray.measure.audit import Audit, AuditLimits, audit_outputs, passes
from lowbit_ray.measure.prompts import Tokenizer
from lowbit_ray.measure.workload import Output
from lowbit_ray.rules import load_rules

pytestmark = pytest.mark.usefixtures("quick")
LIMITS = AuditLimits(median_gap=0.034, min_length_ratio=0.9, max_empty_share=0.25)
EOS = 256
PROMPTS = prompts(8, 12)


def greedy(served: Served, count: int = 20) -> list[Output]:
    """What an engine says to every prompt."""
    return [said(prompt, served.bigram.greedy(prompt[-1], count, forbid=[EOS])) for prompt in PROMPTS]


def said(prompt: tuple[int, ...], ids: list[int] | None, text: str = "") -> Output:
    return Output(prompt=prompt, token_ids=None if ids is None else tuple(ids), text=text)


def audit(anchor: Served, mine: list[Output], theirs: list[Output], **fields: Any) -> Audit:
    values: dict[str, Any] = {
        "tokenizer": Tokenizer.of(anchor.folder),
        "eos_ids": {EOS},
        "samples": 24,
        "seed": b"seed",
        "run": "serve-r0.json",
        "concurrency": 4,
        "timeout_s": 10,
    }
    return asyncio.run(audit_outputs(anchor.endpoint, mine, theirs, **{**values, **fields}))


def test_the_anchors_own_words_have_no_gap(anchor: Served) -> None:
    result = audit(anchor, greedy(anchor), greedy(anchor))
    assert (result.gap, result.gap_median, result.gap_max, result.top1_gap) == (0, 0, 0, 0)
    assert (result.bf16_top1, result.engine_top1, result.length_ratio) == (1, 1, 1)
    assert (result.picked, result.samples, result.empty) == (8, 8, 0)
    assert passes(result, LIMITS) is None


def test_means_and_gaps_are_the_closed_form(anchor: Served, candidate: Served) -> None:
    result = audit(anchor, greedy(candidate), greedy(anchor))
    table = anchor.bigram

    def mean(output: Output) -> float:
        return float(table.score([*output.prompt, *(output.token_ids or ())])[11:].mean())

    mine, theirs = [mean(o) for o in greedy(candidate)], [mean(o) for o in greedy(anchor)]
    gaps = np.subtract(theirs, mine)
    assert result.bf16_mean == pytest.approx(np.mean(theirs), abs=1e-6)
    assert result.engine_mean == pytest.approx(np.mean(mine), abs=1e-6)
    assert result.gap == pytest.approx(gaps.mean(), abs=1e-6)
    assert result.gap_median == pytest.approx(np.median(gaps), abs=1e-6)
    assert result.gap_max == pytest.approx(gaps.max(), abs=1e-6)
    assert result.top1_gap == pytest.approx(1 - (result.engine_top1 or 0), abs=1e-9)


def test_rubbish_fails_by_its_gap(anchor: Served) -> None:
    generator = np.random.default_rng(0)
    rubbish = [said(prompt, generator.integers(97, 122, 20).tolist()) for prompt in PROMPTS]
    result = audit(anchor, rubbish, greedy(anchor))
    reason = passes(result, LIMITS)
    assert reason is not None
    assert "nats per token less likely than its own (median), more than 0.034" in reason


def test_a_length_is_what_comes_before_the_end(anchor: Served) -> None:
    """Filler after the end of the sequence is neither counted nor scored."""
    short = [said(o.prompt, [*(o.token_ids or ())[:8], EOS, *[7] * 11]) for o in greedy(anchor)]
    result = audit(anchor, short, greedy(anchor))
    assert result.length_ratio == pytest.approx(8 / 20)
    reason = passes(result, AuditLimits(median_gap=9, min_length_ratio=0.9, max_empty_share=0.25))
    assert reason == "the timed outputs are 0.400 as long as BF16's (median), less than 0.9"


def test_the_first_end_is_scored_and_nothing_after_it(anchor: Served) -> None:
    ended = [said(o.prompt, [*(o.token_ids or ())[:8], EOS, 3, 3, 3]) for o in greedy(anchor)]
    result = audit(anchor, ended, ended)
    own = [anchor.bigram.score([*o.prompt, *(o.token_ids or ())[:9]])[11:].mean() for o in ended]
    assert result.engine_mean == pytest.approx(np.mean(own), abs=1e-6)


def test_empty_outputs_are_counted_on_both_sides_and_left_out_of_the_samples(anchor: Served) -> None:
    full, nothing = greedy(anchor), [EOS, *[97] * 19]
    mine = [said(o.prompt, nothing) if i < 3 else o for i, o in enumerate(full)]
    theirs = [said(o.prompt, nothing) if i == 0 else o for i, o in enumerate(full)]
    result = audit(anchor, mine, theirs)
    assert (result.empty, result.empty_alone, result.empty_reference) == (3, 2, 1)
    assert (result.picked, result.samples, result.length_ratio_min) == (8, 5, 0)


@pytest.mark.parametrize("blank", [[32] * 20, [10] * 20, [258] * 20])
def test_white_space_and_special_tokens_are_no_text(anchor: Served, blank: list[int]) -> None:
    result = audit(anchor, [said(prompt, blank) for prompt in PROMPTS], greedy(anchor))
    assert (result.empty, result.samples, result.gap) == (8, 0, None)
    reason = passes(result, LIMITS)
    assert reason == "8 of 8 timed outputs are empty where BF16's are not, more than 25%"


def test_both_sides_empty_is_nobodys_fault(anchor: Served) -> None:
    blank = [said(prompt, [EOS, 97, 97]) for prompt in PROMPTS]
    result = audit(anchor, blank, blank)
    assert (result.empty_alone, result.length_ratio) == (0, 1)
    assert passes(result, LIMITS) is None


def test_a_padded_tail_shows_where_the_anchor_has_none(anchor: Served) -> None:
    padded = [said(o.prompt, [*(o.token_ids or ())[:19], EOS, EOS]) for o in greedy(anchor)]
    result = audit(anchor, padded, greedy(anchor))
    assert (result.repeated_eos, result.repeated_eos_alone) == (8, 8)
    assert "repeat the end-of-sequence token" in str(passes(result, LIMITS))


def test_a_habit_of_the_model_is_no_padding(anchor: Served) -> None:
    ended = [said(o.prompt, [*(o.token_ids or ())[:10], EOS, EOS]) for o in greedy(anchor)]
    result = audit(anchor, ended, ended)
    assert (result.repeated_eos, result.repeated_eos_alone) == (8, 0)
    assert passes(result, LIMITS) is None


def test_an_engine_without_ids_is_audited_by_its_text(anchor: Served) -> None:
    texts = [said(o.prompt, None, bytes(o.token_ids or ()).decode()) for o in greedy(anchor)]
    result = audit(anchor, texts, greedy(anchor))
    assert result.retokenized == 8
    assert result.gap == pytest.approx(0, abs=1e-9)


def test_the_draw_is_the_seeds_and_of_the_size_asked_for(anchor: Served) -> None:
    mine = [said(o.prompt, [97] * 20) if i % 2 else o for i, o in enumerate(greedy(anchor))]
    first, again = (audit(anchor, mine, greedy(anchor), samples=4) for _ in range(2))
    assert first == again
    assert first.picked == 4
    others = {audit(anchor, mine, greedy(anchor), samples=4, seed=bytes([n])).gap for n in range(6)}
    assert len(others) > 1


def test_other_prompts_on_the_two_sides_are_refused(anchor: Served) -> None:
    with pytest.raises(ValueError, match="same prompts"):
        audit(anchor, greedy(anchor)[1:], greedy(anchor)[:-1])


@pytest.mark.parametrize("name", ["serve", "interactive", "long_context"])
def test_the_example_passes_with_the_examples_keys(fixtures: Path, name: str) -> None:
    shown = json.loads((fixtures / "record-a553eefea2d24359.json").read_text())["result"]["timed_audit"][name]
    read = Audit(**shown, repeated_eos=0, repeated_eos_alone=0, retokenized=0)
    rules = load_rules().engine.timed_output_audit
    limits = AuditLimits(
        rules.median_gap_limit_nats["qwen3-8b"], rules.min_length_ratio, rules.max_empty_share
    )
    assert passes(read, limits) is None
    assert passes(read.model_copy(update={"gap_median": 0.0341}), limits) is not None
    assert passes(read.model_copy(update={"length_ratio": 0.899}), limits) is not None
    assert passes(read.model_copy(update={"empty_alone": 7}), limits) is not None
    assert passes(read.model_copy(update={"empty_alone": 6}), limits) is None
