"""Holds GPU memory until its standard input closes or its parent dies.

    python -I filler_child.py FREE_BYTES

Started by `filler.py`, never imported by the package; only the standard library and the driver's library.
Allocates on the first visible GPU until FREE_BYTES are free, prints one line of JSON (`held_bytes`,
`free_bytes`; or `error`), and waits.
"""

import ctypes
import json
import os
import select
import sys
import time
from collections.abc import Callable

CHUNKS = (2**30, 2**26, 2**21)
"""Bytes of one allocation, coarse to fine: 2 MiB is the driver's granularity."""
SETTLE_S = 0.2
ROUNDS = 10
TICK_S = 0.5


def fill(keep: int, free: Callable[[], int], allocate: Callable[[int], bool]) -> int:
    """Allocates until less than the finest chunk more than `keep` bytes is free; the bytes it holds then.

    The device's own count is asked before every allocation, as one may cost more than its size.
    """
    held = 0
    for chunk in CHUNKS:
        while free() - keep >= chunk and allocate(chunk):
            held += chunk
    return held


def fill_and_settle(keep: int, free: Callable[[], int], allocate: Callable[[int], bool]) -> tuple[int, int]:
    """Fills until two looks in a row find nothing to fill: (held, free) in bytes.

    A process that has just ended may give its memory back late.
    """
    held = 0
    for _ in range(ROUNDS):
        more = fill(keep, free, allocate)
        held += more
        if held and not more:
            break
        time.sleep(SETTLE_S)
    return held, free()


class Driver:
    """The few calls of libcuda that are needed."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._check(self._cuda.cuInit(0), "cuInit")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._check(self._cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
        self._check(
            self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain"
        )
        self._check(self._cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")

    def free(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self._cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        return free.value

    def allocate(self, size: int) -> bool:
        pointer = ctypes.c_uint64()
        return bool(self._cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0)

    def _check(self, code: int, call: str) -> None:
        if code != 0:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{call}: {(text.value or b'?').decode()} ({code})")


def wait_for_the_end() -> None:
    """Returns when standard input closes or the parent has died.

    Not PR_SET_PDEATHSIG: that is sent when the *thread* ends which started this process, and threads of a
    pool come and go.
    """
    parent = os.getppid()
    while os.getppid() == parent:
        if select.select([0], [], [], TICK_S)[0] and not os.read(0, 1):
            return


def main(arguments: list[str], driver: Callable[[], Driver] = Driver) -> int:
    keep = int(arguments[0])
    try:
        device = driver()
        held, free = fill_and_settle(keep, device.free, device.allocate)
    except (OSError, RuntimeError) as error:
        print(json.dumps({"error": str(error)}), flush=True)  # noqa: T201 - the report
        return 1
    print(json.dumps({"held_bytes": held, "free_bytes": free}), flush=True)  # noqa: T201 - the report
    wait_for_the_end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
