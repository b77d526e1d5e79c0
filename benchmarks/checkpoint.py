"""How long a checkpoint's check and sealing take, without a GPU.

    python benchmarks/checkpoint.py [--gib 2] [--out benchmarks/results/checkpoint.json]

1. Headers and verdict of a synthetic 27B model (Qwen3.5-27B's shapes, BF16 source and int4 candidate, sparse
   files in 15 shards): time of `read_headers`, and of the whole check.
2. Sealing a folder of random bytes beside `sha256sum` over the same files with as many processes as there are
   cores, in turns, from a cold page cache. Sealing also writes a copy; sha256sum only reads.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lowbit_ray.checkpoint.check import check
from lowbit_ray.checkpoint.fetch import seal
from lowbit_ray.checkpoint.header import DTYPE_BITS, read_headers
from lowbit_ray.checkpoint.sealed import discard
from lowbit_ray.rules import load_rules
from lowbit_ray.tasks import load_task

SHARDS = 15
Shape = tuple[int, ...]
Tensors = dict[str, tuple[str, Shape]]

TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 48,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "vocab_size": 248320,
    "rope_parameters": {"rope_theta": 1e7, "rope_type": "default", "partial_rotary_factor": 0.25},
}
GROUP = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": GROUP}},
    "ignore": ["lm_head", r"re:.*visual.*", r"re:.*linear_attn.*"],
}


def layer(number: int) -> Iterator[tuple[str, Shape]]:
    """Weights of one decoder layer; every fourth attends fully, the others linearly."""
    hidden, inner = TEXT["hidden_size"], TEXT["intermediate_size"]
    base = f"model.language_model.layers.{number}"
    yield from (
        (f"{base}.{norm}.weight", (hidden,)) for norm in ("input_layernorm", "post_attention_layernorm")
    )
    yield from ((f"{base}.mlp.{name}_proj.weight", (inner, hidden)) for name in ("gate", "up"))
    yield f"{base}.mlp.down_proj.weight", (hidden, inner)
    if number % 4 == 3:
        shapes = {
            "q_proj": (12288, hidden),
            "k_proj": (1024, hidden),
            "v_proj": (1024, hidden),
            "o_proj": (hidden, 6144),
        }
        yield from ((f"{base}.self_attn.{name}.weight", shape) for name, shape in shapes.items())
        yield from ((f"{base}.self_attn.{name}.weight", (256,)) for name in ("q_norm", "k_norm"))
        return
    linear: dict[str, Shape] = {
        "in_proj_qkv.weight": (10240, hidden),
        "in_proj_z.weight": (6144, hidden),
        "in_proj_b.weight": (48, hidden),
        "in_proj_a.weight": (48, hidden),
        "conv1d.weight": (10240, 1, 4),
        "out_proj.weight": (hidden, 6144),
        "norm.weight": (128,),
        "A_log": (48,),
        "dt_bias": (48,),
    }
    yield from ((f"{base}.linear_attn.{name}", shape) for name, shape in linear.items())


def source_tensors() -> Tensors:
    hidden, vocabulary = TEXT["hidden_size"], TEXT["vocab_size"]
    shapes = dict(item for number in range(TEXT["num_hidden_layers"]) for item in layer(number))
    shapes |= {
        "model.language_model.embed_tokens.weight": (vocabulary, hidden),
        "model.language_model.norm.weight": (hidden,),
        "lm_head.weight": (vocabulary, hidden),
    }
    # one MTP layer and the vision tower's matrices bring it to the number of tensors such a checkpoint has
    shapes |= {name.replace("language_model.layers.3", "mtp.layers.0"): shape for name, shape in layer(3)}
    shapes |= {f"model.visual.blocks.{n}.attn.qkv.weight": (3456, 1152) for n in range(27)}
    shapes |= {f"model.visual.blocks.{n}.mlp.linear_fc1.weight": (4304, 1152) for n in range(27)}
    return {name: ("BF16", shape) for name, shape in shapes.items()}


def candidate_tensors() -> Tensors:
    """int4 in groups of 128 for attention and MLP, the rest as it was."""
    found: Tensors = {}
    for name, (dtype, shape) in source_tensors().items():
        module = name.removesuffix(".weight")
        quantized = len(shape) == 2 and (".mlp." in name or ".self_attn." in name) and "visual" not in name
        if not quantized:
            found[name] = (dtype, shape)
            continue
        rows, columns = shape
        found[f"{module}.weight_packed"] = ("I32", (rows, columns // 8))
        found[f"{module}.weight_shape"] = ("I64", (2,))
        found[f"{module}.weight_scale"] = ("BF16", (rows, columns // 128))
    return found


def write_sparse(folder: Path, tensors: Tensors, quantization: dict[str, Any] | None) -> None:
    """Headers and holes: 50 GiB of zeros that take no disk space."""
    folder.mkdir()
    names, weight_map = list(tensors), {}
    for number in range(SHARDS):
        file = f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
        entries, position = {}, 0
        for name in names[number::SHARDS]:
            dtype, shape = tensors[name]
            size = math.prod(shape) * DTYPE_BITS[dtype] // 8
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
            position, weight_map[name] = position + size, file
        head = json.dumps(entries).encode()
        with (folder / file).open("wb") as stream:
            stream.write(len(head).to_bytes(8, "little") + head)
            stream.truncate(8 + len(head) + position)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": TEXT,
    }
    extra = {"quantization_config": quantization} if quantization else {}
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False, **extra}))


def seconds(call: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median and largest wall time of some calls, after one that is not counted."""
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return {"median_s": round(statistics.median(times), 4), "largest_s": round(max(times), 4)}


def time_check(folder: Path) -> dict[str, Any]:
    write_sparse(folder / "source", source_tensors(), None)
    write_sparse(folder / "candidate", candidate_tensors(), QUANTIZATION)
    rules, task = load_rules(), load_task("qwen35-27b")

    def whole() -> Any:
        return check(folder / "source", folder / "candidate", task=task, rules=rules)

    report = whole()
    assert report.kept, report.reason
    assert report.precision is not None
    return {
        "source_tensors": len(source_tensors()),
        "candidate_tensors": len(candidate_tensors()),
        "shards": SHARDS,
        "source_gib": round(report.contract.source_gib, 2),
        "read_as": report.precision.label,
        "headers": seconds(lambda: read_headers(folder / "candidate"), 9),
        "check": seconds(whole, 9),
    }


def forget(folder: Path) -> None:
    """Drops a folder's files from the page cache."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def time_sealing(folder: Path, gib: float, repeats: int) -> dict[str, Any]:
    """Sealing and sha256sum in turns, each from a cold cache."""
    source, cores = folder / "weights", os.cpu_count() or 1
    source.mkdir()
    files = [source / f"model-{n:05d}.safetensors" for n in range(2 * cores)]
    for path in files:
        with path.open("wb") as stream:
            for _ in range(int(gib * 1024 / len(files))):
                stream.write(os.urandom(2**20))
    total = sum(path.stat().st_size for path in files)
    sealing, summing = [], []
    for _ in range(repeats):
        forget(source)
        started = time.perf_counter()
        subprocess.run(
            ["xargs", "-0", "-n", "1", "-P", str(cores), "sha256sum"],
            input="\0".join(map(str, files)).encode(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        summing.append(total / (time.perf_counter() - started) / 2**20)
        forget(source)
        started = time.perf_counter()
        sealed = seal(source, folder / "sealed", limit_gib=gib + 1)
        sealing.append(total / (time.perf_counter() - started) / 2**20)
        discard(sealed.path)
    return {
        "gib": round(total / 2**30, 2),
        "files": len(files),
        "sealing_mib_s": [round(value) for value in sealing],
        "sha256sum_mib_s": [round(value) for value in summing],
        "ratio_of_medians": round(statistics.median(sealing) / statistics.median(summing), 3),
        # on a machine that others use too, the best of each is the least disturbed
        "ratio_of_best": round(max(sealing) / max(summing), 3),
    }


def machine() -> dict[str, Any]:
    text = Path("/proc/cpuinfo").read_text()
    model = next(
        (line.partition(": ")[2] for line in text.splitlines() if line.startswith("model name")), "unknown"
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "pydantic": importlib.metadata.version("pydantic"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=2.0, help="random bytes to seal")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file to write beside printing")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lowbit-benchmark-"))
    try:
        result = {
            "machine": machine(),
            "check_27b": time_check(folder),
            "sealing": time_sealing(folder, options.gib, options.repeats),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(result, indent=1)
    sys.stdout.write(f"{text}\n")
    if options.out:
        options.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
