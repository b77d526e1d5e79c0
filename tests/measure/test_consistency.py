"""An engine that says one thing and another: each way of asking is held against the others."""

import asyncio
from typing import Any

import pytest
from loads import prompts, time_workload, workload
from served import Served

from lowbit_ray.conduct import ConductLimits
from lowbit_ray.measure.consistency import Consistency, check_consistency, texts_disagree
from lowbit_ray.measure.prompts import Tokenizer
from lowbit_ray.measure.runs import Output

pytestmark = pytest.mark.usefixtures("quick")

LIMITS = ConductLimits()
EOS = {256}


def consistency(served: Served, **faults: Any) -> Consistency:
    """Times eight prompts, then asks four of them and three probes again."""
    served.base["tokens_per_s"] = 600
    served.tell(faults=faults)
    timed = time_workload(served.endpoint, workload(output_len=20, max_concurrency=2)).outputs[:4]
    served.base["tokens_per_s"] = 0
    served.tell(faults=faults)
    return asyncio.run(
        check_consistency(
            served.endpoint,
            {"serve": timed},
            prompts(3, seed=5),
            tokenizer=Tokenizer.of(served.folder),
            eos_ids=EOS,
            top_k=20,
            timeout_s=5,
        )
    )


def rules(result: Consistency) -> list[str]:
    return [breach.rule for breach in result.breaches(LIMITS)]


def test_an_honest_engine_agrees_with_itself(candidate: Served) -> None:
    result = consistency(candidate)
    assert result.self_gap == {"serve": 0.0}
    assert (result.chosen_share, result.timed_tokens) == (0.0, 64)
    assert result.asked_again == result.forced == result.forced_kl == 0.0
    assert rules(result) == []


def test_garbage_while_timed_and_the_model_when_probed(candidate: Served) -> None:
    result = consistency(candidate, stream_wrong=True)
    assert rules(result) == ["two faces"]
    (breach,) = result.breaches(LIMITS)
    assert "workload serve" in str(breach.error)
    assert "expected ≤ 0.25 nats" in str(breach.error)


def test_lists_that_are_not_those_of_the_token_chosen(candidate: Served) -> None:
    result = consistency(candidate, invented_logprobs=True)
    assert "log-probabilities" in rules(result)
    assert result.chosen_share is not None
    assert result.chosen_share > 0.5


def test_a_finished_text_scored_by_another_model(candidate: Served) -> None:
    """The candidate is far from the anchor, and lends its distributions to look near."""
    candidate.base["bigram"] = {"noise": 1.5}
    result = consistency(candidate, borrowed_logprobs=True)
    assert rules(result) == ["log-probabilities"]
    assert result.forced_kl is not None
    assert result.forced_kl > LIMITS.forced_kl
    assert result.chosen_share == result.asked_again == 0.0


def test_values_that_change_from_one_asking_to_the_next(candidate: Served) -> None:
    assert "log-probabilities" in rules(consistency(candidate, order_dependent=True))


def test_an_engine_with_log_probabilities_of_its_own_tokens_alone(candidate: Served) -> None:
    result = consistency(candidate, no_prompt_logprobs=True, no_echo=True)
    assert rules(result) == []
    assert result.forced is result.forced_kl is None
    assert rules(consistency(candidate, no_prompt_logprobs=True, no_echo=True, stream_wrong=True)) == [
        "two faces"
    ]


def test_an_engine_without_ids_is_compared_by_its_text(candidate: Served) -> None:
    assert rules(consistency(candidate, no_token_ids=True)) == []
    assert rules(consistency(candidate, no_token_ids=True, stream_wrong=True)) == ["two faces"]


def test_where_the_model_would_have_ended_nothing_is_compared(candidate: Served) -> None:
    """The timed form forbids the end, so that it says its second choice: no lie."""
    candidate.base["bigram"] = {"eos_logit": 20}
    result = consistency(candidate)
    assert result.self_gap == {"serve": None}
    assert rules(result) == []


def output(text: str, ids: tuple[int, ...] | None) -> Output:
    return Output(prompt=(1,), token_ids=ids, text=text)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("the same", tuple(b"the same")),
        (" the  same", tuple(b"the same")),  # white space at a seam
        ("the same\N{REPLACEMENT CHARACTER}", (*b"the same", 0xC3)),  # half a character at the end
        (
            "caf\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} au",
            tuple("café au".encode()),
        ),  # cut by chunks
        ("the same", (*b"the same", 256)),  # an end that the text leaves out
        ("", ()),
        (
            "a long text, whose last letter was stripped",
            tuple(b"a long text, whose last letter was stripped,"),
        ),
    ],
)
def test_text_and_ids_may_differ_by_what_detokenizing_leaves(
    candidate: Served, text: str, ids: tuple[int, ...]
) -> None:
    assert not texts_disagree([output(text, ids)], Tokenizer.of(candidate.folder))


def test_a_text_of_other_ids_is_seen(candidate: Served) -> None:
    outputs = [output("half of it", tuple(b"half of it and the rest of it")), output("fine", tuple(b"fine"))]
    assert texts_disagree(outputs, Tokenizer.of(candidate.folder)) == 0.5
    assert texts_disagree([output("no ids", None)], Tokenizer.of(candidate.folder)) is None
