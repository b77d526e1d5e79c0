"""One engine through everything that the cluster will do with it, on this machine and in minutes.

    folder → checkpoint → start in a sandbox → workloads → probes → chat → memory → start again under its cap → end

The same code as an evaluation's, with few requests and without an anchor: what needs BF16 beside it (KL, drops in
accuracy, the audit, speed gains) is not said here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lowbit_ray.checkpoint.fetch import seal
from lowbit_ray.checkpoint.sealed import Sealed, discard
from lowbit_ray.doctor.finding import Finding
from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.device import CpuDevice, CudaDevice, DevicePeak
from lowbit_ray.engines.filler import fillers_for
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import launch_spec
from lowbit_ray.errors import EngineError, LowbitError
from lowbit_ray.measure.budget import budget_of, judge
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.runs import WorkloadRun
from lowbit_ray.measure.workload import Timed
from lowbit_ray.rehearsal import asked
from lowbit_ray.rehearsal.material import Material
from lowbit_ray.rules import Rules, load_rules
from lowbit_ray.settings import Settings
from lowbit_ray.stages.anchor import end_tokens
from lowbit_ray.stages.build import seal_engine
from lowbit_ray.stages.serving import enclosure
from lowbit_ray.submission import parse_address
from lowbit_ray.tasks import Task, load_task

__all__ = ["Rehearsal", "rehearsal"]

T = TypeVar("T")
Told = Callable[[str], None]


@dataclass(slots=True)
class Rehearsal:
    """What is rehearsed, and where its files go."""

    engine: str
    """Address of the folder with launch.sh."""
    checkpoint: str
    task: Task
    rules: Rules
    settings: Settings
    folder: Path
    """Sealed copies, the cache and the logs; made anew."""
    gpus: tuple[str, ...] = ()
    peaks: dict[str, float] = field(default_factory=dict)
    """The device's count at the end of each workload, GiB."""
    runs: dict[str, WorkloadRun] = field(default_factory=dict)

    def findings(self, told: Told) -> Iterator[Finding]:
        """Each finding as soon as it is made; `told` is given what is being done meanwhile.

        What an engine does wrong is a bad finding with what to change; what cannot be rehearsed without the part
        that failed is left out.
        """
        told("sealing the engine and the checkpoint")
        try:
            engine, checkpoint = self._sealed()
        except LowbitError as error:
            yield _bad("folder", error)
            return
        yield Finding(
            what="folder",
            level="good",
            found=f"{len(engine.files)} files, {engine.total_bytes / 2**30:.2f} GiB",
        )
        told("tokenizing the task's text")
        material = Material.of(self.task, self.rules, checkpoint.path)
        yield from self._server(
            engine, checkpoint, None, told, lambda server: self._whole(server, material, checkpoint, told)
        )
        if self.peaks:
            name = max(self.peaks, key=lambda one: self.peaks[one])
            yield from self._server(
                engine,
                checkpoint,
                self._cap(name),
                told,
                lambda server: self._capped(server, material, name, told),
            )

    # ---- servers

    def _server(
        self,
        engine: Sealed,
        checkpoint: Sealed,
        cap: Cap | None,
        told: Told,
        asking: Callable[[EngineProcess], Iterator[Finding]],
    ) -> Iterator[Finding]:
        """Starts the engine, under a cap or not, asks it, ends it."""
        server = self._process(engine, checkpoint, cap)
        what = "start" if cap is None else "start under the cap"
        with contextlib.ExitStack() as stack:
            try:
                told(
                    f"{what}: waiting for the first answer, at most {self.task.engine.start_timeout_s:.0f} s"
                )
                if cap is not None:
                    totals = {gpu: CudaDevice(gpu).total_gib for gpu in self.gpus}
                    for filler in fillers_for(cap.cap_gib, totals):
                        stack.enter_context(filler)
                server.start()
                stack.callback(server.stop)
                yield from self._started(server, what)
                yield from asking(server)
            except LowbitError as error:
                yield _bad(what if not server.start_s else "answers", error)
                return
            began = time.monotonic()
            try:
                server.stop()
            except LowbitError as error:
                yield _bad("end", error)
                return
        if cap is not None:
            seen = f"ended {time.monotonic() - began:.1f} s after SIGTERM, nothing left of it"
            yield Finding(what="end", level="good", found=seen)

    def _process(self, engine: Sealed, checkpoint: Sealed, cap: Cap | None) -> EngineProcess:
        cache = self.folder / "cache" / "candidate"
        spec = launch_spec(
            engine.path,
            checkpoint.path,
            task=self.task,
            rules=self.rules,
            cap=cap,
            device_total_gib=self._total_gib(),
            cache_dir=cache,
            gpus=self.gpus,
            python=Path(self.settings.vllm()[0]),
            enclosure=enclosure(self.task, self.settings, cache, cap, foreign=True, required=False),
        )
        files = [file for gpu in self.gpus for file in CudaDevice(gpu).files()]
        return EngineProcess(
            spec.with_devices(files), self.folder / "logs" / ("first.log" if cap is None else "capped.log")
        )

    def _started(self, server: EngineProcess, what: str) -> Iterator[Finding]:
        limit = self.task.engine.start_timeout_s
        yield Finding(
            what=what, level="good", found=f"{server.start_s:.1f} s to the first answer (limit {limit:.0f} s)"
        )
        shut_in = server.isolation
        if shut_in is not None and shut_in.kind == "none" and what == "start":
            yield Finding(
                what="sandbox",
                level="warning",
                found=f"none on this machine: {shut_in.reason}; what it may not do there is not noticed here",
                remedy="Install bubblewrap (apt install bubblewrap).",
            )
        elif shut_in is not None and what == "start":
            seen = f"no network, own processes, {shut_in.user} user; memory by {shut_in.memory_limit}"
            yield Finding(what="sandbox", level="good", found=seen)

    # ---- what is asked

    def _whole(
        self, server: EngineProcess, material: Material, checkpoint: Sealed, told: Told
    ) -> Iterator[Finding]:
        """Everything on the first server."""
        endpoint = Endpoint(server.address, server.spec.served_name, door=server.door)
        timed: dict[str, Timed] = {}
        with DevicePeak(tuple(CudaDevice(gpu) for gpu in self.gpus)) as peak:
            for name in material.workloads:
                told(f"timing {name}")
                timed[name], found = _run(asked.time_one(endpoint, name, material, self.task))
                self.runs[name] = timed[name].run
                self.peaks[name] = peak.peak_gib if self.gpus else server.resident.peak_gib
                yield from found
        yield from self._memory(timed)
        outputs = {name: one.outputs for name, one in timed.items()}
        ends = end_tokens(checkpoint.path)
        first = next(iter(outputs))
        for what, asking in (
            ("log-probabilities", asked.ask_logprobs(endpoint, material, self.task)),
            ("order", asked.ask_order(endpoint, material, self.task)),
            ("one face", asked.ask_same(endpoint, material, self.task, outputs, ends)),
            ("answer cache", asked.ask_replay(endpoint, material, self.task, outputs[first][:2], first)),
            ("chat", asked.ask_chat(endpoint, material, self.task)),
        ):
            told(what)
            try:
                yield from _run(asking)
            except EngineError as error:
                if not server.alive():
                    raise server.death() from error
                yield _bad(what, error)

    def _memory(self, timed: dict[str, Timed]) -> Iterator[Finding]:
        peak = max(self.peaks.values())
        by = "the GPUs' own count" if self.gpus else "the memory of its processes and its files in memory"
        gauges = all(one.run.kv_usage is not None for one in timed.values())
        yield Finding(
            what="memory",
            level="good",
            found=f"peak {peak:.2f} GiB by {by}"
            + ("; /metrics tells how full its KV pool is" if gauges else "; no KV gauge in /metrics"),
        )

    def _capped(self, server: EngineProcess, material: Material, name: str, told: Told) -> Iterator[Finding]:
        """The workload of the largest peak once more."""
        endpoint = Endpoint(server.address, server.spec.served_name, door=server.door)
        told(f"timing {name} under the cap")
        capped, _ = _run(asked.time_one(endpoint, name, material, self.task))
        budget = budget_of(self.peaks[name], self.rules.engine, self.task.pod.devices)
        verdict = judge(budget, self.runs[name], capped.run, material.workloads[name], self.rules.engine)
        kept = f"{verdict.value:.2f} beside {self.runs[name].output_throughput:.2f}"
        yield Finding(
            what="hard cap",
            # few requests on a machine that others use: a rate below the limit is no proof
            level="good" if verdict.healthy else "warning",
            found=f"{name} under {budget.cap_gib:.2f} GiB: {verdict.reason or kept}",
            remedy="" if verdict.healthy else "Stay within LOWBIT_GPU_MEMORY_GIB; see docs/engine-track.md.",
        )

    def _cap(self, name: str) -> Cap:
        devices = self.task.pod.devices
        return Cap.of_peak(self.peaks[name], rules=self.rules, total_gib=self._total_gib(), devices=devices)

    def _total_gib(self) -> float:
        return sum(CudaDevice(gpu).total_gib for gpu in self.gpus) or CpuDevice().total_gib

    def _sealed(self) -> tuple[Sealed, Sealed]:
        limit = self.task.limits.checkpoint_gib
        discard(self.folder / "cache")
        discard(self.folder / "cache" / "candidate.kept")
        for name in ("engine", "checkpoint"):
            discard(self.folder / name)
        engine = seal_engine(parse_address(self.engine), self.folder / "engine", limit)
        return engine, seal(self.checkpoint, self.folder / "checkpoint", limit_gib=limit, unsafe="keep")


def rehearsal(
    engine: str, checkpoint: str, task_id: str, gpus: str, folder: Path, settings: Settings
) -> Rehearsal:
    """A rehearsal as the command line asks for it."""
    task = load_task(task_id, settings.tasks)
    chosen = tuple(gpus.split(",")) if gpus else tuple(str(one) for one in range(task.pod.tensor_parallel))
    return Rehearsal(
        engine=engine,
        checkpoint=checkpoint,
        task=task,
        rules=load_rules(settings.rules),
        settings=settings,
        folder=folder.resolve(),
        gpus=chosen if task.engine.device == "cuda" else (),
    )


def _run(asking: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asking)


def _bad(what: str, error: LowbitError) -> Finding:
    seen = error.summary if error.found is None else f"{error.summary}: {error.found}"
    expected = "" if error.expected is None else f"Expected {error.expected}. "
    where = f" ({error.where})" if error.where else ""
    return Finding(what=what, level="bad", found=seen + where, remedy=(expected + error.remedy).strip())
