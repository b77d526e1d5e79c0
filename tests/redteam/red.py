"""A small task for the engine track, submissions of one's own engine, and what may not be left behind."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from fakes.checkpoints import write_candidate

from lowbit_ray.engines.isolation import Enclosure
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import launch_spec
from lowbit_ray.records import Record
from lowbit_ray.rules import load_rules
from lowbit_ray.tasks import load_task

__all__ = [
    "CANARY",
    "TASK",
    "Submit",
    "engine_folder",
    "hidden_items",
    "hidden_text",
    "left_behind",
    "start_alone",
]

CANARY = "xylophone"
"""In every sentence of the hidden text, so that any piece of a prompt that comes out is seen."""
HERE = Path(__file__).parent
FAKES = HERE.parent / "fakes"
TASK: dict[str, Any] = {
    "workloads": {
        "serve": {
            "description": "four at once",
            "input_len": 1024,
            "output_len": 16,
            "num_prompts": 8,
            "max_concurrency": 4,
            "request_rate": "inf",
            "metric": "output_throughput",
            "better": "higher",
        },
        "interactive": {
            "description": "one at a time",
            "input_len": 32,
            "output_len": 16,
            "num_prompts": 2,
            "max_concurrency": 1,
            "request_rate": "inf",
            "metric": "median_tpot_ms",
            "better": "lower",
        },
    },
    "kl": {"sequences": 4, "prompt_len": 8, "max_tokens": 8, "top_k": 20, "max_concurrency": 4},
    "accuracy": {
        "max_concurrency": 8,
        "evaluations": 1,
        "domains": {
            "math": {"items": 4, "max_tokens": 24},
            "knowledge": {"items": 4, "max_tokens": 16},
        },
    },
    "audit": {"samples": 4, "median_gap_limit": 1.5},
    # the fake holds little, and so is what it may hide
    # and the machine may be busy, which moves times per token
    "conduct": {"unaccounted_host_gib": 0.1, "late_read_gib": 0.02, "withheld_ratio": 5.0},
}

Submit = Callable[..., Record]


def hidden_text(sentences: int = 4000) -> str:
    """Natural enough, no two sentences alike, the canary in each."""
    words = "the old house by river had many rooms and nobody knew who lived there before winter came".split()  # noqa: SIM905
    generator = random.Random(1)
    return "\n".join(
        f"{CANARY} {' '.join(generator.choices(words, k=6))} {CANARY} {number}" for number in range(sentences)
    )


def hidden_items() -> str:
    """Rows of an accuracy domain, the canary in question, options and answer."""
    rows = [
        {
            "messages": f"Which {CANARY} has number {number}?",
            "scorer": "choice",
            "target": "B",
            "options": [f"{CANARY} one", f"{CANARY} two", f"{CANARY} three"],
        }
        for number in range(8)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def engine_folder(folder: Path, program: str, name: str) -> Path:
    """A submission's engine: the fake's modules, ours beside them, and launch.sh."""
    folder.mkdir()
    for path in FAKES.glob("*.py"):
        shutil.copy(path, folder)
    shutil.copy(HERE / program, folder)
    (folder / "launch.sh").write_text(
        f'exec python "$(dirname "$0")/{program}" {name} --model "$LOWBIT_MODEL_DIR" --port "$LOWBIT_PORT" '
        '--served-model-name "$LOWBIT_SERVED_NAME" --max-logprobs 20 --max-model-len "$LOWBIT_MAX_MODEL_LEN"\n'
    )
    return folder


def start_alone(
    folder: Path, program: str, name: str, *, files: dict[str, str] | None = None, **limits: Any
) -> EngineProcess:
    """The engine of a submission in its sandbox, as an evaluation would start it; not started yet."""
    write_candidate(folder / "model", log="cpu", size_scale=100, tokens_per_s=200, answers=None)
    engine = engine_folder(folder / "engine", program, name)
    for path, text in (files or {}).items():
        (engine / path).write_text(text)
    fields = {"memory_gib": 1.0, "processes": 128, "cache_gib": 1.0, "tmp_gib": 0.1}
    spec = launch_spec(
        engine,
        folder / "model",
        task=load_task("smollm2-135m"),
        rules=load_rules(),
        cap=None,
        device_total_gib=1.0,
        cache_dir=folder / "cache" / "candidate",
        python=Path(sys.executable),
        enclosure=Enclosure.model_validate(
            {
                "foreign": True,
                "required": True,
                "programs": (Path(sys.executable),),
                "cache_dir": folder / "cache" / "candidate",
                **fields,
                **limits,
            }
        ),
    )
    return EngineProcess(
        spec.model_copy(update={"start_timeout_s": 30.0}),
        folder / "engine.log",
        grace_s=1,
        sample_interval_s=0.1,
    )


def left_behind(root: Path) -> list[str]:
    """Processes that name something below `root`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(root) in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found
