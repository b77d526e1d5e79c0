"""An arena in a folder: a task whose engines are fakes, its anchor, candidates, and the driver as a process.

The task is `smollm2-135m` with the fake engine in vLLM's place; everything between a submission and its record is
the product's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from fakes.checkpoints import write_anchor, write_candidate

from lowbit_ray.index import accept
from lowbit_ray.lease import Tenure
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.measure.accuracy.items import ChoiceTarget, ContainmentTarget, Item, MathsTarget
from lowbit_ray.measure.accuracy.load_items import make_items
from lowbit_ray.measure.prompts import derive_seed
from lowbit_ray.rules import load_rules
from lowbit_ray.settings import Settings
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.submission import Address, Submission, new_id, now
from lowbit_ray.tasks import TASKS, Task, load_task

__all__ = ["HERE", "SMALL", "Arena", "Watching"]

ENGINE = Path(__file__).with_name("engine.py")
SECRET = "5e" * 32
SPEED = {"log": "cpu", "size_scale": 100, "tokens_per_s": 120}
"""The fake's pace: no burst that a client must refuse, and long enough for the gauges to be read."""

SMALL: dict[str, Any] = {
    "workloads": {
        "serve": {
            "description": "a few long prompts, short answers",
            "input_len": 1024,
            "output_len": 24,
            "num_prompts": 4,
            "max_concurrency": 2,
            "request_rate": "inf",
            "metric": "output_throughput",
            "better": "higher",
        }
    },
    "kl": {"sequences": 4, "prompt_len": 8, "max_tokens": 8, "top_k": 20, "max_concurrency": 4},
    "perplexity": {"hidden": {"source": {"kind": "docstrings"}, "windows": 2, "window_len": 64}},
    "accuracy": {
        "max_concurrency": 8,
        "evaluations": 1,
        "domains": {
            "math": {"items": 8, "max_tokens": 24},  # whole answers, which need no process of math-verify's
            "code": {"items": 4, "max_tokens": 8},
            "knowledge": {"items": 8, "max_tokens": 8},
            "instruction": {"items": 4, "max_tokens": 8},
            "retrieval": {"items": 4, "max_tokens": 8, "context_tokens": 48},
        },
    },
    # GPUs that do not exist, under engines that run on the CPU
    "pod": {
        "tensor_parallel": 1,
        "cpus": 1,
        "memory_gib": 0.25,
        "may_share_host": True,
        "wait_s": 120,
    },
}
"""A task of few short requests, whose evaluation takes six seconds of CPU, nearly all of them starts of processes:
for tests of many evaluations, and of what befalls them."""

HERE: dict[str, Any] = {**SMALL, "pod": SMALL["pod"] | {"tensor_parallel": 0}}
"""The same without imagined GPUs, which a Ray of this machine alone does not have."""


class Watching:
    """A watch that remembers what it was told."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.reused: list[str] = []
        self.seen: list[str] = []

    def begin(self, step: str) -> None:
        self.begun.append(step)

    def progress(self, what: str, done: int, total: int) -> None:
        self.seen.append(what)

    def end(self, step: str, seconds: float, *, reused: bool) -> None:
        if reused:
            self.reused.append(step)


@dataclass(frozen=True, slots=True)
class Arena:
    """Everything of one arena, below `root`."""

    root: Path

    @staticmethod
    def build(root: Path, **task: Any) -> Arena:
        """Writes the task and its anchor; `task` overrides fields of the task's file."""
        arena = Arena(root)
        fields = yaml.safe_load((TASKS / "smollm2-135m.yaml").read_text())
        fields["id"] = "fake"
        fields["anchor"] = {"repository": "nobody/fake", "path": str(root / "anchor")}
        fields["pod"] |= {"cpus": 1, "memory_gib": 0.5, "wait_s": 30}
        fields["speed_floor"] = 0.5  # the machine that tests run on may be busy
        fields["engine"] |= {"start_timeout_s": 20, "request_timeout_s": 5}
        # fewer of what is asked one by one: twelve probes show as much of a fake as thirty-two
        fields["kl"] |= {"sequences": 12}
        fields["perplexity"]["hidden"] |= {"window_len": 128}
        for domain in fields["accuracy"]["domains"].values():
            domain |= {"items": 10}
        # the fake's tokens are bytes, so what fits the model's length is short
        fields["accuracy"]["domains"]["retrieval"]["context_tokens"] = 48
        (root / "tasks").mkdir(parents=True)
        (root / "tasks" / "fake.yaml").write_text(yaml.safe_dump({**fields, **task}, sort_keys=False))
        write_anchor(root / "anchor", **SPEED, answers="answers.json")
        arena._write_answers(root / "anchor")
        return arena

    @property
    def settings(self) -> Settings:
        return Settings(
            ledger=str(self.root / "ledger"),
            cache=self.root / "cache",
            tasks=self.root / "tasks",
            secret=SECRET,
            vllm_command=f"{shlex.quote(sys.executable)} {shlex.quote(str(ENGINE))}",
        )

    @property
    def environment(self) -> dict[str, str]:
        """The settings as variables."""
        return {
            "LOWBIT_LEDGER": self.settings.ledger,
            "LOWBIT_CACHE": str(self.settings.cache),
            "LOWBIT_TASKS": str(self.settings.tasks),
            "LOWBIT_SECRET": SECRET,
            "LOWBIT_VLLM_COMMAND": self.settings.vllm_command,
        }

    @property
    def ledger(self) -> FolderLedger:
        return FolderLedger(self.root / "ledger")

    @property
    def task(self) -> Task:
        return load_task("fake", self.root / "tasks")

    def candidate(
        self, name: str, *, precision: Literal["bf16", "int8"] = "int8", noise: float = 0.1, **fake: Any
    ) -> Path:
        """A candidate's folder; `fake` goes into its fake.json."""
        folder = self.root / name
        write_candidate(
            folder, precision=precision, noise=noise, **{**SPEED, "answers": "answers.json", **fake}
        )
        self._write_answers(folder)
        return folder

    def attempt(self, submission: Submission, tenure: Tenure, **changes: Any) -> Evaluation:
        """An evaluation of it, as its driver makes one; `changes` are other fields."""
        fields: dict[str, Any] = {
            "submission": submission,
            "task": self.task,
            "rules": load_rules(),
            "ledger": self.ledger,
            "settings": self.settings,
            "tenure": tenure,
            "watch": Watching(),
        }
        return Evaluation(**{**fields, **changes})

    def submit(self, checkpoint: Path, **changes: Any) -> Submission:
        """Writes a submission into the ledger."""
        fields: dict[str, Any] = {
            "id": new_id(),
            "participant": "somebody",
            "task_id": "fake",
            "split": "test",
            "checkpoint": Address(kind="folder", location=str(checkpoint)),
            "declared_precision": "W8A8KV16",
            "method": "round to nearest",
            "created_at": now(),
        }
        submission = Submission.model_validate({**fields, **changes})
        assert accept(self.ledger, submission)
        return submission

    def job(self, submission: Submission) -> subprocess.Popen[str]:
        """`python -m jobs.evaluate ID` as a process of its own, on a Ray of its own."""
        return self.start_job("jobs.evaluate", submission.id)

    def start_job(self, *command: str) -> subprocess.Popen[str]:
        """`python -m COMMAND…` with this arena's settings, as a process of its own, on a Ray of its own."""
        environment = os.environ | self.environment
        environment.pop("RAY_ADDRESS", None)
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment,
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # a shell's background job ignores Ctrl-C, and so would everything that it starts
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def items(self) -> tuple[Item, ...]:
        """The accuracy items of the task, as the driver draws them."""
        plan = self.task.accuracy
        evaluations = plan.evaluations or load_rules().gate.quality.evaluations_pooled
        return make_items(
            plan, derive_seed(bytes.fromhex(SECRET), "fake", "accuracy"), evaluations=evaluations
        )

    def _write_answers(self, folder: Path) -> None:
        """Right answers for the items whose target says one."""
        answers: dict[str, str] = {}
        for item in self.items():
            asked = item.messages[-1].content
            match item.target:
                case MathsTarget(answer=answer) | ChoiceTarget(answer=answer):
                    answers[hashlib.sha256(asked.encode()).hexdigest()] = f"The answer is {answer}"
                case ContainmentTarget(any_of=(answer, *_)):
                    answers[hashlib.sha256(asked.encode()).hexdigest()] = answer
        (folder / "answers.json").write_text(json.dumps(answers))
