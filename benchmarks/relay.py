"""What being shut in costs: the same server with and without the engine track's sandbox, in turns.

    python benchmarks/relay.py [--engine DIR --model DIR] [--turns 5] [--out benchmarks/results/relay.json]

Three ways to one server: `direct`, over the host's loopback; `sandbox`, in bubblewrap and reached by sockets of its own
network (engines/door.py), as both sides of the engine track are; `relay`, what we do not do, for comparison: bytes
copied between a Unix socket and the server by 20 lines of asyncio. Ratios are to `direct` of the same turn, since a
machine's pace wanders, and their median over the turns is kept. On the null server (null_server.py): the ceiling in
tokens a second, and at 50 chunks a second and stream the time per token and the CPU time of client and server side for
a token, which hardly depends on what else the machine does. With `--engine`: the same on a real engine of the track.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from machine import machine

from lowbit_ray.engines.isolation import Enclosure
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import EngineSpec
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.workload import WorkloadRun, run_workload
from lowbit_ray.rules import Workload

HERE = Path(__file__).parent
WAYS = ("direct", "sandbox", "relay")
NULL = Workload(
    description="benchmark",
    input_len=64,
    output_len=250,
    num_prompts=128,
    max_concurrency=64,
    request_rate="inf",
    metric="output_throughput",
    better="higher",
)
REAL = NULL.model_copy(update={"input_len": 16, "output_len": 32, "num_prompts": 4, "max_concurrency": 2})
RELAY = """
import asyncio, sys
async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
async def serve(reader, writer):
    inside, outside = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(copy(reader, outside), copy(inside, writer), return_exceptions=True)
    outside.close()
    writer.close()
async def main():
    server = await asyncio.start_unix_server(serve, sys.argv[1], backlog=1024)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a running server."""

    endpoint: Endpoint
    processes: tuple[psutil.Process, ...]
    """Of the server, and of what lies between."""

    def cpu_s(self) -> float:
        times = [process.cpu_times() for process in self.processes if process.is_running()]
        return sum(one.user + one.system for one in times)


@contextlib.contextmanager
def ways(
    command: tuple[str, ...], folder: Path, scratch: Path, environment: dict[str, str]
) -> Iterator[dict[str, Way]]:
    """The server twice, in a sandbox and not, and a relay before the one that is not."""
    spec = EngineSpec(
        kind="launch",
        device="cpu",
        command=command,
        environment={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **environment},
        folder=folder,
        model_dir=Path(environment.get("LOWBIT_MODEL_DIR", str(folder))),
        start_timeout_s=300,
    )
    shut_in = Enclosure(
        foreign=True,
        required=True,
        programs=(Path(sys.executable),),
        cache_dir=scratch / "cache",
        memory_gib=16,
        processes=1024,
    )
    with contextlib.ExitStack() as stack:
        direct = stack.enter_context(EngineProcess(spec, scratch / "direct.log"))
        enclosed = stack.enter_context(
            EngineProcess(spec.model_copy(update={"enclosure": shut_in}), scratch / "sandbox.log")
        )
        path = str(scratch / "relay")
        relay = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", RELAY, path, str(direct.port)], stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(relay.kill)
        assert relay.stdout is not None
        relay.stdout.readline()
        plain = Endpoint(direct.address, "lowbit")
        yield {
            "direct": Way(plain, tuple(direct.tree())),
            "sandbox": Way(Endpoint(enclosed.address, "lowbit", door=enclosed.door), tuple(enclosed.tree())),
            "relay": Way(replace(plain, socket=path), (*direct.tree(), psutil.Process(relay.pid))),
        }


def measure(way: Way, workload: Workload, vocabulary: int) -> dict[str, float]:
    """One run: what the record's figures are made of, and what it cost for a token."""
    generator = random.SystemRandom()
    prompts = [
        tuple(generator.randrange(100, vocabulary) for _ in range(workload.input_len))
        for _ in range(workload.num_prompts)
    ]
    before = way.cpu_s()
    timed = asyncio.run(
        run_workload(way.endpoint, "benchmark", workload, prompts, timeout_s=600, cpu_share_limit=2)
    )
    run: WorkloadRun = timed.run
    tokens = workload.num_prompts * workload.output_len
    return {
        "output_throughput": run.output_throughput,
        "median_tpot_ms": run.median_tpot_ms,
        "median_ttft_ms": run.ttft_ms.p50,
        "client_cpu_us_per_token": 1e6 * run.client_cpu_s / tokens,
        "server_cpu_us_per_token": 1e6 * (way.cpu_s() - before) / tokens,
    }


def compare(found: dict[str, Way], workload: Workload, turns: int, vocabulary: int) -> dict[str, Any]:
    """All ways in turns, in another order each time; medians, and medians of the ratios within a turn."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    for name in WAYS:
        measure(found[name], workload, vocabulary)  # caches of all kinds
    for _ in range(turns):
        for name in random.SystemRandom().sample(WAYS, len(WAYS)):
            rows[name].append(measure(found[name], workload, vocabulary))
            print(name, rows[name][-1], file=sys.stderr, flush=True)
    out: dict[str, Any] = {}
    for name in WAYS:
        keys = rows[name][0]
        out[name] = {key: round(median(row[key] for row in rows[name]), 3) for key in keys}
        pairs = list(zip(rows[name], rows["direct"], strict=True))
        out[name]["ratio_to_direct"] = {
            key: round(median(mine[key] / theirs[key] for mine, theirs in pairs), 4)
            for key in keys
            if all(theirs[key] for _, theirs in pairs)
        }
    return out


def null(turns: int) -> dict[str, Any]:
    """The ceiling, and a modest pace, on the null server."""
    out: dict[str, Any] = {}
    for name, rate in (("ceiling", 0), ("paced", 50)):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "engine"
            folder.mkdir()
            (folder / "null_server.py").write_text((HERE / "null_server.py").read_text())
            command = (
                sys.executable,
                str(folder / "null_server.py"),
                "--port",
                "{port}",
                "--rate",
                str(rate),
            )
            with ways(command, folder, Path(scratch), {}) as found:
                out[name] = compare(found, NULL, turns, 30_000)
    return out


def real(engine: Path, model: Path, turns: int) -> dict[str, Any]:
    """A real engine of the track."""
    environment = {
        "LOWBIT_MODEL_DIR": str(model),
        "LOWBIT_SERVED_NAME": "lowbit",
        "LOWBIT_MAX_MODEL_LEN": "2048",
        "LOWBIT_CACHE_DIR": "/tmp",
        "OMP_NUM_THREADS": "1",  # threads that wait for each other are slowed down by whatever else runs
    }
    with tempfile.TemporaryDirectory() as scratch:
        command = ("bash", str(engine / "launch.sh"), "serve")
        with ways(command, engine, Path(scratch), environment) as found:
            return {
                "engine": engine.name,
                "workload": REAL.model_dump(),
                **compare(found, REAL, turns, 30_000),
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", type=Path, help="folder with launch.sh")
    parser.add_argument("--model", type=Path, help="folder of the checkpoint that it serves")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "relay.json")
    given = parser.parse_args()
    result = json.loads(given.out.read_text()) if given.out.is_file() else {}
    if given.engine:
        result["real"] = {**machine(), **real(given.engine.resolve(), given.model.resolve(), given.turns)}
    else:
        result["null_server"] = {**machine(), **null(given.turns)}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
