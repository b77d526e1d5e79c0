"""Safetensors headers: what is read, and every lie that a header can tell."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from small_checkpoints import header_bytes, plain_tensors, write_file, write_shards

from lowbit_ray.checkpoint.header import DTYPE_BITS, read_headers
from lowbit_ray.errors import CheckpointError

GOOD: dict[str, Any] = {
    "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b.weight": {"dtype": "I8", "shape": [4], "data_offsets": [12, 16]},
}


def write(folder: Path, entries: dict[str, Any], data: int = 16) -> Path:
    (folder / "model.safetensors").write_bytes(header_bytes(entries) + bytes(data))
    return folder


def changed(name: str, **fields: Any) -> dict[str, Any]:
    return {**GOOD, name: {**GOOD[name], **fields}}


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_headers(folder)
    return str(caught.value)


def test_names_dtypes_shapes_and_bytes_are_read(tmp_path: Path) -> None:
    tensors = read_headers(write(tmp_path, GOOD)).tensors
    first = tensors["a.weight"]
    assert (first.dtype, first.shape, first.nbytes, first.file) == ("BF16", (2, 3), 12, "model.safetensors")


def test_every_dtype_of_the_library_is_known(tmp_path: Path) -> None:
    for dtype, bits in DTYPE_BITS.items():
        write_file(tmp_path / "model.safetensors", {"a": (dtype, (8,))})
        assert library_accepts(tmp_path / "model.safetensors"), dtype
        assert read_headers(tmp_path).tensors["a"].nbytes == bits
    binary = next(Path(safetensors.__file__).parent.glob("*.so")).read_bytes()
    assert f"variant index 0 <= i < {len(DTYPE_BITS)}".encode() in binary


def test_packed_dtypes_count_elements_not_bytes(tmp_path: Path) -> None:
    headers = read_headers(
        write(tmp_path, {"a": {"dtype": "F4", "shape": [3, 8], "data_offsets": [0, 12]}}, 12)
    )
    assert headers.tensors["a"].nbytes == 12


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    write_shards(tmp_path, plain_tensors(), 3)
    headers = read_headers(tmp_path)
    assert len(headers.files) == 3
    assert set(headers.tensors) == set(plain_tensors())


def test_a_file_that_the_index_leaves_out_is_reported_not_read(tmp_path: Path) -> None:
    write_shards(tmp_path, plain_tensors(), 2)
    write_file(tmp_path / "extra.safetensors", {"x": ("F32", (1,))})
    assert read_headers(tmp_path).unindexed == ("extra.safetensors",)


def test_a_truncated_file_is_refused_by_name(tmp_path: Path) -> None:
    assert "model.safetensors: the file is truncated" in refused(write(tmp_path, GOOD, 15))


def test_a_file_shorter_than_its_length_field_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x01\x00")
    assert "truncated" in refused(tmp_path)


def test_bytes_of_no_tensor_are_refused(tmp_path: Path) -> None:
    assert "bytes of no tensor" in refused(write(tmp_path, GOOD, 17))


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((2**40).to_bytes(8, "little") + b"{}")
    assert "longer than the file" in refused(tmp_path)


def test_a_header_over_the_limit_is_refused_without_reading_it(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write((2**33).to_bytes(8, "little"))
        file.truncate(2**34)
    started = time.process_time()  # of this process alone: the machine may be busy
    assert "too large" in refused(tmp_path)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "BF17"}, "unknown dtype"),
        ({"dtype": None}, "unknown dtype"),
        ({"dtype": "F32"}, "not those of the shape"),
        ({"shape": [2, 4]}, "not those of the shape"),
        ({"shape": [2, -3]}, "not a count"),
        ({"shape": [2.0, 3]}, "not a count"),
        ({"shape": [True, 6]}, "not a count"),
        ({"shape": [2**63, 0]}, "not a count"),
        ({"shape": "2x3"}, "not a list"),
        ({"shape": [1] * 17}, "too many dimensions"),
        ({"data_offsets": [12, 0]}, "not a pair of offsets"),
        ({"data_offsets": [0]}, "not a pair of offsets"),
        ({"data_offsets": [0, 12, 16]}, "not a pair of offsets"),
        ({"data_offsets": [1, 13]}, "leaves a gap"),
        ({"extra": 1}, "not a tensor's description"),
    ],
)
def test_a_field_that_lies_is_refused_with_its_place(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    text = refused(write(tmp_path, changed("a.weight", **fields)))
    assert message in text
    assert "model.safetensors" in text
    assert "a.weight" in text


def test_overlapping_tensors_are_refused(tmp_path: Path) -> None:
    assert "overlaps" in refused(write(tmp_path, changed("b.weight", data_offsets=[8, 12]), 12))


def test_a_product_that_overflows_64_bits_is_refused(tmp_path: Path) -> None:
    assert "not those of the shape" in refused(
        write(tmp_path, changed("a.weight", shape=[2**62, 2**62, 2**62]))
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a":{"dtype":"I8","shape":[NaN],"data_offsets":[0,1]}}', "not finite"),
        (b'{"a":{"dtype":"I8","shape":[Infinity],"data_offsets":[0,1]}}', "not finite"),
        (b'{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{}}', "stands twice"),
        (b'{"a":{"dtype":"I8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', "stands twice"),
        (b'{"a\\u001b[31m":{}}', "control characters"),
        (b'{"\\ud800":{}}', "control characters"),
        (b'{"\xff":{}}', "not UTF-8"),
        (b'{"a":1', "not JSON"),
        (b'["a"]', "not a JSON object"),
        (b' {"a":1}', "not a JSON object"),
        (b'{"a":' + b"[" * 200_000, "nested too deeply"),
        (b'{"a":' + b"1" * 10_000 + b"}", "not JSON"),
        (b'{"__metadata__":{"format":1}}', "not a map of text"),
        (b'{"__metadata__":[]}', "not a map of text"),
        (b'{"":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}', "empty or too long"),
        (b'{"a":5}', "not a tensor's description"),
    ],
)
def test_a_header_that_misleads_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\0")
    assert message in refused(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_file(tmp_path / f"{name}.safetensors", {"a": ("I8", (1,))})
    assert "in two files" in refused(tmp_path)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({}, "no weight_map"),
        ({"a": "../model.safetensors"}, "not the name of a safetensors file"),
        ({"a": "pytorch_model.bin"}, "not the name of a safetensors file"),
        ({"a": 5}, "not the name of a safetensors file"),
        ({"a": "absent.safetensors"}, "the file is missing"),
        ({"a": "one.safetensors", "b": "one.safetensors"}, "names a tensor that is not in that file"),
        ({"b": "two.safetensors"}, "leaves out a tensor"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path: Path, weight_map: dict[str, Any], message: str) -> None:
    write_file(tmp_path / "one.safetensors", {"a": ("I8", (1,))})
    write_file(tmp_path / "two.safetensors", {"b": ("I8", (1,)), "c": ("I8", (1,))})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert message in refused(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert "holds no safetensors file" in refused(tmp_path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    assert "not a readable folder" in refused(tmp_path / "absent")


def test_a_pipe_does_not_hang_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    assert "not a regular file" in refused(tmp_path)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(\.[a-z0-9]{1,6}){0,3}", fullmatch=True),
        st.tuples(
            st.sampled_from(["float32", "float16", "int8", "uint8", "int64", "bool"]),
            st.lists(st.integers(0, 5), max_size=4),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_what_the_library_writes_is_read_as_it_wrote_it(
    tmp_path_factory: pytest.TempPathFactory, plan: dict[str, tuple[str, list[int]]]
) -> None:
    folder = tmp_path_factory.mktemp("library")
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in plan.items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "np"})
    found = read_headers(folder).tensors
    assert {name: (tensor.shape, tensor.nbytes) for name, tensor in found.items()} == {
        name: (array.shape, array.nbytes) for name, array in arrays.items()
    }


def library_accepts(path: Path) -> bool:
    try:
        with safe_open(path, "np") as file:
            file.keys()
    except (SafetensorError, OSError, ValueError):
        return False
    return True


def test_a_checkpoint_of_1_000_tensors_is_read_in_a_fifth_of_a_second(tmp_path: Path) -> None:
    write_shards(
        tmp_path, {f"model.layers.{n}.mlp.up_proj.weight": ("BF16", (4096, 4096)) for n in range(1000)}, 15
    )
    read_headers(tmp_path)  # the first one loads what Python loads lazily
    started = time.process_time()  # of this process alone: the machine may be busy
    read_headers(tmp_path)
    assert time.process_time() - started < 0.2
