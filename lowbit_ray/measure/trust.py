"""What makes a timed run untrue: wrong prompts, a busy client, cached prefixes, tokens withheld.

Each check stands for a way in which a public benchmark once showed numbers that were too good.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowbit_ray.errors import EngineAnswerError, InfraError
from lowbit_ray.measure.load import Prompt
from lowbit_ray.measure.runs import WorkloadRun
from lowbit_ray.rules import Workload

__all__ = ["check_prompts", "check_run", "withheld_tokens"]

LEAST_DECODE_SHARE = 0.2
"""Of a workload that is scored by TPOT: below it, most of the time passed before the first token."""
STARVED_MS = 20.0
"""A client that once woke later than this may have seen all tokens at once through no fault of the engine."""


def check_prompts(name: str, workload: Workload, prompts: Sequence[Prompt], others: Sequence[Prompt]) -> None:
    """ValueError where prompts do not have the workload's shape, or `others` (warm-up) hold one of them."""
    lengths = {len(prompt) for prompt in (*prompts, *others)}
    if lengths != {workload.input_len} or len(prompts) != workload.num_prompts:
        raise ValueError(
            f"workload {name} takes {workload.num_prompts} prompts of {workload.input_len} tokens, "
            f"got {len(prompts)} of {sorted(lengths)}"
        )
    if {tuple(prompt) for prompt in others} & {tuple(prompt) for prompt in prompts}:
        raise ValueError(f"workload {name} warms up with its own prompts")


def check_run(run: WorkloadRun, workload: Workload, *, cpu_share_limit: float) -> None:
    """Raises InfraError where the client was the bottleneck, EngineAnswerError for what cannot be believed."""
    where = f"workload {run.name}"
    if run.client_cpu_share > cpu_share_limit:
        raise InfraError(
            "the load client was the bottleneck",
            where=where,
            found=f"{run.client_cpu_share:.2f} of one core",
            expected=f"≤ {cpu_share_limit}",
            remedy="Give the pod more CPUs.",
        )
    if run.prefix_cache_hits:
        raise EngineAnswerError(
            "prompts were found in a prefix cache, though none was sent before",
            where=f"{where}: vllm:prefix_cache_hits",
            found=f"{run.prefix_cache_hits:g} tokens",
            expected=0,
            remedy="Serve without prefix caching.",
        )
    if run.running and run.kv_usage == 0:
        raise EngineAnswerError(
            "the KV gauge reads 0 while requests run",
            where=f"{where}: vllm:kv_cache_usage_perc",
            expected="> 0",
            remedy="Serve with one API server.",
        )
    if workload.metric == "median_tpot_ms":
        _check_pace(run, where)


def _check_pace(run: WorkloadRun, where: str) -> None:
    """A workload that is scored by TPOT has to have one."""
    if run.median_tpot_ms <= 0 and (run.client_lag_ms or 0) > STARVED_MS:
        raise InfraError(
            "the load client got no CPU", where=where, found=f"woke {run.client_lag_ms:.0f} ms late"
        )
    if run.median_tpot_ms <= 0:
        raise EngineAnswerError(
            "the time per output token cannot be true",
            where=where,
            found=run.median_tpot_ms,
            expected="> 0 ms",
        )
    if run.decode_share < LEAST_DECODE_SHARE:
        raise EngineAnswerError(
            "tokens were withheld and sent in a burst",
            where=where,
            found=f"{run.decode_share:.3f} of the time between first and last token",
            expected=f"≥ {LEAST_DECODE_SHARE}",
            remedy="Stream each token as it is made.",
        )


def withheld_tokens(candidate: WorkloadRun, anchor: WorkloadRun, limit: float) -> str | None:
    """Why a gain in TPOT is not believed, None if it is; it may exceed that in whole answers by the factor `limit`.

    An engine that holds its first tokens back has a small TPOT and a large TTFT. Its gain in TPOT then far
    exceeds its gain in the time of whole answers.
    """
    if candidate.median_tpot_ms <= 0:
        return f"workload {candidate.name}: all tokens of an answer come at once"
    tpot = anchor.median_tpot_ms / candidate.median_tpot_ms
    whole = anchor.e2e_ms.p50 / candidate.e2e_ms.p50
    if tpot <= limit * max(whole, 0.0):
        return None
    return (
        f"workload {candidate.name}: time per token is {tpot:.2f} times better than BF16's, whole answers "
        f"{whole:.2f} times: first tokens are held back"
    )
