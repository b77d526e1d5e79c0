"""What others ran into with log-probabilities, where it bears on how the stages are laid out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from lowbit_ray.checkpoint.sealed import seal_record
from lowbit_ray.engines.actor import Started
from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.footprint import Footprint
from lowbit_ray.engines.spec import vllm_spec
from lowbit_ray.measure.prompts import Tokenizer
from lowbit_ray.measure.runs import Percentiles, WorkloadRun
from lowbit_ray.measure.workload import Timed, run_workload
from lowbit_ray.rules import Workload, load_rules
from lowbit_ray.stages import efficiency, serving
from lowbit_ray.stages.build import Built
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.questions import Inquiry
from lowbit_ray.tasks import Task, list_tasks, load_task

VOCABULARY = {"qwen3-8b": 151_936, "qwen35-27b": 248_320}
"""Of the models' configurations."""
BYTES = 6
"""Of memory for each token and each word of the vocabulary: logits in BF16, log-softmax in float32."""
CHUNK = 1024
"""Rows that vLLM's V2 runner takes at a time, in 0.25 to 0.33."""
GPU_TASKS = [name for name in list_tasks() if load_task(name).engine.device == "cuda"]
FLAT = Percentiles(mean=1, p50=1, p90=1, p95=1, p99=1, max=1)
LOOK = Footprint(processes=1, host_gib=1, read_gib=1, weight_files=0, peers=0, unroutable=None)


class Pod:
    """Notes what is asked of the engine, and answers as a server without accounts would be measured."""

    def __init__(self) -> None:
        self.asked: list[Inquiry[Any]] = []

    def call(self, method: str, *arguments: Any, watch: object = None, limit_s: float = 0) -> Any:
        if method in {"ask", "ask_watched"}:
            self.asked.append(arguments[0])
        answers: dict[str, Any] = {
            "start": Started(start_s=1.0, isolation=None),
            "startup": (None, "a log"),
            "footprint": LOOK,
            "device_peak_gib": 8.0,
        }
        return (_timed(arguments[0]), 0.0) if method == "ask_watched" else answers[method]


def _timed(question: Inquiry[Timed]) -> Timed:
    name, workload = cast("tuple[str, Workload]", question.arguments[:2])
    run = WorkloadRun(
        name=name,
        output_throughput=1,
        median_tpot_ms=1,
        ttft_ms=FLAT,
        tpot_ms=FLAT,
        itl_ms=FLAT,
        e2e_ms=FLAT,
        requests=workload.num_prompts,
        mean_input_len=workload.input_len,
        mean_output_len=workload.output_len,
        wall_s=1,
        decode_share=1,
        client_cpu_s=0,
        client_cpu_share=0,
        kv_usage=None,
        running=None,
        prefix_cache_hits=None,
        token_ids_returned=False,
        min_tokens_accepted=False,
        warm_up_passes=1,
    )
    return Timed(run, (), ())


def test_no_log_probability_is_asked_before_the_peaks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take GiB that no memory profile has seen; the peaks belong to a server that was only timed until then."""
    (tmp_path / "config.json").write_text('{"vocab_size": 260}')
    task = load_task("smollm2-135m")
    evaluation = Evaluation(
        task=task,
        rules=load_rules(),
        **dict.fromkeys(("submission", "ledger", "settings", "tenure", "watch")),  # type: ignore[arg-type]
    )
    monkeypatch.setattr(Evaluation, "seed", lambda self, *labels: "/".join(labels).encode())
    pool = np.random.default_rng(0).integers(0, 250, 60_000).astype(np.int32)
    hidden = Hidden(evaluation, tmp_path, cast("Tokenizer", None), pool, (), {}, ())
    pod = Pod()
    built = Built.model_construct(candidate=seal_record(tmp_path, "a folder", ()), engine=None)
    server = serving.Server(evaluation, built, cast("Any", pod), "candidate", "timed", None, 1.0)
    side = efficiency.time_side(evaluation, server, hidden)
    assert {peak.peak_gib for peak in side.peaks.values()} == {8.0}
    assert len(pod.asked) == 3 * task.timed_repeats(load_rules())
    assert all(question.measure is run_workload for question in pod.asked)


def longest_scored(task: Task) -> int:
    """Tokens of the longest text that is scored whole under a cap: the engine takes one request's at a time."""
    windows = (plan.window_len for plan in task.perplexity.values())
    return max(task.kl.prompt_len + task.kl.max_tokens, *windows)


@pytest.mark.parametrize("name", GPU_TASKS)
def test_what_log_probabilities_take_is_budgeted(name: str) -> None:
    """Under a cap the engine plans for the budget; the context's room is what is left for this."""
    needed = longest_scored(load_task(name)) * VOCABULARY[name] * BYTES
    assert needed < load_rules().engine.context_gib * 2**30


@pytest.mark.parametrize("name", GPU_TASKS)
def test_a_chunk_of_the_v2_runner_fits_as_well(name: str) -> None:
    assert CHUNK * VOCABULARY[name] * BYTES < load_rules().engine.context_gib * 2**30


@pytest.mark.parametrize("name", list_tasks())
def test_prefill_is_chunked_alike_on_both_sides_and_under_every_cap(name: str, tmp_path: Path) -> None:
    task, rules = load_task(name), load_rules()
    cap = Cap(budget_gib=8, cap_gib=12, total_gib=140, weights_gib=1)
    chunks = set()
    for side, limit in (("anchor", None), ("candidate", None), ("candidate", cap)):
        spec = vllm_spec(
            tmp_path / side,
            task=task,
            rules=rules,
            vllm_command=("vllm", "serve"),
            cap=limit,
            max_logprobs=task.kl.top_k,
            cache_dir=tmp_path,
            tensor_parallel=task.pod.tensor_parallel,
            gpus=tuple(str(index) for index in range(task.pod.tensor_parallel)),
        )
        words = spec.command
        chunks.add(
            (
                words[words.index("--max-num-batched-tokens") + 1],
                words[words.index("--max-num-seqs") + 1],
                words[words.index("--dtype") + 1],
                "--no-enable-prefix-caching" in words,
                "--logprobs-mode" in words,
            )
        )
    assert len(chunks) == 1
    assert next(iter(chunks))[-2:] == (True, False)
