"""Quality: KL, perplexity and accuracy of the candidate, on the server under its largest checked cap.

Answers are collected while the pod is held; they are scored afterwards, when it has been given back.
"""

from __future__ import annotations

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.accuracy.answers import Answers, JudgedItem, score_sides
from lowbit_ray.measure.accuracy.compare import Comparison, compare
from lowbit_ray.measure.accuracy.lengths import check_lengths
from lowbit_ray.measure.kl import KLResult, measure_kl
from lowbit_ray.measure.perplexity import PerplexityResult, measure_perplexity, scores_no_text
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.questions import inquire
from lowbit_ray.stages.reference import AnchorPart, all_items, ask_harnesses
from lowbit_ray.stages.serving import Server

__all__ = ["Asked", "Scored", "ask_candidate", "score_quality"]


class Asked(_Frozen):
    """What the candidate said; hidden, as it holds answers."""

    kl: KLResult
    perplexity: dict[str, PerplexityResult]
    """By window set; empty where the engine has log-probabilities of what it generates alone."""
    answers: Answers
    harness: tuple[JudgedItem, ...] = ()
    """Outcomes of domains that lm-evaluation-harness asks."""
    reference: str = ""
    """Key of the anchor's reusable part that it was compared with; empty in objects of before it was noted."""


class Scored(_Frozen):
    """The accuracy of both sides, item by item compared; its domains are hidden on the scored split."""

    comparison: Comparison


def ask_candidate(evaluation: Evaluation, server: Server, hidden: Hidden, anchor: AnchorPart) -> Asked:
    """Asks the running candidate for everything; EngineAnswerError where it gives no log-probabilities."""
    task = evaluation.task
    concurrency, timeout_s = task.kl.max_concurrency, task.engine.request_timeout_s
    kl = server.ask(
        inquire(measure_kl, anchor.reference, concurrency=concurrency, timeout_s=timeout_s),
        "KL probe of the candidate",
    )
    perplexity: dict[str, PerplexityResult] = {}
    for name, losses in anchor.losses.items():
        question = inquire(measure_perplexity, losses, concurrency=concurrency, timeout_s=timeout_s)
        try:
            perplexity[name] = server.ask(question, f"perplexity of the candidate: {name}")
        except EngineAnswerError as error:
            if not scores_no_text(error):  # perplexity is shown and not scored
                raise
    answers = server.ask(all_items(evaluation, hidden), "accuracy items of the candidate")
    harness = ask_harnesses(evaluation, server)
    return Asked(kl=kl, perplexity=perplexity, answers=answers, harness=harness)


def score_quality(evaluation: Evaluation, hidden: Hidden, anchor: AnchorPart, asked: Asked) -> Scored:
    """Scores both sides' answers and pairs them; no pod is needed."""
    rules = evaluation.rules
    check_lengths(asked.answers, hidden.source / "tokenizer.json")
    bf16, candidate = score_sides(hidden.items, anchor.spoken.answers, asked.answers)
    comparison = compare(
        (*bf16, *anchor.spoken.harness),
        (*candidate, *asked.harness),
        rules.gate.quality,
        evaluations=evaluation.task.pooled_evaluations(rules),
        voided=rules.voided_tasks,
    )
    return Scored(comparison=comparison)
