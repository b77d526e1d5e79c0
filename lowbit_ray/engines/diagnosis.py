"""Why an engine died, in one line, from its log and exit code.

A dying vLLM prints the same traceback in two or three processes and ends with a summary that points at
"the root cause above". The root cause is the last exception that is not such a summary; where nothing was
raised, it is a usage error, a crash report, or simply the last line.
"""

from __future__ import annotations

import re
import signal

from lowbit_ray.engines.log import LogLine, read_lines

__all__ = ["exit_meaning", "is_fault_of_the_host", "root_cause"]

EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Killed|NotFound|Warning)(?::|$)"
)
SUMMARY = re.compile(
    # a process that reports the death of another, or its own orderly end
    r"root cause|EngineDeadError|EngineGenerateError|Engine core initialization failed|^SystemExit|"
    r"^KeyboardInterrupt|CancelledError|BrokenProcessPool|^EOFError|ConnectionResetError|"
    r"Engine process failed to start|^asyncio\.|leaked"
)
CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
CRASH = re.compile(
    r"^(?:.*: error: .+|Fatal Python error: .+|terminate called .+|\s*what\(\): .+|.*(?:Segmentation fault|"
    r"Illegal instruction|Aborted|Killed|Bus error).*|.*: command not found|.*: No such file or directory|"
    r".*: Permission denied)$"
)
LENGTH = 400
OF_THE_HOST = (
    # Told by our own vLLM; a launch.sh could print any of them to be tried again for free.
    "Error in memory profiling. Initial free memory",
    "is less than desired GPU memory utilization",
    "is less than desired CPU memory utilization",
    "OSError: [Errno 98]",
    "OSError: [Errno 28]",
    "uncorrectable ECC error",
    "CUDA-capable device(s) is/are busy or unavailable",
    "No CUDA GPUs are available",
)
"""Faults of a host, as they are worded."""


def root_cause(log: str) -> str:
    """One line of at most 400 characters; empty if the log is."""
    lines = [line for line in read_lines(log) if line.message.strip()]
    for pick in (_exception, _crash, _error_level, _last):
        if found := pick(lines):
            return found if len(found) <= LENGTH else found[: LENGTH - 1] + "…"
    return ""


def _exception(lines: list[LogLine]) -> str:
    """The last exception that is no summary, or the first of its chain."""
    found, open_blocks, last_end, chained = "", set(), "", False
    for index, line in enumerate(lines):
        if line.message.startswith("Traceback (most recent call last)"):
            open_blocks.add(line.process)
        elif any(line.message.startswith(text) for text in CHAIN):
            chained = bool(last_end)
        elif line.process in open_blocks and EXCEPTION.match(line.message):
            open_blocks.discard(line.process)
            if not SUMMARY.search(line.message) and not chained:
                found = _whole(lines, index)
            last_end, chained = line.message, False
    return found


def _whole(lines: list[LogLine], index: int) -> str:
    """An exception's message; pydantic puts the reason on the lines after it."""
    message = lines[index].message
    if "validation error" not in message:
        return message
    reasons = [
        line.message.strip()
        for line in lines[index + 1 : index + 8]
        if line.process == lines[index].process and line.message.startswith("  ")
    ]
    return f"{message}: {re.sub(r' *.type=.*$', '', reasons[0])}" if reasons else message


def _crash(lines: list[LogLine]) -> str:
    return next((line.message.strip() for line in reversed(lines) if CRASH.match(line.message)), "")


def _error_level(lines: list[LogLine]) -> str:
    levels = ("ERROR", "CRITICAL")
    return next((line.message.strip() for line in reversed(lines) if line.level in levels), "")


def _last(lines: list[LogLine]) -> str:
    return lines[-1].message.strip() if lines else ""


def is_fault_of_the_host(cause: str, code: int | None) -> bool:
    """Whether a vLLM of our own died by no fault of its model: by its own words, or killed from outside."""
    return code == 128 + signal.SIGKILL or any(text in cause for text in OF_THE_HOST)


def exit_meaning(code: int) -> str:
    """`exit code 1`, `signal SIGSEGV`; above 128 a shell's way to say that a signal ended it."""
    if code > 128:
        try:
            return f"signal {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"exit code {code}"
