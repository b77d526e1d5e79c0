"""What neighbours on a host cost a timed run, and what tensor parallel does, for any number of GPUs.

    python -m benchmarks.gpu.neighbours --model DIR --out OUT [--steps neighbours,starts,clients,parallel] [--minutes 8]
    python -m benchmarks.gpu.neighbours --fake 4 --out OUT       # rehearsal with the tests' fake engine

clients     benchmarks/load.py on the first GPU's engine: our client and `vllm bench serve` in turns.
neighbours  One engine a GPU, all started at once. The interactive and serve workloads run on the first one while 0, 1,
            N/2 and N-1 others run the same in a loop, then alone once more: each ratio stands beside what the lonely
            run gives against itself. The host's CPU share and its copy bandwidth are taken beside.
starts      The interactive workload on servers that are started again and again from one and the same compile cache,
            one a GPU at a time: how far speed scatters from start to start where nothing else differs.
parallel    One engine over 2, then 4 GPUs: accounts against the devices' own count, then the serve workload again
            under its hard cap, a filler on each GPU.

OUT/neighbours.json is written again after each figure, so that a run that is cut off leaves what it had.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from lowbit_ray.engines.accounts import read_startup
from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.device import CudaDevice, DevicePeak, wait_until_clean
from lowbit_ray.engines.filler import Filler
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import EngineSpec, vllm_spec
from lowbit_ray.measure.budget import budget_of, judge
from lowbit_ray.measure.endpoint import Endpoint, connect, get_text
from lowbit_ray.measure.load import Load, run_load
from lowbit_ray.measure.memory import peak_memory
from lowbit_ray.measure.workload import WarmUp, WorkloadRun, efficiency, run_workload
from lowbit_ray.rules import Workload, load_rules
from lowbit_ray.tasks import Task, load_task

WORKLOADS = ("interactive", "serve")
SHORTER = {"interactive": 16, "serve": 32}
"""Requests of a workload where fewer than the rules' give the figure as well."""
COPY_GIB = 0.5
STARTS = 4
"""Of each GPU's server, in the step of that name."""


@dataclass(slots=True)
class Bench:
    """What all steps share."""

    task: Task
    model: Path
    vllm: tuple[str, ...]
    gpus: tuple[str, ...]
    folder: Path
    out: Path
    ends: float
    """By the monotonic clock: no step begins after it."""
    seed: Path | None
    """A compile cache to begin with."""
    result: dict[str, Any] = field(default_factory=dict)

    def workload(self, name: str) -> Workload:
        """The task's workload, with fewer requests where that does."""
        workload = self.task.timed_workloads(load_rules())[name]
        return workload.model_copy(
            update={"num_prompts": min(workload.num_prompts, SHORTER.get(name, 10**9))}
        )

    def spec(self, gpus: tuple[str, ...], name: str, cap: Cap | None = None) -> EngineSpec:
        """vLLM with the rules' flags on these GPUs; on a CPU (fake engines) `gpus` only name it."""
        cuda = self.task.engine.device == "cuda"
        cache = self.folder / "cache" / name
        if self.seed is not None and not cache.is_dir():
            shutil.copytree(self.seed, cache)
        return vllm_spec(
            self.model,
            task=self._eager() if len(gpus) > 1 else self.task,
            rules=load_rules(),
            vllm_command=self.vllm,
            cap=cap,
            max_logprobs=20,
            cache_dir=_made(cache),
            tensor_parallel=len(gpus) if cuda else 0,
            gpus=gpus if cuda else (),
        )

    def _eager(self) -> Task:
        """Without graphs: over several GPUs it is memory that is looked at, and a start takes half as long."""
        arguments = (*self.task.engine.extra_args, "--enforce-eager")
        return self.task.model_copy(
            update={"engine": self.task.engine.model_copy(update={"extra_args": arguments})}
        )

    def keep(self, **found: Any) -> None:
        """Writes what is known by now."""
        self.result |= found
        self.out.write_text(json.dumps(self.result, indent=1) + "\n")


def main() -> int:
    """Parses the command line and runs the steps."""
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    bench = _open(arguments)
    bench.keep(machine=_machine(bench), steps={})
    steps = arguments.steps.split(",")
    with contextlib.ExitStack() as stack:
        engines: list[EngineProcess] = []
        for step in steps:
            if time.monotonic() > bench.ends:
                _say(f"no time left for {step}")
                break
            if step in ALONE:
                stack.close()
                engines = []
                ALONE[step](bench)
            else:
                engines = engines or stack.enter_context(_all_up(bench))
                {"clients": clients, "neighbours": neighbours}[step](bench, engines)
    _say("ended")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.neighbours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, help="folder of the checkpoint")
    parser.add_argument(
        "--tasks", type=Path, help="folder of the task files, as benchmarks.gpu.run writes them"
    )
    parser.add_argument("--task", default="qwen3-8b-shape")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("gpu-work"), help="logs and compile caches")
    parser.add_argument("--steps", default="neighbours,clients,parallel")
    parser.add_argument("--minutes", type=float, default=8.0, help="begin nothing more after those")
    parser.add_argument(
        "--seed",
        type=Path,
        nargs="*",
        default=[],
        help="caches of engines; the first with compiled graphs is used",
    )
    parser.add_argument(
        "--fake", type=int, default=0, metavar="N", help="rehearse with N fake engines on the CPU"
    )
    return parser.parse_args()


def _open(arguments: argparse.Namespace) -> Bench:
    folder = _made(arguments.work.resolve() / "neighbours")
    ends = time.monotonic() + 60 * arguments.minutes
    seed = next((path for path in arguments.seed if (path / "vllm" / "torch_compile_cache").is_dir()), None)
    out = arguments.out.resolve() / "neighbours.json"
    if arguments.fake:
        sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
        from fakes.arena import Arena

        arena = Arena(folder / "arena") if (folder / "arena").is_dir() else Arena.build(folder / "arena")
        gpus = tuple(map(str, range(arguments.fake)))
        return Bench(arena.task, arena.root / "anchor", arena.settings.vllm(), gpus, folder, out, ends, seed)
    import pynvml

    pynvml.nvmlInit()
    gpus = tuple(str(index) for index in range(pynvml.nvmlDeviceGetCount()))
    vllm = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
    task = load_task(arguments.task, arguments.tasks) if arguments.tasks else load_task(arguments.task)
    return Bench(task, arguments.model.resolve(), vllm, gpus, folder, out, ends, seed)


# ---- neighbours


def clients(bench: Bench, engines: list[EngineProcess]) -> None:
    """The load clients against each other on one engine."""
    out = bench.folder / "clients.json"
    command = [sys.executable, str(Path(__file__).parents[1] / "load.py"), "--server", engines[0].address]
    command += ["--model", "lowbit", "--tokenizer", str(bench.model), "--out", str(out)]
    command += ["--input-len", "1024", "--output-len", "256", "--requests", "32", "--concurrency", "32"]
    done = subprocess.run([*command, "--repeats", "2"], check=False, timeout=400, stdout=subprocess.DEVNULL)
    if done.returncode == 0:
        bench.keep(clients=json.loads(out.read_text())["server"])


def neighbours(bench: Bench, engines: list[EngineProcess]) -> None:
    """Speed on the first GPU by the number of others at work."""
    number = len(bench.gpus)
    counts = sorted({0, 1, number // 2, number - 1} & set(range(number)))
    with _clients(number) as pool:
        addresses = [engine.address for engine in engines]
        found: dict[str, Any] = {"start_seconds": [round(engine.start_s, 1) for engine in engines]}
        for name in WORKLOADS:
            workload = bench.workload(name)
            pool.submit(drive, addresses[0], name, workload.model_dump(), warm_up=True).result()
            rows = [_beside(bench, pool, addresses, name, workload, count) for count in (*counts, 0)]
            lonely = rows[0]["efficiency"]
            for row in rows:
                row["ratio_to_lonely"] = round(row["efficiency"] / lonely, 4)
            found[name] = rows
            bench.keep(neighbours=found)


@contextlib.contextmanager
def _all_up(bench: Bench) -> Iterator[list[EngineProcess]]:
    """One engine a GPU, started at the same time."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(bench.gpus)) as threads:
        starting = [
            EngineProcess(bench.spec((gpu,), f"gpu{gpu}"), bench.folder / f"gpu{gpu}.log")
            for gpu in bench.gpus
        ]
        engines = list(threads.map(lambda engine: engine.start(), starting))
        for engine in engines:
            stack.callback(engine.stop)
        _say(f"{len(engines)} engines up after {max(engine.start_s for engine in engines):.0f} s")
        yield engines


def _beside(
    bench: Bench, pool: ProcessPoolExecutor, addresses: list[str], name: str, workload: Workload, count: int
) -> dict[str, Any]:
    """One run on the first engine while `count` others run the same in a loop."""
    stop = bench.folder / "stop"
    stop.unlink(missing_ok=True)
    fields = workload.model_dump()
    others = [pool.submit(loop, address, fields, str(stop)) for address in addresses[1 : count + 1]]
    time.sleep(3 if others else 0)
    try:
        psutil.cpu_percent()
        started = time.time()
        run = WorkloadRun.model_validate(pool.submit(drive, addresses[0], name, fields).result())
        share = psutil.cpu_percent() / 100
        copy = _copy_gib_a_second()
    finally:
        stop.touch()
        passes = [other.result() for other in others]
    row = {
        "neighbours": count,
        "efficiency": efficiency(run, workload),
        "wall_s": round(run.wall_s, 2),
        "seconds": round(time.time() - started, 1),
        "host_cpu_share": round(share, 3),
        "host_copy_gib_per_s": round(copy, 1),
        "neighbours_passes": passes,
    }
    _say(f"{name} beside {count}: {row}")
    return row


def drive(address: str, name: str, fields: dict[str, Any], *, warm_up: bool = False) -> dict[str, Any]:
    """The workload once, in a process of its own; after one pass of its shapes where `warm_up`."""
    workload = Workload.model_validate(fields)
    warm = WarmUp(prompts=_prompts(workload, workload.max_concurrency), max_passes=1) if warm_up else None
    question = run_workload(
        Endpoint(address, "lowbit"),
        name,
        workload,
        _prompts(workload, workload.num_prompts),
        timeout_s=300,
        warm_up=warm,
    )
    return asyncio.run(question).run.model_dump()


def drive_warm(address: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The interactive workload, after one pass of its shapes."""
    return drive(address, "interactive", fields, warm_up=True)


def loop(address: str, fields: dict[str, Any], stop: str) -> int:
    """The workload's shapes again and again until the file `stop` is there; how often."""
    workload = Workload.model_validate({**fields, "num_prompts": fields["max_concurrency"]})
    passes = 0
    while not Path(stop).exists():
        asyncio.run(_pass(Endpoint(address, "lowbit"), workload))
        passes += 1
    return passes


async def _pass(endpoint: Endpoint, workload: Workload) -> None:
    """One load of the workload's shapes; nothing of it is measured."""
    prompts = _prompts(workload, workload.num_prompts)
    async with connect(endpoint, timeout_s=300) as session:
        await run_load(session, endpoint, Load(prompts, workload.output_len, workload.max_concurrency))


def _prompts(workload: Workload, count: int) -> list[tuple[int, ...]]:
    """Random token ids: what they say does not matter to a speed."""
    generator = random.SystemRandom()
    return [tuple(generator.randrange(3, 250) for _ in range(workload.input_len)) for _ in range(count)]


@contextlib.contextmanager
def _clients(number: int) -> Iterator[ProcessPoolExecutor]:
    """A client process for each engine, ready before anything is timed."""
    with ProcessPoolExecutor(number, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(abs, range(4 * number)))
        yield pool


def _copy_gib_a_second() -> float:
    """How fast one core copies memory right now."""
    source = np.ones(int(COPY_GIB * 2**30), np.uint8)
    target = np.empty_like(source)
    np.copyto(target, source)
    started = time.perf_counter()
    np.copyto(target, source)
    return COPY_GIB / (time.perf_counter() - started)


# ---- starts


def starts(bench: Bench) -> None:
    """Speed of the interactive workload on each of several starts a GPU, all with that GPU's compile cache."""
    workload = bench.workload("interactive").model_copy(update={"num_prompts": 6})
    fields, found = workload.model_dump(), dict[str, Any]({gpu: [] for gpu in bench.gpus})
    with _clients(len(bench.gpus)) as pool:
        for _ in range(STARTS):
            if time.monotonic() > bench.ends:
                return
            with _all_up(bench) as engines:
                runs = list(
                    pool.map(drive_warm, [engine.address for engine in engines], [fields] * len(engines))
                )
                for gpu, engine, run in zip(bench.gpus, engines, runs, strict=True):
                    row = {
                        "efficiency": efficiency(WorkloadRun.model_validate(run), workload),
                        "start_seconds": round(engine.start_s, 1),
                        "cores": sorted({one.cpu_num() for one in engine.tree()}),
                    }
                    found[gpu].append(row)
                    _say(f"start on {gpu}: {row}")
            bench.keep(starts=found)


# ---- tensor parallel


def parallel(bench: Bench) -> None:
    """One engine over several GPUs: what it says that it needs, what the devices count, and the hard cap."""
    found: dict[str, Any] = {}
    for ranks in (2, 4):
        if ranks <= len(bench.gpus) and time.monotonic() < bench.ends and bench.task.engine.device == "cuda":
            found[str(ranks)] = _over(bench, bench.gpus[:ranks])
            bench.keep(parallel=found)


def _over(bench: Bench, gpus: tuple[str, ...]) -> dict[str, Any]:
    devices = tuple(CudaDevice(gpu) for gpu in gpus)
    for device in devices:
        wait_until_clean(device)
    name, total = f"tp{len(gpus)}", sum(device.total_gib for device in devices)
    runs: dict[str, WorkloadRun] = {}
    with (
        _clients(1) as pool,
        DevicePeak(devices) as peak,
        EngineProcess(bench.spec(gpus, name), bench.folder / f"{name}.log") as engine,
    ):
        _say(f"{name} up after {engine.start_s:.0f} s")
        startup = read_startup(engine.log(), asyncio.run(_metrics(engine)))
        for workload in WORKLOADS:
            fields = bench.workload(workload).model_dump()
            runs[workload] = WorkloadRun.model_validate(
                pool.submit(drive, engine.address, workload, fields, warm_up=True).result()
            )
        by_gpu = [round(device.used_gib(), 3) for device in devices]
    workload = bench.workload("serve")
    memory = peak_memory(startup, runs["serve"], workload, device_peak_gib=peak.peak_gib)
    row: dict[str, Any] = {
        "start_seconds": round(engine.start_s, 1),
        "startup": startup.model_dump(mode="json"),
        "efficiency": {name: efficiency(run, bench.workload(name)) for name, run in runs.items()},
        "peak": memory.model_dump(),
        "used_gib_by_gpu": by_gpu,
    }
    _say(f"{name}: {json.dumps(row)}")
    bench.keep(**{f"parallel-{len(gpus)}": row})
    return row | {"capped": _capped(bench, gpus, devices, runs["serve"], memory.peak_gib, total)}


def _capped(
    bench: Bench,
    gpus: tuple[str, ...],
    devices: tuple[CudaDevice, ...],
    full: WorkloadRun,
    peak_gib: float,
    total_gib: float,
) -> dict[str, Any]:
    """The serve workload again under its cap, shared out evenly."""
    rules, workload = load_rules(), bench.workload("serve")
    for device in devices:
        wait_until_clean(device)
    cap = Cap.of_peak(peak_gib, rules=rules, total_gib=total_gib, devices=len(gpus))
    name = f"tp{len(gpus)}"
    with contextlib.ExitStack() as stack:
        fillers = [stack.enter_context(Filler(gpu, cap.cap_gib / len(gpus))) for gpu in gpus]
        pool = stack.enter_context(_clients(1))
        log = bench.folder / f"{name}-capped.log"
        engine = stack.enter_context(EngineProcess(bench.spec(gpus, name, cap), log))
        capped = WorkloadRun.model_validate(
            pool.submit(drive, engine.address, "serve", workload.model_dump(), warm_up=True).result()
        )
        left = [round(filler.left_gib, 3) for filler in fillers]
    run = judge(budget_of(peak_gib, rules.engine, len(gpus)), full, capped, workload, rules.engine)
    return {"left_gib_by_gpu": left, **run.model_dump()}


async def _metrics(engine: EngineProcess) -> str:
    endpoint = Endpoint(engine.address, engine.spec.served_name)
    async with connect(endpoint, timeout_s=60) as session:
        return await get_text(session, endpoint, "/metrics") or ""


ALONE = {"starts": starts, "parallel": parallel}
"""Steps that start engines of their own."""


def _machine(bench: Bench) -> dict[str, Any]:
    fake = bench.task.engine.device != "cuda"
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpus": [] if fake else [CudaDevice(gpu).identity().name for gpu in bench.gpus],
        "engines": "fake" if fake else "vllm",
        "cpus": len(os.sched_getaffinity(0)),
        "task": bench.task.id,
        "model": bench.model.name,
    }


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)  # a script's progress


if __name__ == "__main__":
    sys.exit(main())
