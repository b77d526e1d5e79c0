"""The service under load and under faults, on loopback: `python -m benchmarks.service`.

    board, record     10,000 submissions in the ledger, 50 requests in flight, one process of uvicorn
    accepted          5,000 submissions by 20 writers; every one must be in the ledger once
    killed            the process is killed under that load, and started again
    store away        the bucket's store refuses everything for 30 s under that load

The client runs on the same cores, so that what a service alone would do is better than what is said here. Every
submission carries a key, and a writer that gets no answer sends it again, as `lowbit submit` does.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the fakes: moto's S3, the proxy before it

from fakes.lossy import Lossy, lossy  # noqa: E402
from fakes.s3 import CREDENTIALS, s3_server  # noqa: E402

from lowbit_ray.ledger import Ledger, open_ledger  # noqa: E402
from lowbit_ray.people import issue_token  # noqa: E402
from lowbit_ray.standing import arrival  # noqa: E402
from lowbit_ray.submission import Address, Submission, new_id  # noqa: E402

RECORD = ROOT / "benchmarks" / "results" / "h200-8b-fp8.json"
TASK = "qwen3-8b"
PARTICIPANTS = 200
IN_FLIGHT = 50
WRITERS = 20
AWAY_S = 30.0


def main() -> int:
    """Measures, and writes the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=10_000, help="in the ledger while it is read")
    parser.add_argument(
        "--writes", type=int, default=5_000, help="accepted in each of the three runs that write"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each reading run")
    parser.add_argument("--only", nargs="*", choices=sorted(PARTS), help="parts to measure; the others stay")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "service.json")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.is_file() else {}
    for name in options.only or PARTS:
        before = os.getloadavg()[0]
        measured = PARTS[name](options)
        results[name] = {
            "made_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "cpus": len(os.sched_getaffinity(0)),
            "load_before": round(before, 1),
            "load_after": round(os.getloadavg()[0], 1),
            **measured,
        }
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))
    wrong = [name for name, part in results.items() if part.get("lost", 0) or part.get("twice", 0)]
    return 1 if wrong else 0


# ---------------------------------------------------------------------------------------------- reading


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """Percentiles of the board's page, its JSON, and records, with 10,000 submissions in a folder ledger."""
    count, seconds = options.submissions, options.seconds
    with tempfile.TemporaryDirectory() as folder:
        names = fill(Path(folder) / "ledger", count)
        started = time.monotonic()
        with served(f"{folder}/ledger", Path(folder)) as service:
            ready_s = time.monotonic() - started
            paths: dict[str, Callable[[int], str]] = {
                "board_page": lambda n: f"/board/{TASK}",
                "board_json": lambda n: f"/api/board/{TASK}",
                "record_json": lambda n: f"/api/submissions/{names[n * 7919 % len(names)]}",
                "record_page": lambda n: f"/submissions/{names[n * 7919 % len(names)]}",
            }
            found = {name: asyncio.run(read(service, path, seconds)) for name, path in paths.items()}
            with urllib.request.urlopen(f"{service.url}/readyz") as answer:
                health = json.load(answer)
    return {
        "submissions": count,
        "participants_on_the_board": PARTICIPANTS,
        "in_flight": IN_FLIGHT,
        "index_ready_s": round(ready_s, 1),
        "index_age_s": health["index_age_s"],
        **found,
    }


async def read(service: Service, path: Callable[[int], str], seconds: float) -> dict[str, Any]:
    """A closed loop of IN_FLIGHT readers, after a warm-up."""
    times_ms: list[float] = []
    statuses: Counter[int] = Counter()
    numbers = iter(range(10**9))
    size = 0

    async def reader(session: aiohttp.ClientSession, until: float, *, counted: bool) -> None:
        nonlocal size
        while time.monotonic() < until:
            started = time.perf_counter()
            async with session.get(service.url + path(next(numbers))) as answer:
                body = await answer.read()
            if counted:
                times_ms.append((time.perf_counter() - started) * 1000)
                statuses[answer.status] += 1
                size = len(body)

    async with session_of(IN_FLIGHT) as session:
        for counted, length in ((False, 2.0), (True, seconds)):
            until = time.monotonic() + length
            cpu_s = service.cpu_s()
            await asyncio.gather(*(reader(session, until, counted=counted) for _ in range(IN_FLIGHT)))
    return {
        "requests": len(times_ms),
        "per_s": round(len(times_ms) / seconds, 1),
        "service_cpu_ms": round(1000 * (service.cpu_s() - cpu_s) / len(times_ms), 2),
        "bytes": size,
        "p50_ms": percentile(times_ms, 50),
        "p90_ms": percentile(times_ms, 90),
        "p99_ms": percentile(times_ms, 99),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
    }


def fill(root: Path, count: int) -> list[str]:
    """Submissions of PARTICIPANTS, nine of ten with a record, the others waiting; written as files at once."""
    record = json.loads(RECORD.read_text())
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    names = []
    for n in range(count):
        submission = Submission(
            id=new_id("benchmark", str(n)),
            participant=f"participant-{n % PARTICIPANTS}",
            task_id=TASK,
            split="test",
            checkpoint=Address(kind="hub", location="owner/name", revision="0" * 40),
            method=f"method {n}",
            created_at=start + datetime.timedelta(minutes=n),
        )
        names.append(submission.id)
        objects = {
            f"submissions/{submission.id}/submission.json": submission.model_dump_json(),
            f"accepted/{arrival(submission)}": "",
        }
        if n % 10:
            result = record["result"] | {"score": round(0.5 + (n * 37 % 1000) / 1000, 4)}
            own = {
                "id": submission.id,
                "participant": submission.participant,
                "task_id": TASK,
                "split": "test",
            }
            times = {
                "created_at": submission.created_at.isoformat(),
                "updated_at": submission.created_at.isoformat(),
            }
            objects[f"submissions/{submission.id}/record.json"] = json.dumps(
                record | own | times | {"result": result}
            )
        for key, text in objects.items():
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return names


# ---------------------------------------------------------------------------------------------- writing


@dataclass(slots=True)
class Writing:
    """What the writers were told."""

    ids: dict[str, str] = field(default_factory=dict)
    """By key, of what was said to be accepted."""
    times_ms: list[float] = field(default_factory=list)
    """From the first try of a submission to its acceptance."""
    again: Counter[str] = field(default_factory=Counter)
    """Why tries were repeated."""


def accepting(options: argparse.Namespace) -> dict[str, Any]:
    """`--writes` submissions by WRITERS into a folder ledger."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = open_ledger(f"{folder}/ledger")
        token = issue_token(ledger, "olga", "organizer")
        with served(f"{folder}/ledger", Path(folder)) as service:
            return written(ledger, asyncio.run(write(service.url, token, options.writes, Writing())))


def killed(options: argparse.Namespace) -> dict[str, Any]:
    """The same; after each fifth of them the service is killed, and started again at once."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = open_ledger(f"{folder}/ledger")
        token = issue_token(ledger, "olga", "organizer")
        with served(f"{folder}/ledger", Path(folder)) as service:
            return written(ledger, asyncio.run(kill_meanwhile(service, token, options.writes))) | {"kills": 4}


async def kill_meanwhile(service: Service, token: str, count: int) -> tuple[Writing, float]:
    writing = Writing()
    work = asyncio.create_task(write(service.url, token, count, writing))
    for fifth in range(1, 5):
        await until_accepted(writing, fifth * count // 5, work)
        service.kill()
        await asyncio.to_thread(service.start)
    return await work


def store_away(options: argparse.Namespace) -> dict[str, Any]:
    """Into a bucket, whose store refuses everything for AWAY_S after half of them."""
    with tempfile.TemporaryDirectory() as folder, s3_server() as address, lossy(address) as proxy:
        import boto3

        environment = CREDENTIALS | {"AWS_ENDPOINT_URL": proxy.address}
        os.environ.update(environment)
        boto3.client("s3").create_bucket(Bucket="arena")
        ledger = open_ledger("s3://arena/ledger")
        token = issue_token(ledger, "olga", "organizer")
        with served("s3://arena/ledger", Path(folder), **environment) as service:
            done = asyncio.run(go_away_meanwhile(service, proxy, token, options.writes))
            return written(ledger, done) | {"away_s": AWAY_S}


async def go_away_meanwhile(service: Service, proxy: Lossy, token: str, count: int) -> tuple[Writing, float]:
    writing = Writing()
    work = asyncio.create_task(write(service.url, token, count, writing))
    await until_accepted(writing, count // 2, work)
    proxy.fate = lambda method, path: "unavailable"
    await asyncio.sleep(AWAY_S)
    proxy.fate = lambda method, path: "pass"
    return await work


async def until_accepted(writing: Writing, count: int, work: asyncio.Task[Any]) -> None:
    while len(writing.ids) < count and not work.done():  # noqa: ASYNC110  # 20 writers, one number
        await asyncio.sleep(0.05)


async def write(url: str, token: str, count: int, writing: Writing) -> tuple[Writing, float]:
    """WRITERS hand in `count` submissions, each until it is accepted; how long it took."""
    keys = iter([f"key-{n}" for n in range(count)])
    checkpoint = f"owner/name@{'0' * 40}"

    async def writer(session: aiohttp.ClientSession) -> None:
        for key in keys:
            body = {"task": TASK, "checkpoint": checkpoint, "method": key, "split": "test"}
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
            started = time.perf_counter()
            while key not in writing.ids:
                try:
                    async with session.post(f"{url}/api/submissions", json=body, headers=headers) as answer:
                        if answer.status in {200, 201}:
                            writing.ids[key] = (await answer.json())["id"]
                            continue
                        writing.again[str(answer.status)] += 1
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    writing.again[type(error).__name__] += 1
                await asyncio.sleep(0.5)
            writing.times_ms.append((time.perf_counter() - started) * 1000)

    started = time.monotonic()
    async with session_of(WRITERS) as session:
        await asyncio.gather(*(writer(session) for _ in range(WRITERS)))
    return writing, time.monotonic() - started


def written(ledger: Ledger, done: tuple[Writing, float]) -> dict[str, Any]:
    """What the writers were told, held against the ledger."""
    writing, took_s = done
    in_queue = Counter(key.rpartition("-")[2] for key in ledger.keys("accepted/"))
    stored = {key.split("/")[1] for key in ledger.keys("submissions/") if key.endswith("/submission.json")}
    accepted = set(writing.ids.values())
    return {
        "accepted": len(accepted),
        "writers": WRITERS,
        "per_s": round(len(accepted) / took_s, 1),
        "took_s": round(took_s, 1),
        "p50_ms": percentile(writing.times_ms, 50),
        "p99_ms": percentile(writing.times_ms, 99),
        "longest_ms": percentile(writing.times_ms, 100),
        "tried_again": dict(writing.again),
        "lost": len(accepted - in_queue.keys()) + len(accepted - stored),
        "twice": sum(count - 1 for count in in_queue.values()) + len(stored - accepted),
    }


# ---------------------------------------------------------------------------------------------- the service


@dataclass
class Service:
    """One process of uvicorn over a ledger, with a rate limit that is not in the way."""

    ledger: str
    folder: Path
    environment: dict[str, str]
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once it is ready."""
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("unlimited.py")), str(self.port)],
                env=os.environ | {"LOWBIT_LEDGER": self.ledger, "PYTHONPATH": str(ROOT)} | self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=30):
                    return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit((self.folder / "service.log").read_text()[-2000:]) from None
                time.sleep(0.1)

    def cpu_s(self) -> float:
        """CPU time that its process has used."""
        assert self.process is not None
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextmanager
def served(ledger: str, folder: Path, **environment: str) -> Iterator[Service]:
    """The service for the length of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    service = Service(ledger, folder, environment, port)
    service.start()
    try:
        yield service
    finally:
        service.kill()


@asynccontextmanager
async def session_of(connections: int) -> AsyncIterator[aiohttp.ClientSession]:
    """So many connections, kept open."""
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        yield session


def percentile(values: list[float], share: int) -> float | None:
    """Nearest rank, in milliseconds with one digit."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * share // 100) - 1))], 1)


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "reading": reading,
    "accepting": accepting,
    "killed": killed,
    "store_away": store_away,
}

if __name__ == "__main__":
    sys.exit(main())
