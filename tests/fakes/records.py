"""Records and submissions to fill a ledger with: a real record's numbers, moved, and scored anew by the rules."""

from __future__ import annotations

import copy
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lowbit_ray.index import accept
from lowbit_ray.ledger import Ledger
from lowbit_ray.recheck import measured_of
from lowbit_ray.records import Record
from lowbit_ray.rules import load_rules
from lowbit_ray.score import score
from lowbit_ray.submission import Address, Submission

START = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
REAL = Path(__file__).parents[2] / "benchmarks" / "results" / "h200-8b-fp8.json"
PRECISIONS = ("W8A8KV8", "W4A16KV16", "W8A8KV16", "W4A4KV8", "W4A16KV8")
METHODS = (
    "round to nearest",
    "GPTQ, groups of 128",
    "AWQ with FP8 KV cache",
    "SmoothQuant int8",
    "NVFP4, calibrated",
)


def real_record() -> dict[str, Any]:
    """A record measured on a GPU."""
    loaded: dict[str, Any] = json.loads(REAL.read_text())
    return loaded


def moved_record(
    number: int,
    *,
    participant: str = "somebody",
    task_id: str = "qwen3-8b",
    method: str = METHODS[0],
    precision: str = PRECISIONS[0],
    rate: float = 1.0,
    memory: float = 1.0,
    kl: float = 0.01,
    drop: float = 0.001,
    **changes: Any,
) -> Record:
    """The real record with another rate, peak (both times that of the real one), KL and accuracy drop."""
    data = copy.deepcopy(real_record())
    result = data["result"]
    for name in result["efficiency"]:
        result["efficiency"][name] *= rate
        for part in ("weights_gib", "kv_gib", "other_gib", "peak_gib"):
            result["peak_memory"][name][part] *= memory
    result |= {"mean_drop": drop, "mean_drop_se": 0.003, "task_id": task_id}
    result["kl"] |= {"kl": kl, "kl_se": kl / 20}
    result["noise_floor"] |= {"kl": 0.0004, "kl_se": 0.00003}
    result["quality"]["tier"] = "A" if drop < 0.02 else "B" if drop < 0.05 else None
    rules = load_rules()
    broken = (
        None
        if kl <= rules.rules.kl_ceiling
        else f"KL from BF16 is {kl:.4f} nats per token, above the ceiling of 0.15"
    )
    scored = score(measured_of(data, speed_floor=0.95), rules)
    result |= {
        name: round(getattr(scored, name), 4)
        for name in ("drift", "efficiency_gain", "memory", "memory_saved", "score", "speed")
    }
    result |= {
        "admitted": broken is None,
        "score": 0.0 if broken else result["score"],
        "score_se": 0.0 if broken else round(scored.score_se or 0.0, 4),
        "drift_se": scored.drift_se,
        "qualified": scored.qualified and broken is None,
        "reason": broken or scored.reason,
        "gates": [gate.model_dump() for gate in scored.gates],
        "speeds": {name: round(value, 4) for name, value in scored.speeds.items()},
        "speed_serve": round(scored.speeds["serve"], 4),
        "memories": {name: round(value, 4) for name, value in scored.memories.items()},
        "peak_gib": result["peak_memory"]["serve"]["peak_gib"],
    }
    for name, audit in result["timed_audit"].items():
        if audit["status"] == "audited":
            draw = random.Random(f"{number} {name}")
            gaps = sorted(round(abs(draw.gauss(kl, 0.006)), 6) for _ in range(audit["samples"]))
            audit |= {"gaps": gaps, "gap_median": gaps[len(gaps) // 2], "gap_max": gaps[-1]}
            result["engine"]["audit"][name] = audit
    at = START + timedelta(hours=number)
    data["solution"] |= {"method": method, "precision": precision, "detected_precision": precision}
    data |= {
        "id": f"{number:016x}",
        "participant": participant,
        "task_id": task_id,
        "created_at": at.isoformat(),
        "updated_at": (at + timedelta(minutes=18)).isoformat(),
        "status": "rejected" if broken else "done",
        "charged_hours": 0.3,
    }
    return Record.model_validate(data | changes)


def submission_of(record: Record) -> Submission:
    """What was handed in for a record."""
    return Submission(
        id=record.id,
        participant=record.participant,
        agent=record.agent,
        task_id=record.task_id,
        split=record.split,
        partition=record.partition,
        checkpoint=Address(kind="folder", location="/checkpoints/x"),
        method=record.solution.method,
        created_at=record.created_at,
    )


def store(ledger: Ledger, record: Record) -> None:
    """Puts a submission and its record where an evaluation leaves them."""
    accept(ledger, submission_of(record))
    ledger.create(f"submissions/{record.id}/record.json", record.to_json().encode())


def wait(ledger: Ledger, number: int, **changes: Any) -> Submission:
    """A submission that waits."""
    values: dict[str, Any] = {
        "id": f"{number:016x}",
        "participant": "somebody",
        "task_id": "qwen3-8b",
        "split": "test",
        "checkpoint": Address(
            kind="hub", location="somebody/model", revision="0123456789abcdef" * 2 + "01234567"
        ),
        "method": "GPTQ, groups of 128",
        "declared_precision": "W4A16KV16",
        "created_at": START + timedelta(hours=number),
    }
    submission = Submission.model_validate(values | changes)
    accept(ledger, submission)
    return submission


def fill(ledger: Ledger, count: int, *, task_id: str = "qwen3-8b", seed: int = 7) -> list[Record]:
    """So many records of as many participants, a reference among them, spread as real ones are."""
    draw = random.Random(seed)
    records = []
    for number in range(1, count + 1):
        kl = min(0.3, draw.lognormvariate(-4.6, 1.1))
        record = moved_record(
            number,
            participant=f"team-{number:02d}",
            task_id=task_id,
            method=draw.choice(METHODS),
            precision=draw.choice(PRECISIONS),
            rate=draw.uniform(0.72, 1.15),
            memory=draw.uniform(0.75, 1.35),
            kl=kl,
            drop=max(-0.002, draw.gauss(2.2 * kl, 0.006)),
            partition="reference" if number % 9 == 4 else "participant",
            track="engine" if number % 4 == 0 else "checkpoint",
        )
        store(ledger, record)
        records.append(record)
    return records
