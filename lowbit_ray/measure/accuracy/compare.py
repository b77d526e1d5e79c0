"""Paired accuracy of a candidate and its anchor: the same items, item by item.

Per domain, drop = mean(anchor right − candidate right) over the items of all pooled evaluations, with the
cluster-robust standard error of that mean (items that share a passage or a fact are one cluster).

    mean_drop     = Σ_k w_k · drop_k,  SE² = Σ_k w_k² · SE(drop_k)²,  w_k = 1 / number of valid domains

The weights of both are one object. A domain is valid where both sides answered all items and the anchor is
above chance. A domain that the candidate did not answer wholly would be a way round its drop; so that leaves
no tier at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lowbit_ray.errors import ConfigError, EngineAnswerError, LowbitError
from lowbit_ray.measure.accuracy.answers import JudgedItem
from lowbit_ray.measure.accuracy.items import DomainName
from lowbit_ray.rules import QualityGate
from lowbit_ray.stats import clustered_standard_error

__all__ = ["AccuracyResult", "Comparison", "DomainResult", "Quality", "Tier", "compare"]

Tier = Literal["A", "B"]
_ROUNDING = 1e-9
"""A drop of exactly the margin passes, whatever its last binary digit."""


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Quality(_Result):
    """The accuracy gate, as the record shows it."""

    tier: Tier | None
    """Best tier whose margin no valid domain's drop exceeds; None for none."""
    valid_domains: int


class AccuracyResult(_Result):
    """What the public record may hold."""

    quality: Quality
    mean_drop: float
    """Mean over valid domains of anchor accuracy − candidate accuracy, a fraction."""
    mean_drop_se: float | None
    """Its standard error; None where a valid domain has fewer than two clusters."""
    length_shift: float
    """Candidate's generated tokens / anchor's − 1."""
    evaluations: int
    """Evaluations pooled."""
    items: int
    """Items asked of each side."""


class DomainResult(_Result):
    """One domain; for a hidden split it stays out of the public record."""

    domain: DomainName
    items: int
    clusters: int
    anchor_accuracy: float
    candidate_accuracy: float
    drop: float
    drop_se: float | None
    chance: float
    """Mean chance level of the items."""
    lost: int
    """Items that the anchor has right and the candidate wrong."""
    gained: int
    """Items that the candidate has right and the anchor wrong."""
    anchor_unanswered: int
    candidate_unanswered: int
    anchor_truncated: float
    """Share of the anchor's answers that ended at max_tokens."""
    candidate_truncated: float
    valid: bool
    reason: str | None
    """Why it is not valid."""


class Comparison(_Result):
    """The public result, and the domains behind it."""

    public: AccuracyResult
    domains: Annotated[tuple[DomainResult, ...], Field(repr=False)]


def compare(
    anchor: Sequence[JudgedItem],
    candidate: Sequence[JudgedItem],
    gate: QualityGate,
    *,
    evaluations: int,
    voided: Mapping[str, str] | None = None,
) -> Comparison:
    """Pairs the items of all pooled evaluations.

    `voided` names domains that the rules leave out, with the reason. Raises ConfigError where the two sides
    were asked different items or no domain is valid, EngineAnswerError where that is so because the
    candidate answers no domain wholly.
    """
    if [judged.item_id for judged in anchor] != [judged.item_id for judged in candidate]:
        raise ConfigError("anchor and candidate were asked different items", where="accuracy")
    pairs: dict[DomainName, list[tuple[JudgedItem, JudgedItem]]] = {}
    for left, right in zip(anchor, candidate, strict=True):
        pairs.setdefault(left.domain, []).append((left, right))
    domains = tuple(_domain(name, pairs[name], (voided or {}).get(name)) for name in pairs)
    valid = [domain for domain in domains if domain.valid]
    if not valid:
        raise _no_valid_domain(domains)
    weights = {domain.domain: 1 / len(valid) for domain in valid}
    # items that the anchor could not answer either are not the candidate's fault
    complete = all(domain.candidate_unanswered == 0 for domain in domains if domain.anchor_unanswered == 0)
    return Comparison(
        public=AccuracyResult(
            quality=Quality(tier=_tier(valid, gate) if complete else None, valid_domains=len(valid)),
            mean_drop=sum(weights[domain.domain] * domain.drop for domain in valid),
            mean_drop_se=_weighted_error(valid, weights),
            length_shift=_length_shift(anchor, candidate),
            evaluations=evaluations,
            items=len(anchor),
        ),
        domains=domains,
    )


def _domain(
    name: DomainName, pairs: Sequence[tuple[JudgedItem, JudgedItem]], voided: str | None
) -> DomainResult:
    count = len(pairs)
    differences = [float(left.right) - float(right.right) for left, right in pairs]
    clusters = [left.cluster for left, _ in pairs]
    anchor_accuracy = sum(left.right for left, _ in pairs) / count
    candidate_accuracy = sum(right.right for _, right in pairs) / count
    chance = sum(left.chance for left, _ in pairs) / count
    missing = [sum(pair[side].outcome is None for pair in pairs) for side in (0, 1)]
    reason = None
    if voided is not None:
        reason = f"voided by the rules: {voided}"
    elif any(missing):
        reason = f"unanswered items: {missing[0]} by the anchor, {missing[1]} by the candidate"
    elif anchor_accuracy <= chance:
        reason = "the anchor is not above chance"
    return DomainResult(
        domain=name,
        items=count,
        clusters=len(set(clusters)),
        anchor_accuracy=anchor_accuracy,
        candidate_accuracy=candidate_accuracy,
        drop=sum(differences) / count,
        drop_se=clustered_standard_error(differences, clusters),
        chance=chance,
        lost=differences.count(1.0),
        gained=differences.count(-1.0),
        anchor_unanswered=missing[0],
        candidate_unanswered=missing[1],
        anchor_truncated=sum(left.truncated for left, _ in pairs) / count,
        candidate_truncated=sum(right.truncated for _, right in pairs) / count,
        valid=reason is None,
        reason=reason,
    )


def _no_valid_domain(domains: Sequence[DomainResult]) -> LowbitError:
    unanswered = sum(domain.candidate_unanswered for domain in domains)
    if unanswered and not any(domain.anchor_unanswered for domain in domains):
        return EngineAnswerError(
            "accuracy items stay unanswered in every domain",
            where="accuracy",
            found=f"{unanswered} items",
            expected=0,
        )
    reasons = "; ".join(f"{domain.domain}: {domain.reason}" for domain in domains)
    return ConfigError("no accuracy domain is valid", where="accuracy", found=reasons or "no items")


def _tier(valid: Sequence[DomainResult], gate: QualityGate) -> Tier | None:
    worst = max(domain.drop for domain in valid)
    if worst <= gate.margins.a + _ROUNDING:
        return "A"
    return "B" if worst <= gate.margins.b + _ROUNDING else None


def _weighted_error(valid: Sequence[DomainResult], weights: Mapping[DomainName, float]) -> float | None:
    squares = 0.0
    for domain in valid:
        if domain.drop_se is None:
            return None
        squares += (weights[domain.domain] * domain.drop_se) ** 2
    return math.sqrt(squares)


def _length_shift(anchor: Sequence[JudgedItem], candidate: Sequence[JudgedItem]) -> float:
    """Over the items that both sides answered, voided domains included: lengths need no right answer."""
    answered = [
        (left.completion_tokens, right.completion_tokens)
        for left, right in zip(anchor, candidate, strict=True)
        if left.outcome is not None and right.outcome is not None
    ]
    reference = sum(tokens for tokens, _ in answered)
    if reference == 0:
        raise ConfigError("the anchor generated no token", where="accuracy: length_shift")
    return sum(tokens for _, tokens in answered) / reference - 1
