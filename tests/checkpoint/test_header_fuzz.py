"""Damaged and hostile headers by the thousand: no crash, no hang, bounded memory, nothing the library refuses."""

from __future__ import annotations

import json
import random
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors import SafetensorError, safe_open

from lowbit_ray.checkpoint.header import DTYPE_BITS, read_headers
from lowbit_ray.errors import CheckpointError


def mutate(rng: random.Random, text: bytearray) -> bytes:
    """One to four small damages: flips, cuts, repeats, and other values of fields."""
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(text))
        kind = rng.randrange(7)
        if kind == 0:
            text[position] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del text[position : position + rng.randint(1, 12)]
        elif kind == 2:
            text[position:position] = text[position : position + rng.randint(1, 40)]
        elif kind == 3:
            text[position:position] = rng.choice(
                [b"[", b"{", b"1e9", b"-", b"null", b'"', b"NaN", b"\\u0000", b"\xc3"]
            )
        elif kind == 4:
            text[:] = re.sub(
                rb"\d+",
                lambda match: str(rng.choice([0, 1, 2**31, 2**63, 2**64, -1, int(match[0]) + 1])).encode(),
                bytes(text),
                count=rng.randint(1, 3),
            )
        elif kind == 5:
            text[:] = bytes(text).replace(
                rng.choice(sorted(DTYPE_BITS)).encode(), rng.choice(sorted(DTYPE_BITS)).encode()
            )
        else:
            text[:] = text[: rng.randrange(1, len(text) + 1)]
        if not text:
            return b"{"
    return bytes(text)


def library_accepts(path: Path) -> bool:
    try:
        with safe_open(path, "np") as file:
            file.keys()
    except (SafetensorError, OSError, ValueError):
        return False
    return True


def test_20_000_damaged_headers_neither_crash_nor_pass_what_the_library_refuses(tmp_path: Path) -> None:
    rng = random.Random(20_000)
    path = tmp_path / "model.safetensors"
    accepted = unnamed = 0
    path.touch()
    started = time.monotonic()
    for round_ in range(20_000):
        names = rng.sample(sorted(DTYPE_BITS), 3)
        entries, position = {}, 0
        for number, dtype in enumerate(names):
            shape = [rng.randrange(4), 8]
            size = shape[0] * DTYPE_BITS[dtype]
            entries[f"layer.{number}.weight"] = {
                "dtype": dtype,
                "shape": shape,
                "data_offsets": [position, position + size],
            }
            position += size
        text = mutate(rng, bytearray(json.dumps(entries).encode()))
        length = (
            len(text) if round_ % 8 else rng.choice([0, 1, len(text) - 1, len(text) + 1, 2**31, 2**64 - 1])
        )
        data = struct.pack("<Q", length & 2**64 - 1) + text + bytes(position)
        with path.open("r+b") as file:  # some file systems flush a file that was truncated to nothing
            file.write(data)
            file.truncate()
        try:
            read_headers(tmp_path)
        except CheckpointError as error:
            unnamed += not (error.summary and error.where)
        else:
            accepted += 1
            assert library_accepts(path)
    assert unnamed == 0
    assert accepted > 20  # the mutations are small enough to be meant
    assert time.monotonic() - started < 60


HOSTILE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from pathlib import Path
from lowbit_ray.checkpoint.header import read_headers
from lowbit_ray.errors import CheckpointError
try:
    read_headers(Path(sys.argv[1]))
except CheckpointError as error:
    print("refused:", error.summary)
"""


@pytest.mark.parametrize("unit", [b"{},", b"[],", b'"ab",', b"1.5,", b'{"a":0},'])
def test_the_largest_header_takes_less_than_1_gib(tmp_path: Path, unit: bytes) -> None:
    text = b'{"a":[' + unit * ((2**24 - 16) // len(unit)) + b"0]}"
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, tmp_path], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("refused:"), done.stderr[-400:]
