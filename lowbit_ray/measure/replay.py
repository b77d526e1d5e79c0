"""Is a prompt that was asked before answered faster than a fresh one? A cache of answers would be.

Timed prompts are fresh, so that a cache of answers gains nothing within a run; it shows when prompts come again, on
the same server or on a later one of the submission. Prompts asked before and fresh ones of the same shape are sent
in turn, one at a time, in the very form of a timed request: whatever slows the machine down slows both. A prefix
cache shortens the prefill, so the time per token counts. What looks remembered is asked again with other fresh
prompts, and only what stays fast in every round is believed to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import aiohttp

from lowbit_ray.conduct import Breach, ConductLimits
from lowbit_ray.measure.endpoint import Endpoint, connect
from lowbit_ray.measure.load import Extensions, Load, Prompt, negotiate, run_load
from lowbit_ray.measure.stream import Row
from lowbit_ray.rules import Workload, _Frozen

__all__ = ["PAIRS", "Replay", "fresh_needed", "replay"]

PAIRS = 2
"""Prompts of each kind in a round: an honest engine is asked four times in all."""
BEGINNING = 8
"""Tokens of the request that finds out what the server accepts."""


class Replay(_Frozen):
    """Prompts asked a second time, beside fresh ones."""

    requests: int
    """All that were sent."""
    rounds: int
    tpot_ratio: float
    """Median over the pairs of the round that ended it: time per token, asked before / fresh."""

    def breach(self, where: str, limits: ConductLimits) -> Breach | None:
        """Whether answers are remembered."""
        if self.tpot_ratio >= limits.replay_ratio:
            return None
        return Breach(
            rule="answer cache",
            where=where,
            seen=f"prompts asked before take {self.tpot_ratio:.2f} of a fresh prompt's time per token, "
            f"in each of {self.rounds} rounds",
            limit=f"≥ {limits.replay_ratio}",
        )


def fresh_needed(limits: ConductLimits) -> int:
    """How many fresh prompts `replay` may use."""
    return PAIRS * limits.replay_rounds


async def replay(
    endpoint: Endpoint,
    workload: Workload,
    seen: Sequence[Prompt],
    fresh: Sequence[Prompt],
    limits: ConductLimits,
    *,
    timeout_s: float,
) -> Replay:
    """Asks `seen` again, at least one, each beside one of `fresh` (`fresh_needed` of them).

    Errors as `run_load`.
    """
    if not seen or len(fresh) < fresh_needed(limits):
        raise ValueError(f"replay needs a seen prompt and {fresh_needed(limits)} fresh ones")
    ratio = 0.0
    async with connect(endpoint, timeout_s=timeout_s) as session:
        extensions = await negotiate(session, endpoint, fresh[0][:BEGINNING])
        for number in range(1, limits.replay_rounds + 1):
            ratios = []
            for pair in range(PAIRS * (number - 1), PAIRS * number):
                order = [seen[pair % len(seen)], fresh[pair]]
                rows = await _alone(session, endpoint, workload, order[:: -1 if pair % 2 else 1], extensions)
                again, new = rows[:: -1 if pair % 2 else 1]
                ratios.append(_ratio(again, new))
            ratio = median(ratios)
            if ratio >= limits.replay_ratio:
                break
    return Replay(requests=2 * PAIRS * number, rounds=number, tpot_ratio=ratio)


async def _alone(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    workload: Workload,
    prompts: Sequence[Prompt],
    extensions: Extensions,
) -> tuple[Row, ...]:
    load = Load(prompts=prompts, output_len=workload.output_len, concurrency=1, extensions=extensions)
    return (await run_load(session, endpoint, load)).rows


def _ratio(again: Row, new: Row) -> float:
    """Times per token; of whole answers where an engine sends all of one at once."""
    if new.tpot_s > 0:
        return again.tpot_s / new.tpot_s
    return again.e2e_s / new.e2e_s
