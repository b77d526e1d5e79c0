"""Is the same prompt answered faster the second time? An answer cache would be.

Timed prompts are fresh, so a cache of answers gains nothing in one run; it shows in repeats and in a second
evaluation. Some timed prompts are sent again to the same server, as many at once as before. A prefix cache
shortens the prefill, so only the time per token counts.
"""

from __future__ import annotations

from statistics import median

from lowbit_ray.measure.endpoint import Endpoint, connect
from lowbit_ray.measure.load import Extensions, Load, run_load
from lowbit_ray.measure.workload import Timed
from lowbit_ray.rules import Workload, _Frozen

__all__ = ["Replay", "replay"]

FASTER_LIMIT = 0.6
"""Time per token of a repeated prompt over that of its first answer; below it, the answer was remembered."""


class Replay(_Frozen):
    """Timed prompts sent a second time."""

    requests: int
    tpot_ratio: float
    """Median over requests of second / first time per token."""
    same_answers: float | None
    """Share of the requests with the same ids both times; None where the server returns no ids."""
    reason: str | None
    """Why the engine is taken to remember answers."""


async def replay(endpoint: Endpoint, workload: Workload, timed: Timed, *, timeout_s: float) -> Replay:
    """Sends the first `max_concurrency` timed prompts again, all at once."""
    count = min(workload.max_concurrency, len(timed.outputs))
    first = timed.rows[:count]
    load = Load(
        prompts=[output.prompt for output in timed.outputs[:count]],
        output_len=workload.output_len,
        concurrency=count,
        extensions=Extensions(
            min_tokens=timed.run.min_tokens_accepted, return_token_ids=timed.run.token_ids_returned
        ),
    )
    async with connect(endpoint, timeout_s=timeout_s) as session:
        again = (await run_load(session, endpoint, load)).rows
    pairs = list(zip(first, again, strict=True))
    ratio = median([after.tpot_s / before.tpot_s for before, after in pairs if before.tpot_s > 0] or [1.0])
    same = [before.token_ids == after.token_ids for before, after in pairs]
    remembered = ratio < FASTER_LIMIT
    return Replay(
        requests=count,
        tpot_ratio=ratio,
        same_answers=sum(same) / count if timed.run.token_ids_returned else None,
        reason=(
            f"workload {timed.run.name}: prompts sent again take {ratio:.2f} of their time per token, "
            f"less than {FASTER_LIMIT}: answers are remembered"
            if remembered
            else None
        ),
    )
