"""The headers of a safetensors checkpoint: names, dtypes, shapes and bytes, without torch.

A file is `<8 bytes: length n, little endian> <n bytes: JSON> <tensor bytes>`. The JSON maps each name to
`{"dtype", "shape", "data_offsets": [begin, end]}`, offsets counted from the end of the JSON; together they
cover the rest of the file exactly (https://github.com/huggingface/safetensors#format). Nothing but the header
is read, so a checkpoint of any size costs milliseconds; every claim that can be checked without the data is.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from lowbit_ray.checkpoint.json_file import parse_object, read_object
from lowbit_ray.errors import CheckpointError

__all__ = ["DTYPE_BITS", "INDEX", "Headers", "Tensor", "read_bytes", "read_headers"]

DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}
"""Bits of one element; a shape counts elements, also of the packed four- and six-bit types."""

INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 16 * 2**20
"""Of one file. The library allows 100 MB; the largest public checkpoints need less than 3."""
MAX_TENSORS = 500_000
MAX_FILES = 10_000
MAX_DIMENSIONS = 16
MAX_NAME = 512


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as its header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Headers:
    """All tensors of a checkpoint folder."""

    folder: Path
    tensors: dict[str, Tensor]
    files: tuple[str, ...]
    """The safetensors files that are part of the checkpoint, sorted."""
    unindexed: tuple[str, ...]
    """Safetensors files beside them that the index does not name; engines do not load them."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, without the headers."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def read_headers(folder: Path) -> Headers:
    """Reads every safetensors header of `folder`: the files its index names, or all there are without one.

    Raises CheckpointError that names the file and the tensor or field.
    """
    try:
        present = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".safetensors"))
    except OSError as error:
        raise CheckpointError(f"not a readable folder: {error.strerror}", where=folder.name) from None
    if len(present) > MAX_FILES:
        raise CheckpointError(
            "too many safetensors files", where=folder.name, found=len(present), expected=MAX_FILES
        )
    indexed = _read_index(folder / INDEX) if (folder / INDEX).exists() else None
    files = present if indexed is None else sorted(set(indexed.values()))
    if not files:
        raise CheckpointError(
            "the folder holds no safetensors file",
            where=folder.name,
            expected="model.safetensors, or shards with model.safetensors.index.json",
            remedy="Save the checkpoint in safetensors format.",
        )
    tensors: dict[str, Tensor] = {}
    for name in files:
        for tensor in _read_file(folder / name):
            other = tensors.setdefault(tensor.name, tensor)
            if other is not tensor:
                raise CheckpointError(
                    "a tensor is in two files", where=f"{name}: {tensor.name}", found=other.file
                )
        if len(tensors) > MAX_TENSORS:
            raise CheckpointError("too many tensors", where=name, found=len(tensors), expected=MAX_TENSORS)
    if indexed is not None:
        _compare_with_index(tensors, indexed)
    return Headers(folder, tensors, tuple(files), tuple(sorted(set(present) - set(files))))


def _read_index(path: Path) -> dict[str, str]:
    weight_map = read_object(path, 64 * 2**20).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError("the index has no weight_map", where=f"{path.name}: weight_map")
    for tensor, file in weight_map.items():
        plain = isinstance(file, str) and file.endswith(".safetensors") and file == Path(file).name
        if not plain or not file.isprintable():
            raise CheckpointError(
                "not the name of a safetensors file in this folder",
                where=f"{path.name}: weight_map.{tensor[:MAX_NAME]}",
                found=ascii(file)[:100],
            )
    return weight_map


def _compare_with_index(tensors: dict[str, Tensor], indexed: dict[str, str]) -> None:
    for name, file in indexed.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.file != file:
            raise CheckpointError(
                "the index names a tensor that is not in that file",
                where=f"{INDEX}: weight_map.{name[:MAX_NAME]}",
                found="no such tensor" if tensor is None else tensor.file,
                expected=file,
            )
    for name, tensor in tensors.items():
        if name not in indexed:
            raise CheckpointError(
                "the index leaves out a tensor", where=f"{tensor.file}: {name}", expected=INDEX
            )


def _read_file(path: Path) -> list[Tensor]:
    """All tensors of one file, in the order of their bytes."""
    header, data_bytes = _read_header(path)
    header.pop("__metadata__", None)
    spans = []
    for name, entry in header.items():
        begin, end, tensor = _read_entry(name, entry, path.name)
        spans.append((begin, end, name, tensor))
    spans.sort(key=lambda span: span[:2])
    position = 0
    for begin, end, name, _ in spans:
        if begin != position:
            what = "overlaps the tensor before it" if begin < position else "leaves a gap before it"
            raise CheckpointError(
                f"the tensor {what}",
                where=f"{path.name}: {name}: data_offsets",
                found=f"begin {begin}",
                expected=f"begin {position}",
            )
        position = end
    if position != data_bytes:
        what = "the file is truncated" if position > data_bytes else "the file holds bytes of no tensor"
        raise CheckpointError(
            what, where=path.name, found=f"{data_bytes} bytes after the header", expected=f"{position} bytes"
        )
    return [span[3] for span in spans]


def read_bytes(folder: Path, tensors: Iterable[Tensor]) -> Iterator[tuple[Tensor, bytes]]:
    """Each of some small tensors, of headers that have been read, with its bytes."""
    for file, group in groupby(sorted(tensors, key=attrgetter("file", "name")), attrgetter("file")):
        header, data_bytes = _read_header(folder / file)
        with (folder / file).open("rb") as opened:
            start = opened.seek(0, os.SEEK_END) - data_bytes
            for tensor in group:
                begin, end = header[tensor.name]["data_offsets"]
                opened.seek(start + begin)
                yield tensor, opened.read(end - begin)


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The parsed header and the number of bytes that follow it."""
    name = path.name
    try:
        # a pipe or a device would block in open() for ever
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError("not a regular file", where=name, expected="a safetensors file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(8)
            if len(prefix) < 8:
                raise CheckpointError(
                    "the file is truncated", where=name, found=f"{size} bytes", expected="at least 8"
                )
            length = int.from_bytes(prefix, "little")
            if length > size - 8:
                raise CheckpointError(
                    "the header is longer than the file",
                    where=f"{name}: header length",
                    found=f"{length} bytes",
                    expected=f"at most {size - 8}",
                    remedy="The file is truncated, or not in safetensors format.",
                )
            if length > MAX_HEADER_BYTES:
                raise CheckpointError(
                    "the header is too large",
                    where=f"{name}: header length",
                    found=f"{length} bytes",
                    expected=f"at most {MAX_HEADER_BYTES}",
                )
            data = file.read(length)
    except FileNotFoundError:
        raise CheckpointError("the file is missing", where=name, expected=f"as {INDEX} names it") from None
    except OSError as error:
        raise CheckpointError(f"the file cannot be read: {error.strerror}", where=name) from None
    if len(data) != length or data[:1] != b"{":
        raise CheckpointError(
            "the header is not a JSON object", where=f"{name}: header", found=ascii(data[:16])
        )
    header = parse_object(data, f"{name}: header")
    metadata = header.get("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError("not a map of text to text", where=f"{name}: __metadata__")
    return header, size - 8 - length


def _read_entry(name: str, entry: object, file: str) -> tuple[int, int, Tensor]:
    where = f"{file}: {name[:MAX_NAME]}"
    if not name or len(name) > MAX_NAME:
        raise CheckpointError(
            "the tensor's name is empty or too long", where=where, found=f"{len(name)} characters"
        )
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        found = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        raise CheckpointError(
            "not a tensor's description",
            where=where,
            found=str(found)[:100],
            expected="dtype, shape, data_offsets",
        )
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise CheckpointError("unknown dtype", where=f"{where}: dtype", found=ascii(dtype)[:60])
    shape = _counts(entry["shape"], f"{where}: shape")
    if len(shape) > MAX_DIMENSIONS:
        raise CheckpointError(
            "too many dimensions", where=f"{where}: shape", found=len(shape), expected=MAX_DIMENSIONS
        )
    offsets = _counts(entry["data_offsets"], f"{where}: data_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(
            "not a pair of offsets",
            where=f"{where}: data_offsets",
            found=str(list(offsets))[:100],
            expected="[b, e]",
        )
    bits = math.prod(shape) * DTYPE_BITS[dtype]
    nbytes = offsets[1] - offsets[0]
    if bits != nbytes * 8:
        raise CheckpointError(
            "the bytes are not those of the shape",
            where=f"{where}: data_offsets",
            found=f"{nbytes} bytes",
            expected=f"{bits // 8 if bits % 8 == 0 else bits / 8} ({dtype} × {list(shape)})",
        )
    return offsets[0], offsets[1], Tensor(name, dtype, shape, nbytes, file)


def _counts(value: object, where: str) -> tuple[int, ...]:
    """A JSON list of whole numbers from 0 to 2^63 − 1."""
    if not isinstance(value, list):
        raise CheckpointError("not a list", where=where, found=type(value).__name__)
    for item in value:
        if type(item) is not int or not 0 <= item < 2**63:
            raise CheckpointError(
                "not a count", where=where, found=ascii(item)[:60], expected="a whole number, 0 or more"
            )
    return tuple(value)
