"""Runs an answer's code behind limits and a system-call filter. A script, not a module: the child interpreter
starts it with `-I -S`, without this package, site-packages or an environment.

Standard input: JSON {code, expressions, cpu_s, memory_bytes, max_chars}. Standard output: one JSON line an
expression, {"value": repr} or {"error": exception's class}.

Order matters. Imports first: when the filter is on, no file can be opened any more. Then rlimits (CPU
seconds, address space, no core file, few descriptors), then a seccomp filter which allows what a computing
interpreter needs (memory, clocks, its three streams) and answers everything else with EPERM: no socket, no
fork, no exec, no file read, written or removed, no signal to another process. A filter needs neither root nor
user namespaces, which containers commonly refuse; where the kernel has none, the script exits with 3 before
any of the code has run.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import platform
import resource
import signal
import struct
import sys
from typing import Any

NO_FILTER = 3
IMPORTABLE = (
    "array bisect cmath collections.abc copy dataclasses datetime decimal enum fractions functools heapq "
    "itertools math numbers operator random re statistics string textwrap time typing"
)
"""What an answer may import; nothing can be imported from disk later."""
_ALLOWED_CALLS = {
    "x86_64": "read:0 write:1 close:3 fstat:5 lseek:8 mmap:9 mprotect:10 munmap:11 brk:12 rt_sigaction:13 "
    "rt_sigprocmask:14 rt_sigreturn:15 sched_yield:24 mremap:25 madvise:28 nanosleep:35 getpid:39 exit:60 "
    "gettimeofday:96 sigaltstack:131 gettid:186 futex:202 sched_getaffinity:204 clock_gettime:228 "
    "clock_getres:229 clock_nanosleep:230 exit_group:231 getrandom:318 rseq:334",
    "aarch64": "read:63 write:64 close:57 fstat:80 lseek:62 mmap:222 mprotect:226 munmap:215 brk:214 "
    "rt_sigaction:134 rt_sigprocmask:135 rt_sigreturn:139 sched_yield:124 mremap:216 madvise:233 "
    "nanosleep:101 getpid:172 exit:93 gettimeofday:169 sigaltstack:132 gettid:178 futex:98 "
    "sched_getaffinity:123 clock_gettime:113 clock_getres:114 clock_nanosleep:115 exit_group:94 "
    "getrandom:278 rseq:293",
}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 1, 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
_KILL, _EPERM, _ALLOW = 0x80000000, 0x00050001, 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _filter_program(machine: str) -> tuple[bytes, int]:
    """BPF: another architecture is killed, a listed call goes through, any other one gets EPERM."""
    architecture = _AUDIT_ARCH[machine]
    numbers = [int(call.partition(":")[2]) for call in _ALLOWED_CALLS[machine].split()]
    rows = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    for index, number in enumerate(numbers):
        rows.append((_EQUAL, len(numbers) - index, 0, number))
    rows += [(_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("<HBBI", *row) for row in rows), len(rows)


def _close_the_doors(cpu_s: int, memory_bytes: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if platform.machine() not in _AUDIT_ARCH or sys.maxsize < 2**32:
        os._exit(NO_FILTER)
    instructions, length = _filter_program(platform.machine())
    program = _Program(length, instructions)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0
    ):
        os._exit(NO_FILTER)


def _evaluated(expression: str, names: dict[str, Any], max_chars: int) -> dict[str, str]:
    try:
        value = repr(eval(expression, names))  # noqa: S307 - behind the filter
    except BaseException as error:  # whatever the answer raises makes it wrong
        return {"error": type(error).__name__}
    return {"value": value} if len(value) <= max_chars else {"error": "OverflowError"}


def main() -> None:
    """Reads the request, closes the doors, runs the code, writes one line an expression."""
    request = json.loads(sys.stdin.buffer.read())
    results = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    for module in IMPORTABLE.split():
        importlib.import_module(module)
    sys.path.clear()
    _close_the_doors(request["cpu_s"], request["memory_bytes"])
    names: dict[str, Any] = {"__name__": "answer"}
    failed = None
    try:
        exec(compile(request["code"], "answer", "exec"), names)  # noqa: S102 - behind the filter
    except BaseException as error:
        failed = {"error": type(error).__name__}
    for expression in request["expressions"]:
        line = failed or _evaluated(expression, names, request["max_chars"])
        results.write(json.dumps(line) + "\n")
        results.flush()
    os._exit(0)  # nothing the answer registered runs after its results


main()
