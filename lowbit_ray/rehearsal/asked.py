"""Each check that asks the running engine: one coroutine, one finding with what was seen and what to change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from lowbit_ray.doctor.finding import Finding
from lowbit_ray.measure.accuracy.run import collect_answers
from lowbit_ray.measure.consistency import check_consistency, texts_disagree
from lowbit_ray.measure.divergence import token_divergence
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.kl import REORDER_LIMIT
from lowbit_ray.measure.logprobs import Question, ask, probe
from lowbit_ray.measure.replay import fresh_needed, replay
from lowbit_ray.measure.runs import Output
from lowbit_ray.measure.workload import Timed, WarmUp, run_workload
from lowbit_ray.rehearsal.material import Material
from lowbit_ray.tasks import Task

__all__ = ["ask_chat", "ask_logprobs", "ask_order", "ask_replay", "ask_same", "time_one"]

SAMPLES = 2
"""Timed outputs of each workload that are asked again."""


async def time_one(
    endpoint: Endpoint, name: str, material: Material, task: Task
) -> tuple[Timed, list[Finding]]:
    """A workload of the task's shape, few requests: exact lengths, usage, a stream that is one."""
    workload = material.workloads[name]
    prompts = material.fresh(workload.num_prompts + 1, workload.input_len)
    timed = await run_workload(
        endpoint,
        name,
        workload,
        prompts[1:],
        timeout_s=task.engine.request_timeout_s,
        warm_up=WarmUp(prompts[:1], max_passes=1),
    )
    run = timed.run
    seen = (
        f"{run.requests} × {workload.input_len} + {workload.output_len} tokens, all of the exact length; "
        f"{run.output_throughput:.1f} tok/s, {run.median_tpot_ms:.1f} ms a token"
    )
    found = [Finding(what=name, level="good", found=seen)]
    if not run.token_ids_returned:
        found.append(
            Finding(
                what="token ids",
                level="warning",
                found="streams carry text alone; what was said is read from the text",
                remedy="Send `token_ids` in each chunk where the request has `return_token_ids`.",
            )
        )
    disagree = texts_disagree(timed.outputs, material.tokenizer)
    if disagree is not None and disagree > task.conduct.text_share:
        found.append(
            Finding(
                what="token counts",
                level="bad",
                found=f"{disagree:.0%} of the outputs have a text that is not that of their ids",
                remedy="`text` must be the decoded `token_ids` of the same chunks.",
            )
        )
    return timed, found


async def ask_logprobs(endpoint: Endpoint, material: Material, task: Task) -> list[Finding]:
    """Which kinds of log-probabilities there are: without any the score is 0."""
    top_k, timeout_s = task.kl.top_k, task.engine.request_timeout_s
    method = await probe(endpoint, material.probes[0], top_k, timeout_s=timeout_s)
    found = [Finding(what="log-probabilities", level="good", found=f"top {top_k} by token id, by {method}")]
    if method == "generation":
        found.append(
            Finding(
                what="perplexity",
                level="warning",
                found="no log-probabilities of a given text: it will be left out, the score does not need it",
                remedy="Answer `prompt_logprobs`, or `echo` with `logprobs`.",
            )
        )
    return found


async def ask_order(endpoint: Endpoint, material: Material, task: Task) -> list[Finding]:
    """The same texts in two orders: an answer may not depend on what was asked before it."""
    top_k, timeout_s = task.kl.top_k, task.engine.request_timeout_s
    method = await probe(endpoint, material.probes[0], top_k, timeout_s=timeout_s)
    questions = [Question(tuple(text), len(text) - min(8, len(text) - 1)) for text in material.probes]
    first, second = [
        await ask(
            endpoint,
            questions,
            top_k,
            method=method,
            concurrency=concurrency,
            timeout_s=timeout_s,
            order=order,
        )
        for concurrency, order in ((len(questions), None), (1, list(reversed(range(len(questions))))))
    ]
    apart = fmean(float(token_divergence(a, b).mean()) for a, b in zip(first, second, strict=True))
    good = apart <= REORDER_LIMIT
    return [
        Finding(
            what="order",
            level="good" if good else "bad",
            found=f"{apart:.4f} nats a token between two orders of the same texts (limit {REORDER_LIMIT})",
            remedy="" if good else "Serve without prefix caching; nothing may remain of an earlier request.",
        )
    ]


async def ask_same(
    endpoint: Endpoint,
    material: Material,
    task: Task,
    timed: Mapping[str, Sequence[Output]],
    ends: Collection[int],
) -> list[Finding]:
    """What was said while timed, asked again as a probe."""
    result = await check_consistency(
        endpoint,
        {name: outputs[:SAMPLES] for name, outputs in timed.items()},
        material.probes[:SAMPLES],
        tokenizer=material.tokenizer,
        eos_ids=ends,
        top_k=task.kl.top_k,
        timeout_s=task.engine.request_timeout_s,
    )
    breaches = result.breaches(task.conduct)
    if not breaches:
        gaps = [gap for gap in result.self_gap.values() if gap is not None]
        seen = f"timed tokens are {max(gaps, default=0.0):.3f} nats below the likeliest when probed"
        return [Finding(what="one face", level="good", found=seen)]
    return [
        Finding(
            what=breach.rule,
            level="bad",
            found=f"{breach.where}: {breach.seen} (limit {breach.limit})",
            remedy="Serve every request with the same weights and the same kernels, however it is asked.",
        )
        for breach in breaches
    ]


async def ask_replay(
    endpoint: Endpoint, material: Material, task: Task, seen: Sequence[Output], name: str
) -> list[Finding]:
    """Whether a prompt that comes again is answered from memory."""
    workload = material.workloads[name]
    again = await replay(
        endpoint,
        workload,
        [output.prompt for output in seen],
        material.fresh(fresh_needed(task.conduct), workload.input_len),
        task.conduct,
        timeout_s=task.engine.request_timeout_s,
    )
    breach = again.breach(f"workload {name}", task.conduct)
    return [
        Finding(
            what="answer cache",
            level="bad" if breach else "good",
            found=f"a prompt that comes again takes {again.tpot_ratio:.2f} of a fresh one's time per token",
            remedy="Switch off every cache of answers." if breach else "",
        )
    ]


async def ask_chat(endpoint: Endpoint, material: Material, task: Task) -> list[Finding]:
    """Some items of each domain over /v1/chat/completions."""
    answers = await collect_answers(
        endpoint,
        material.items,
        task.accuracy,
        timeout_s=task.engine.request_timeout_s,
        template_arguments=task.accuracy.chat_template_arguments,
    )
    failed = [answer.error for answer in answers.answers if answer.error is not None]
    if failed:
        return [
            Finding(
                what="chat",
                level="bad",
                found=f"{len(failed)} of {len(answers.answers)} items have no answer: {failed[0]}",
                remedy="Answer /v1/chat/completions with choices[0].message.content and usage.",
            )
        ]
    empty = sum(not answer.text.strip() for answer in answers.answers)
    return [
        Finding(
            what="chat",
            level="warning" if empty else "good",
            found=f"{len(answers.answers)} items answered, {empty} of them with nothing",
            remedy="Look at the chat template and at where answers end." if empty else "",
        )
    ]
