"""Makes checkpoints of Qwen3's shape on the spot: a BF16 source of random weights, and candidates quantized from it.

    python -m benchmarks.gpu.checkpoints MADE [--shape qwen3-8b] [--formats fp8,w4a16] [--device cuda]

Writes MADE/text (hidden text), MADE/SHAPE (the source), MADE/SHAPE-fp8, MADE/SHAPE-w4a16; each appears whole or not at
all, and is kept when it is there. Needs torch and tokenizers alone, so that it can run before the product's own
packages have arrived. The seed is fixed: the same machine kind makes the same bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.gpu.formats import FP8, KV_SCALE, W4A16, Format
from benchmarks.gpu.weights import QWEN3_8B, TINY, config_of, model_tensors
from benchmarks.gpu.words import make_tokenizer, successors, write_text

__all__ = ["FORMATS", "SHAPES", "make", "quantize_folder"]

SHAPES = {"qwen3-8b": QWEN3_8B, "tiny": TINY}
FORMATS = {"fp8": FP8, "w4a16": W4A16}
SEED = 20250
ANSWER_TOKENS = 96
TEXT_CHARACTERS = 8_000_000
SHARD_BYTES = 4 * 2**30
NAMES = {
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int32: "I32",
    torch.int64: "I64",
}
WRITERS = ThreadPoolExecutor(6)


class Folder:
    """A checkpoint being written: `model-….safetensors` of some GiB each, their index, and small files."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.part = target.with_name(f".{target.name}.part")
        shutil.rmtree(self.part, ignore_errors=True)
        self.part.mkdir(parents=True)
        self._tensors: dict[str, Tensor] = {}
        self._bytes = 0
        self._written: list[tuple[Future[None], list[str]]] = []
        self._total = 0

    def add(self, name: str, value: Tensor) -> None:
        """Takes a tensor from whatever device it is on."""
        here = value.detach().to("cpu").contiguous()
        self._tensors[name] = here
        self._bytes += here.nbytes
        if self._bytes >= SHARD_BYTES:
            self._write()

    def finish(self, config: dict[str, object]) -> None:
        """Writes what is left, the index and config.json, and gives the folder its name."""
        self._write()
        count = len(self._written)
        index: dict[str, str] = {}
        for number, (future, names) in enumerate(self._written):
            future.result()
            file = f"model-{number + 1:05d}-of-{count:05d}.safetensors" if count > 1 else "model.safetensors"
            (self.part / f"{number}.part").rename(self.part / file)
            index |= dict.fromkeys(names, file)
        if count > 1:
            text = json.dumps({"metadata": {"total_size": self._total}, "weight_map": index}, indent=1)
            (self.part / "model.safetensors.index.json").write_text(text)
        (self.part / "config.json").write_text(json.dumps(config, indent=1))
        self.part.rename(self.target)

    def _write(self) -> None:
        if self._tensors:
            path, tensors = self.part / f"{len(self._written)}.part", self._tensors
            self._written.append((WRITERS.submit(_write_file, path, tensors), list(tensors)))
            self._total += self._bytes
            self._tensors, self._bytes = {}, 0


def _write_file(path: Path, tensors: dict[str, Tensor]) -> None:
    """A safetensors file, straight from the tensors' own memory."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, value in tensors.items():
        header[name] = {
            "dtype": NAMES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [place, place + value.nbytes],
        }
        place += value.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for value in tensors.values():
            file.write(value.view(torch.uint8).numpy().data)


def make(made: Path, shape_name: str, formats: list[str], device: str) -> None:
    """Makes the source and the candidates that are not there yet; all in one pass over the layers."""
    shape, source = SHAPES[shape_name], made / shape_name
    missing = [name for name in formats if not (made / f"{shape_name}-{name}").is_dir()]
    if source.is_dir() and not missing:
        return
    text = made / "text"
    if not text.is_dir():
        write_text(made / ".text.part", TEXT_CHARACTERS if shape is QWEN3_8B else TEXT_CHARACTERS // 8)
        (made / ".text.part").rename(text)
    _say("text is there")
    small = made / f".{shape_name}.small"
    small.mkdir(parents=True, exist_ok=True)
    used = make_tokenizer(text, small, trained=shape.trained, plain=shape.plain, vocabulary=shape.vocabulary)
    _say(f"tokenizer of {used} pieces is there")
    successor = successors(small, used, ANSWER_TOKENS if shape is QWEN3_8B else 12, SEED)
    config = config_of(shape)
    ends = {"bos_token_id": shape.plain, "eos_token_id": [shape.plain + 2, shape.plain]}
    (small / "generation_config.json").write_text(json.dumps(ends))
    _write_all(made, shape_name, missing, config, model_tensors(shape, successor, device, SEED), small)


def _write_all(
    made: Path,
    shape_name: str,
    formats: list[str],
    config: dict[str, object],
    tensors: Iterator[tuple[str, Tensor]],
    small: Path,
) -> None:
    source = made / shape_name
    plain = None if source.is_dir() else Folder(source)
    folders = {name: Folder(made / f"{shape_name}-{name}") for name in formats}
    for name, value in tensors:
        if plain is not None:
            plain.add(name, value)
        for form, folder in folders.items():
            _add(folder, FORMATS[form], name, value)
    for file in small.iterdir():
        for folder in (*folders.values(), *([plain] if plain else [])):
            shutil.copy(file, folder.part / file.name)
    for form, folder in folders.items():
        folder.finish({**config, "quantization_config": FORMATS[form].config})
        _say(f"{folder.target.name} is there")
    if plain is not None:
        plain.finish(config)
        _say(f"{source.name} is there")


def _add(folder: Folder, form: Format, name: str, value: Tensor, kv_scale: float = KV_SCALE) -> None:
    """Adds a tensor of the source in the candidate's form."""
    if not name.endswith("_proj.weight"):
        folder.add(name, value)
        return
    module = name.removesuffix("weight")
    for part, quantized in form.quantize(value).items():
        folder.add(module + part, quantized)
    for letter in "kv":
        if form.kv_scales and name.endswith(f".{letter}_proj.weight"):
            folder.add(f"{module}{letter}_scale", torch.tensor([kv_scale]))


def quantize_folder(source: Path, target: Path, form: Format, *, kv_scale: float) -> Path:
    """Quantizes a BF16 checkpoint of one file; a finished `target` is kept."""
    from safetensors import safe_open

    if target.is_dir():
        return target
    folder = Folder(target)
    with safe_open(source / "model.safetensors", framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  # not a dict
            _add(folder, form, name, file.get_tensor(name), kv_scale)
    for path in source.iterdir():
        if path.suffix in {".json", ".jinja"} and path.name != "config.json":
            shutil.copy(path, folder.part / path.name)
    config = json.loads((source / "config.json").read_text())
    folder.finish({**config, "quantization_config": form.config})
    return target


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)  # a script's progress


def main() -> int:
    """Parses the command line and makes what is asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.checkpoints", description=__doc__)
    parser.add_argument("made", type=Path, help="folder of the checkpoints")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-8b")
    parser.add_argument("--formats", default="fp8,w4a16", help="candidates, with commas between them")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    arguments.made.mkdir(parents=True, exist_ok=True)
    formats = [name for name in arguments.formats.split(",") if name]
    make(arguments.made, arguments.shape, formats, arguments.device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
