"""Engines that cheat, handed in on the engine track: each runs into its rule, and nothing of it is left."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.arena import Arena
from red import CANARY, Submit

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize(
    ("name", "fake", "rule"),
    [
        ("Plain", {"faults": {"answer_cache": True}, "tokens_per_s": 40}, "answer cache"),
        ("Plain", {"faults": {"stream_wrong": True}}, "two faces"),
        ("Plain", {"faults": {"invented_logprobs": True}}, "log-probabilities"),
        ("Plain", {"faults": {"borrowed_logprobs": True}, "noise": 1.5}, "log-probabilities"),
        ("Plain", {"faults": {"text_of_other_ids": True}}, "token counts"),
        ("PaddedTail", {}, "audit"),
        ("HalfTheTokens", {}, "audit"),
        ("HalfTheGauge", {}, "memory accounts"),
        ("HiddenMemory", {}, "memory accounts"),
        ("LateModel", {"second": 2**25}, "second model"),
    ],
    ids=[
        "an answer cache",
        "garbage while timed and the model when probed",
        "invented log-probabilities",
        "the anchor's log-probabilities",
        "other ids than text",
        "a padded tail",
        "half of the tokens, each counted twice",
        "half of the KV gauge",
        "memory in no account",
        "a second model",
    ],
)
def test_a_rule_of_the_engine_is_broken(submit: Submit, name: str, fake: dict[str, Any], rule: str) -> None:
    record = submit("cheats.py", name, **fake)
    assert record.status == "rejected", record.error
    assert record.fault is not None
    assert (record.fault.kind, record.fault.rule) == ("engine rules", rule)
    assert record.fault.seen
    assert record.fault.limit
    assert f"engine rule “{rule}”" in (record.error or "")


@pytest.mark.parametrize(
    ("name", "fake", "words"),
    [
        ("Plain", {"faults": {"wrong_usage": 16}}, "wrong number of tokens"),
        ("Plain", {"faults": {"ignore_min_tokens": True}, "eos_logit": 20}, "wrong number of tokens"),
        ("Plain", {"faults": {"burst": True}}, "withheld and sent in a burst"),
        ("Plain", {"faults": {"heavy_logprobs": True}}, "sum to more than 1"),
        ("Plain", {"faults": {"zero_gauge": True}}, "KV gauge reads 0"),
        ("OtherIds", {}, "not of the vocabulary"),
    ],
    ids=[
        "drafts counted twice",
        "an end in spite of ignore_eos and min_tokens",
        "tokens in a burst",
        "more than all of the probability",
        "a gauge of zero",
        "ids of no vocabulary",
    ],
)
def test_a_wrong_answer_is_no_score(submit: Submit, name: str, fake: dict[str, Any], words: str) -> None:
    record = submit("cheats.py", name, **fake)
    assert record.status == "failed", record.error
    assert record.fault is not None
    assert record.fault.kind == "engine"
    assert words in record.fault.summary


def test_answers_that_no_file_can_hold_are_read_all_the_same(submit: Submit) -> None:
    """Halves of characters in the answers: nothing of ours breaks, and they are wrong answers."""
    record = submit("cheats.py", "HalfCharacters")
    assert record.status == "done", record.error
    assert record.result is not None
    assert record.result.quality.tier is None


@pytest.mark.parametrize("name", ["TellTale", "TellTaleError"])
def test_what_it_was_asked_does_not_come_out_in_its_verdict(submit: Submit, arena: Arena, name: str) -> None:
    """It prints the prompt as the reason of its death, or answers with an error that is called so."""
    record = submit("cheats.py", name)
    assert record.status == "failed"
    log = next(arena.root.glob(f"cache/submissions/{record.id}/logs/timed.log")).read_text()
    assert (CANARY in log.lower()) == (name == "TellTale"), "the engine did say it"
    assert CANARY not in record.to_json().lower()
