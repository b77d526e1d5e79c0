"""The actor on a pod: it hosts one engine at a time, and asks it what the driver sends.

A question is any picklable coroutine function of an endpoint; it runs here, beside the engine, so that no
network lies between a load client and the server it times. Ray gives the actor its GPUs; they are passed to the
engine by their indices, and nothing in this process touches CUDA.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import ray

from lowbit_ray.engines.accounts import Startup, keeps_accounts, read_startup
from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.device import CpuDevice, CudaDevice, Device, DevicePeak, wait_until_clean
from lowbit_ray.engines.filler import fillers_for
from lowbit_ray.engines.footprint import Footprint, look
from lowbit_ray.engines.host import Host, describe_host
from lowbit_ray.engines.isolation import Isolation
from lowbit_ray.engines.log import tail
from lowbit_ray.engines.memory_limit import HeldBy
from lowbit_ray.engines.neighbours import NeighbourWatch
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import EngineSpec
from lowbit_ray.errors import EngineAnswerError, EngineError, PodError
from lowbit_ray.measure.busy import busy_seconds
from lowbit_ray.measure.endpoint import Endpoint, connect, get_text

__all__ = ["EngineActor", "PodFacts", "Progress", "Question", "Started"]

HOST_LABEL = "lowbit-host"
START_LINES = 400
DYING_S = 5.0
"""How long an engine that failed to answer is looked at, before the failure counts as a living one's."""


class Progress(Protocol):
    """Told how far a question is, and what of it is being done where it has parts."""

    def __call__(self, done: int, total: int, doing: str = "") -> None: ...


class Question(Protocol):
    """What can be asked of an engine: picklable, as it travels from the driver to the pod."""

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> Any: ...


@dataclass(frozen=True, slots=True)
class Started:
    """An engine that answers."""

    start_s: float
    """From the start of the process to its first answer."""
    isolation: Isolation | None
    """What it is shut in by; None where nothing was asked for."""
    held_by: HeldBy | None = None
    """What keeps it within its cap; None without one."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What a pod is made of."""

    name: str
    """A name for this very silicon with the releases on it: both sides of a ratio must have been measured there."""
    kind: str
    """What silicon of the same kind is called: results of the anchor are reused within it."""
    gpus: tuple[str, ...]
    """Indices of the pod's GPUs on its host, as Ray assigned them."""
    total_gib: float
    """Memory of all devices together."""
    host: Host


@ray.remote(max_concurrency=4)
class EngineActor:
    """One per pod. Methods run in threads, so that `progress` answers while `ask` is at work."""

    def __init__(self, device: Literal["cuda", "cpu"], settle_s: float) -> None:
        self._settle_s = settle_s
        self._assigned = tuple(str(index) for index in ray.get_gpu_ids())
        self._gpus = self._assigned if device == "cuda" else ()
        self._devices: tuple[Device, ...] = ()
        self._engine: EngineProcess | None = None
        self._held = contextlib.ExitStack()
        self._peak: DevicePeak | None = None
        self._progress: dict[str, Any] = {}
        self._busy_s = 0.0
        self._start_log = ""
        gc.freeze()  # what is imported stays: a load client collects before each load, 50 ms without this

    def clean_facts(self) -> PodFacts:
        """What the pod is made of; called first.

        Raises DirtyDeviceError where somebody is on the devices, PodError where they do not answer.
        """
        self._devices = tuple(CudaDevice(gpu) for gpu in self._gpus) or (CpuDevice(),)
        self._wait_until_clean()
        host = describe_host(self._devices)
        silicon = [host.host, *self._apart(), *(device.identity().uuid for device in self._devices)]
        silicon += [device.identity().driver for device in self._devices]
        silicon += [str(release) for release in (host.system, host.python, host.torch, host.vllm)]
        return PodFacts(
            name=hashlib.sha256("\0".join(silicon).encode()).hexdigest()[:16],
            kind=f"{len(self._devices)} × {self._devices[0].identity().name}",
            gpus=self._gpus,
            total_gib=sum(device.total_gib for device in self._devices),
            host=host,
        )

    def start(self, spec: EngineSpec, log_path: Path, cap: Cap | None) -> Started:
        """Starts an engine and waits for its first answer; errors as `EngineProcess.start`.

        The devices must be clean before. Under a cap on GPUs a filler on each leaves the engine its share; on a CPU
        the host memory of its processes is limited.
        """
        if self._engine is not None:
            raise PodError("an engine runs on the pod already", where="EngineActor")
        self._tell("waiting for a clean device", 0, 0)
        self._wait_until_clean()
        with contextlib.ExitStack() as stack:
            fillers = [] if cap is None else fillers_for(cap.cap_gib, self._totals())
            for filler in fillers:
                stack.enter_context(filler)
            if cap is None and self._gpus:
                self._peak = stack.enter_context(DevicePeak(self._devices))
            self._tell("starting the engine", 0, 0)
            shown = spec.with_devices(file for device in self._devices for file in device.files())
            shown = shown.held_to(cap)
            try:
                engine = stack.enter_context(EngineProcess(shown, log_path))
            finally:
                self._start_log = tail(log_path, START_LINES)
            self._engine = engine
            self._held = stack.pop_all()
        held_by: HeldBy | None = "filler" if fillers else None
        if cap is not None and not self._gpus:
            held_by = engine.memory_held_by
        return Started(start_s=engine.start_s, isolation=engine.isolation, held_by=held_by)

    def ask(self, question: Question, what: str, limit_s: float | None = None) -> Any:
        """Asks the running engine; if it died meanwhile, the error says why it died.

        EngineAnswerError where it takes longer than `limit_s` for all of it, however lively it is.
        """
        engine = self._running()
        self._tell(what, 0, 0)
        endpoint = Endpoint(engine.address, engine.spec.served_name, door=engine.door)

        def told(done: int, total: int, doing: str = "") -> None:
            self._tell(f"{what}: {doing}" if doing else what, done, total)

        try:
            with busy_seconds() as meter:
                answer = asyncio.run(_within(limit_s, question(endpoint, told), what))
        except EngineError as error:
            if _dies(engine):
                raise engine.death() from error
            raise
        finally:
            self._busy_s += meter.seconds
        if not engine.alive():
            raise engine.death()  # some questions put up with requests that fail
        return answer

    def ask_watched(self, question: Question, what: str, limit_s: float | None = None) -> tuple[Any, float]:
        """As `ask`, and the share of the host's CPUs that others used meanwhile."""
        with NeighbourWatch(self._running().tree) as watch:
            answer = self.ask(question, what, limit_s)
        return answer, watch.share

    def startup(self, stored_gib: float | None, aliases: dict[str, str]) -> tuple[Startup | None, str]:
        """The engine's own accounts, None where it keeps none, and what it has printed so far."""
        engine = self._running()
        log = engine.log()
        if not keeps_accounts(log):
            return None, log

        async def metrics() -> str:
            endpoint = Endpoint(engine.address, engine.spec.served_name, door=engine.door)
            async with connect(endpoint, timeout_s=60) as session:
                return await get_text(session, endpoint, "/metrics") or ""

        return read_startup(log, asyncio.run(metrics()), stored_gib=stored_gib, aliases=aliases), log

    def device_peak_gib(self) -> float:
        """Largest use of memory so far: the GPUs' own count, or the engine's resident memory on a CPU."""
        if self._peak is None:
            return self._running().resident.peak_gib
        if self._peak.error is not None:
            raise self._peak.error
        return self._peak.peak_gib

    def start_log(self) -> str:
        """The end of what the last engine printed while it started, whether it came up or not.

        Nothing hidden had been asked of it by then.
        """
        return self._start_log

    def busy_s(self) -> float:
        """Seconds so far in which an engine was answering what it was asked here."""
        return self._busy_s

    def footprint(self) -> Footprint:
        """What the engine's processes hold, have read and talk to now."""
        return look(self._running().tree())

    def printed(self) -> str:
        """All that the engine has printed so far."""
        return self._running().log()

    def stop(self) -> None:
        """Ends the engine, if one runs, and waits until its memory is free."""
        self._engine, self._peak = None, None
        self._held.close()
        self._wait_until_clean()

    def progress(self) -> dict[str, Any]:
        """What it is doing, and how far it is: `what`, `done`, `total`, `since`."""
        return dict(self._progress)

    def _wait_until_clean(self) -> None:
        for device in self._devices:
            wait_until_clean(device, timeout_s=self._settle_s)

    def _totals(self) -> dict[str, float]:
        """GiB of each of the pod's GPUs."""
        totals = (device.total_gib for device in self._devices)
        return dict(zip(self._gpus, totals, strict=False))  # without GPUs the one device is the host

    def _apart(self) -> list[str]:
        """What tells this pod from others of the host beside its devices' names.

        Nodes of one machine that are to count as hosts of their own carry the label HOST_LABEL; the numbers of
        GPUs that do not exist tell the pods of CPU engines apart.
        """
        label = ray.get_runtime_context().get_node_labels().get(HOST_LABEL, "")
        return [part for part in (label, *(() if self._gpus else self._assigned)) if part]

    def _tell(self, what: str, done: int, total: int) -> None:
        since = self._progress.get("since") if self._progress.get("what") == what else time.time()
        self._progress = {"what": what, "done": done, "total": total, "since": since}

    def _running(self) -> EngineProcess:
        if self._engine is None:
            raise PodError("no engine runs on the pod", where="EngineActor")
        return self._engine


def _dies(engine: EngineProcess) -> bool:
    """Whether an engine is dead, or is within DYING_S: it closes its connections before it is gone."""
    deadline = time.monotonic() + DYING_S
    while engine.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not engine.alive()


async def _within(limit_s: float | None, answer: Awaitable[Any], what: str) -> Any:
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await answer
    except TimeoutError:
        if not limit.expired():
            raise
        raise EngineAnswerError(
            "the server is too slow",
            where=what,
            found=f"not done within the {limit_s:.0f} s that were left",
            expected="all answers of an evaluation within the task's limits.answering_hours",
        ) from None
