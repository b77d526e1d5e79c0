import math

import pytest

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.accuracy.answers import JudgedItem
from lowbit_ray.measure.accuracy.compare import Comparison, compare
from lowbit_ray.measure.accuracy.items import DomainName
from lowbit_ray.measure.accuracy.scorers import Outcome
from lowbit_ray.rules import load_rules

GATE = load_rules().gate.quality


def judged(
    domain: DomainName,
    rights: str,
    *,
    clusters: str = "",
    tokens: int = 10,
    chance: float = 0.0,
    truncated: bool = False,
) -> list[JudgedItem]:
    """One item a character: 1 right, 0 wrong, - unanswered."""
    outcomes = {"1": Outcome.RIGHT, "0": Outcome.WRONG, "-": None}
    return [
        JudgedItem(
            item_id=f"{domain}-{index}",
            domain=domain,
            cluster=f"{domain}-{clusters[index] if clusters else index}",
            chance=chance,
            level=0,
            outcome=outcomes[right],
            completion_tokens=0 if right == "-" else tokens,
            truncated=truncated,
        )
        for index, right in enumerate(rights)
    ]


def compared(anchor: list[JudgedItem], candidate: list[JudgedItem], **voided: str) -> Comparison:
    return compare(anchor, candidate, GATE, evaluations=2, voided=voided)


def test_the_drop_is_paired_by_item() -> None:
    result = compared(judged("math", "1111000000"), judged("math", "1100100000"))
    (domain,) = result.domains
    assert (domain.anchor_accuracy, domain.candidate_accuracy) == (0.4, 0.3)
    assert domain.drop == pytest.approx(0.1)
    assert (domain.lost, domain.gained) == (2, 1)
    # differences 1, 1, -1 and seven 0; sample variance of mean 0.1
    variance = (2 * 0.9**2 + 1.1**2 + 7 * 0.1**2) / 9
    assert domain.drop_se == pytest.approx(math.sqrt(variance / 10))


def test_a_candidate_that_is_the_anchor_drops_nothing_exactly() -> None:
    side = judged("math", "1101") + judged("code", "0110")
    result = compared(side, side).public
    assert (result.mean_drop, result.mean_drop_se, result.length_shift) == (0, 0, 0)
    assert result.quality.tier == "A"


def test_items_of_one_cluster_count_as_one() -> None:
    anchor, candidate = "11110000", "00000000"
    apart = compared(judged("math", anchor), judged("math", candidate)).domains[0]
    together = compared(
        judged("math", anchor, clusters="aaaabbbb"), judged("math", candidate, clusters="aaaabbbb")
    ).domains[0]
    assert apart.drop_se is not None
    assert together.drop_se is not None
    assert together.drop_se > 2 * apart.drop_se
    assert together.clusters == 2


def test_mean_drop_and_its_error_use_the_same_weights() -> None:
    """lm-evaluation-harness's group errors once did not (PR 3882): unequal domains must not weigh by size."""
    anchor = judged("math", "1" * 40) + judged("code", "1111")
    candidate = judged("math", "1" * 40) + judged("code", "1110")
    result = compared(anchor, candidate)
    by_name = {domain.domain: domain for domain in result.domains}
    assert result.public.mean_drop == pytest.approx((0 + 0.25) / 2)
    assert result.public.mean_drop_se == pytest.approx((by_name["code"].drop_se or 0) / 2)


def test_the_error_comes_from_differences_and_not_from_two_errors() -> None:
    """lm-evaluation-harness issues 1357 and 1390: equal sides differ by nothing, whatever their own errors."""
    side = judged("math", "10" * 20)
    assert compared(side, side).domains[0].drop_se == 0


@pytest.mark.parametrize(("lost", "tier"), [(0, "A"), (3, "A"), (4, "B"), (5, "B"), (6, None)])
def test_the_tier_follows_the_worst_domain(lost: int, tier: str | None) -> None:
    anchor = judged("math", "1" * 100) + judged("code", "1" * 100)
    candidate = judged("math", "0" * lost + "1" * (100 - lost)) + judged("code", "1" * 100)
    result = compared(anchor, candidate).public
    assert result.quality.tier == tier


def test_a_domain_where_the_anchor_guesses_is_not_valid() -> None:
    anchor = judged("knowledge", "1000", chance=0.25) + judged("math", "1111")
    candidate = judged("knowledge", "0000", chance=0.25) + judged("math", "1111")
    result = compared(anchor, candidate)
    assert result.public.quality.valid_domains == 1
    assert result.public.mean_drop == 0
    assert result.domains[0].reason == "the anchor is not above chance"


def test_a_voided_domain_is_left_out_with_its_reason() -> None:
    anchor = judged("code", "1111") + judged("math", "1111")
    candidate = judged("code", "0000") + judged("math", "1111")
    result = compared(anchor, candidate, code="tests leaked")
    assert result.public.quality.tier == "A"
    assert result.domains[0].reason == "voided by the rules: tests leaked"


def test_items_that_the_candidate_leaves_unanswered_cost_the_tier() -> None:
    anchor = judged("code", "1111") + judged("math", "1111")
    candidate = judged("code", "111-") + judged("math", "1111")
    result = compared(anchor, candidate)
    assert result.public.quality.tier is None
    assert result.public.quality.valid_domains == 1
    assert result.domains[0].candidate_unanswered == 1


def test_items_that_the_anchor_leaves_unanswered_cost_the_candidate_nothing() -> None:
    anchor = judged("code", "111-") + judged("math", "1111")
    candidate = judged("code", "0000") + judged("math", "1111")
    result = compared(anchor, candidate)
    assert result.public.quality.tier == "A"
    assert not result.domains[0].valid


def test_no_valid_domain_is_the_organizers_error() -> None:
    with pytest.raises(
        ConfigError, match=r"no accuracy domain is valid.*math: the anchor is not above chance"
    ):
        compared(judged("math", "0000"), judged("math", "1111"))


def test_no_domain_answered_wholly_is_the_candidates_error() -> None:
    with pytest.raises(EngineAnswerError, match="unanswered in every domain, found 1 items"):
        compared(judged("math", "1111"), judged("math", "111-"))


def test_other_items_cannot_be_paired() -> None:
    with pytest.raises(ConfigError, match="different items"):
        compared(judged("math", "11"), judged("math", "111"))


def test_length_shift_is_over_items_that_both_answered() -> None:
    anchor = judged("math", "11", tokens=10) + judged("code", "1-", tokens=100)
    candidate = judged("math", "11", tokens=11) + judged("code", "11", tokens=110)
    assert compared(anchor, candidate).public.length_shift == pytest.approx(0.1)


def test_one_item_has_no_standard_error() -> None:
    assert compared(judged("math", "1"), judged("math", "1")).public.mean_drop_se is None


def test_the_public_part_names_no_domain() -> None:
    side = judged("math", "1111") + judged("code", "1101")
    public = compared(side, side).public.model_dump_json()
    assert "math" not in public
    assert "code" not in public


def test_truncated_answers_are_counted() -> None:
    result = compared(judged("math", "11"), judged("math", "11", truncated=True))
    assert (result.domains[0].anchor_truncated, result.domains[0].candidate_truncated) == (0, 1)
