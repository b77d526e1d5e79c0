"""An accuracy domain that is a task of lm-evaluation-harness, asked through its API model in a process of its own.

Every document's own result is read from what the harness logs (`--log_samples`), so that candidate and anchor are
paired document by document like any other item; the harness's aggregates and standard errors are not used. The
harness is an extra, `lowbit-ray[lm-eval]`. It speaks TCP, so an engine in a sandbox cannot be asked by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lowbit_ray.engines.spec import FORBIDDEN
from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.accuracy.answers import JudgedItem
from lowbit_ray.measure.accuracy.items import DomainName
from lowbit_ray.measure.accuracy.scorers import Outcome
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.tasks import Domain

__all__ = ["ask_harness"]

PER_ITEM = 4
"""For each item the harness may take this multiple of a request's time limit, its own start included."""


async def ask_harness(
    endpoint: Endpoint,
    name: DomainName,
    domain: Domain,
    *,
    command: Sequence[str],
    concurrency: int,
    timeout_s: float,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[JudgedItem, ...]:
    """The outcome of each of the first `domain.items` documents, in the task's order.

    `command` starts the harness. Raises ConfigError where it cannot be used here, EngineAnswerError where it ends
    without a result; its own words are left out, as they may quote a document.
    """
    plan = domain.lm_eval
    assert plan is not None
    if endpoint.socket is not None or endpoint.door is not None:
        raise ConfigError(
            "lm-evaluation-harness cannot ask an engine in a sandbox",
            where=f"accuracy.domains.{name}.lm_eval",
        )
    arguments = [
        *("run", "--model", "local-chat-completions", "--apply_chat_template", "--log_samples"),
        *("--model_args", _model(endpoint, concurrency, timeout_s), "--tasks", plan.task),
        *("--limit", str(domain.items), "--gen_kwargs", f"max_gen_toks={domain.max_tokens},temperature=0"),
        *(("--include_path", plan.include_path) if plan.include_path else ()),
    ]
    with tempfile.TemporaryDirectory(prefix="lm-eval-") as folder:
        await _run([*command, *arguments, "--output_path", folder], timeout_s * PER_ITEM * domain.items, name)
        items = _read(Path(folder), name, domain)
    if progress is not None:
        progress(len(items), len(items))
    return items


def _model(endpoint: Endpoint, concurrency: int, timeout_s: float) -> str:
    route = endpoint.route("/v1/chat/completions")
    return f"base_url={route},model={endpoint.model},num_concurrent={concurrency},max_retries=1,timeout={timeout_s:g}"


async def _run(command: Sequence[str], limit_s: float, name: DomainName) -> None:
    environment = {key: value for key, value in os.environ.items() if not FORBIDDEN.match(key)}
    environment |= {"OPENAI_API_KEY": "none", "TOKENIZERS_PARALLELISM": "false"}
    nothing = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=nothing, stdout=nothing, stderr=nothing, env=environment
        )
    except OSError as error:
        raise ConfigError(
            f"lm-evaluation-harness cannot be started: {error.strerror}",
            where=f"accuracy.domains.{name}.lm_eval",
            found=command[0],
            remedy="Install lowbit-ray[lm-eval], or set LOWBIT_LM_EVAL_COMMAND.",
        ) from None
    try:
        async with asyncio.timeout(limit_s):
            code = await process.wait()
    except TimeoutError:
        code = None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if code != 0:
        raise EngineAnswerError(
            "lm-evaluation-harness ended without a result",
            where=f"accuracy.domains.{name}.lm_eval",
            found=f"no end within {limit_s:g} s" if code is None else f"exit code {code}",
            expected="exit code 0",
            remedy="Run the same task by hand: the harness is installed as lowbit-ray[lm-eval].",
        )


def _read(folder: Path, name: DomainName, domain: Domain) -> tuple[JudgedItem, ...]:
    plan = domain.lm_eval
    assert plan is not None
    values: dict[tuple[str, int], Any] = {}
    for file in sorted(folder.rglob("samples_*.jsonl")):
        # each task of a group has its file, and numbers its documents by itself
        part = file.stem.removeprefix("samples_").rpartition("_")[0]
        lines = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
        # a task may judge each answer through several filters; the first one counts
        for line in reversed(lines):
            if line.get("filter") == lines[0].get("filter"):
                values[part, line["doc_id"]] = line.get(plan.metric)
    if not values or not all(isinstance(value, int | float) for value in values.values()):
        raise ConfigError(
            "lm-evaluation-harness logged no such metric for each document",
            where=f"accuracy.domains.{name}.lm_eval.metric",
            found=f"{len(values)} documents",
            expected=plan.metric,
        )
    whole = len({part for part, _ in values}) == 1
    places = {key: f"{plan.task}-{key[1]}" if whole else f"{plan.task}-{key[0]}-{key[1]}" for key in values}
    return tuple(
        JudgedItem(
            item_id=f"{name}-{places[key]}",
            domain=name,
            cluster=places[key],
            chance=plan.chance,
            level=0,
            outcome=Outcome.RIGHT if value >= plan.right_from else Outcome.WRONG,
            completion_tokens=0,
            truncated=False,
        )
        for key, value in sorted(values.items())
    )
