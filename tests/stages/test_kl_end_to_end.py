"""The KL probe through a whole evaluation, of an engine that only has log-probabilities of what it generates."""

from collections.abc import Iterator

import pytest
from fakes.arena import Arena, Watching
from fakes.bigram import Bigram

from lowbit_ray.evaluate import evaluate
from lowbit_ray.measure.kl import KLResult
from lowbit_ray.records import Record
from lowbit_ray.report.lines import lines_of
from lowbit_ray.report.page import result_page
from lowbit_ray.session import ray_session

pytestmark = pytest.mark.timeout(240)
NOISE = 0.1


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with ray_session(2, local=True):
        yield Arena.build(tmp_path_factory.mktemp("kl"))


@pytest.fixture(scope="module")
def record(arena: Arena) -> Record:
    faults = {"no_prompt_logprobs": True, "no_echo": True}
    submission = arena.submit(arena.candidate("generating", noise=NOISE, faults=faults))
    return evaluate(submission.id, ledger=arena.ledger, settings=arena.settings, watch=Watching())


@pytest.fixture(scope="module")
def kl(record: Record) -> KLResult:
    assert record.result is not None, record.error
    return record.result.kl


def test_the_strongest_method_of_each_side_is_chosen_and_recorded(kl: KLResult) -> None:
    assert kl.method == "generation"
    assert kl.anchor_method == "prompt_logprobs"


def test_k_is_the_tasks_and_the_bound_holds(arena: Arena, kl: KLResult) -> None:
    assert kl.top_k == arena.task.kl.top_k == 100
    assert kl.sequences == arena.task.kl.sequences
    # the closed form: no position can have more than the largest divergence of any token
    assert 0 < kl.kl <= Bigram().kl_to(Bigram(noise=NOISE)).max()


def test_a_sample_was_asked_again_in_another_order(kl: KLResult) -> None:
    assert kl.reorder_sequences > 0
    assert kl.reorder_kl == pytest.approx(0.0, abs=1e-9)


def test_terminal_and_page_print_method_tail_mass_error_and_floor(record: Record, kl: KLResult) -> None:
    (line,) = [line for line in lines_of(record) if line.title == "Drift from BF16"]
    assert f"± {kl.kl_se:.4f}" in line.text
    for words in (
        "top 100 of both sides",
        f"{kl.tail_mass:.2%} of the probability beyond",
        "by generation",
        "noise floor",
        f"{kl.reorder_sequences} sequences in another order",
    ):
        assert words in line.note
    assert line.note in result_page(record)


def test_without_scores_of_given_texts_perplexity_is_left_out_and_the_score_is_not(record: Record) -> None:
    assert record.result is not None
    assert record.result.score > 0
    assert record.result.kl.ppl == {}
    (line,) = [line for line in lines_of(record) if line.title == "Perplexity"]
    assert line.text == "not measured: the engine gives log-probabilities of its own tokens alone"
