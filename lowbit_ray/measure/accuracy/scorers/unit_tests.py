"""Small functions: the answer's code runs in a sandbox (`sandbox_launcher.py`), each check's expression is
evaluated there, and its value is compared out here with the expected literal. The expected values never enter
the sandbox: code that looks for them, or returns an object equal to everything, gains nothing.
"""

from __future__ import annotations

import ast
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lowbit_ray.errors import ConfigError
from lowbit_ray.measure.accuracy.items import UnitTestTarget
from lowbit_ray.measure.accuracy.scorers.answer_text import code_of, without_reasoning
from lowbit_ray.measure.accuracy.scorers.child import ChildRun, run_child
from lowbit_ray.measure.accuracy.scorers.verdict import Case, Outcome

__all__ = ["SandboxLimits", "evaluate_in_sandbox", "judge_code", "score_unit_tests"]

_LAUNCHER = Path(__file__).with_name("sandbox_launcher.py")
_NO_FILTER = 3


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What the code of one answer may use."""

    cpu_s: int = 4
    wall_s: float = 10.0
    memory_bytes: int = 512 << 20
    """Address space, the interpreter's own included."""
    max_chars: int = 10_000
    """Characters of a value's repr."""


def evaluate_in_sandbox(
    code: str, expressions: Sequence[str], limits: SandboxLimits = SandboxLimits()
) -> ChildRun:
    """Runs `code`, then evaluates `expressions`; the output holds one JSON line an expression.

    Raises ConfigError where the kernel cannot filter system calls: code of a model is not run unconfined.
    """
    request = {
        "code": code,
        "expressions": list(expressions),
        "cpu_s": limits.cpu_s,
        "memory_bytes": limits.memory_bytes,
        "max_chars": limits.max_chars,
    }
    run = run_child(
        [sys.executable, "-I", "-S", "-B", str(_LAUNCHER)],
        json.dumps(request).encode(),
        wall_s=limits.wall_s,
        max_bytes=(limits.max_chars * 6 + 100) * len(expressions),
        environment={},
    )
    if run.returncode == _NO_FILTER and not run.output:
        raise ConfigError(
            "answers' code cannot be run safely: no seccomp filter on this machine",
            where="accuracy domain code",
            expected="Linux on x86_64 or aarch64 with CONFIG_SECCOMP_FILTER",
            remedy="Score the answers on such a machine; they are kept.",
        )
    return run


def judge_code(target: UnitTestTarget, text: str, limits: SandboxLimits = SandboxLimits()) -> Outcome:
    """RIGHT where every check's value is equal to its expected literal."""
    code = code_of(without_reasoning(text))
    if not code.strip():
        return Outcome.NO_ANSWER
    run = evaluate_in_sandbox(code, [check.expression for check in target.checks], limits)
    if run.timed_out or (run.returncode == -signal.SIGKILL and not run.overflowed):  # RLIMIT_CPU's signal
        return Outcome.TIMED_OUT
    if run.returncode != 0 or run.overflowed:
        return Outcome.CRASHED
    lines = run.output.decode("utf-8", "replace").splitlines()
    if len(lines) != len(target.checks):
        return Outcome.CRASHED
    right = all(_equal(line, check.expected) for line, check in zip(lines, target.checks, strict=True))
    return Outcome.RIGHT if right else Outcome.WRONG


def score_unit_tests(cases: Sequence[Case[UnitTestTarget]]) -> list[Outcome]:
    """Judges the cases, as many at once as there are cores."""
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda case: judge_code(case.target, case.text), cases))


def _equal(line: str, expected: str) -> bool:
    """Whether a result line carries a literal equal to `expected`; floats within 1e-9, relative."""
    try:
        value = ast.literal_eval(json.loads(line)["value"])
    except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError):
        return False
    wanted = ast.literal_eval(expected)
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return value == wanted or _is_close(value, wanted)
    return type(value) is type(wanted) and bool(value == wanted)


def _is_close(value: float, wanted: float) -> bool:
    try:
        return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-12)
    except OverflowError:  # an integer beyond every float
        return False
