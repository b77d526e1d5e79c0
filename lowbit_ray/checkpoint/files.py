"""Files of a checkpoint folder that no server must be handed: pickles, programs, links that lead out.

A pickle runs code when it is loaded. Programs have no place beside weights: on the checkpoint track our
engine serves, and nothing of the submission's runs. What a file is follows from its name and its first bytes;
the executable bit says nothing, as many file systems set it on everything and sealing takes it away.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from lowbit_ray.checkpoint.findings import Finding
from lowbit_ray.errors import AbsentError, CheckpointError

__all__ = ["classify_name", "list_files", "unsafe_files"]

Kind = Literal["pickle", "program"]
PICKLES = frozenset({".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"})
PROGRAMS = frozenset(
    {
        ".bat",
        ".cu",
        ".dll",
        ".dylib",
        ".exe",
        ".js",
        ".pl",
        ".ps1",
        ".py",
        ".pyc",
        ".pyd",
        ".rb",
        ".sh",
        ".so",
        ".whl",
    }
)
MAX_FILES = 20_000
MAX_DEPTH = 16


def classify_name(name: str) -> Kind | None:
    """What a file's name says it is."""
    suffixes = {suffix.lower() for suffix in Path(name).suffixes[-2:]}
    if suffixes & PICKLES:
        return "pickle"
    return "program" if suffixes & PROGRAMS else None


def list_files(folder: Path) -> list[str]:
    """Relative POSIX paths of all files under `folder`, sorted.

    Raises CheckpointError for a link that leads out of the folder or nowhere, for pipes and devices, and for
    endless trees. Links within the folder are listed like the files they lead to.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise AbsentError("not a folder", where=folder.name)
    found: list[str] = []
    pending = [(root, 0)]
    while pending:
        current, depth = pending.pop()
        for entry in _entries(current):
            name = _admit_entry(entry, root)
            if not entry.is_dir(follow_symlinks=False):
                found.append(name)
            elif depth < MAX_DEPTH:
                pending.append((Path(entry.path), depth + 1))
            else:
                raise CheckpointError("folders are nested too deeply", where=name[:200], expected=MAX_DEPTH)
        if len(found) > MAX_FILES:
            raise CheckpointError("too many files", where=folder.name, expected=f"at most {MAX_FILES}")
    return sorted(found)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise CheckpointError(f"the folder cannot be read: {error.strerror}", where=folder.name) from None


def _admit_entry(entry: os.DirEntry[str], root: Path) -> str:
    """The entry's path under `root`; CheckpointError when it is no file or folder, or leads out."""
    name = Path(entry.path).relative_to(root).as_posix()
    if not name.isprintable():
        raise CheckpointError("a file's name holds control characters", where=ascii(name)[:200])
    if entry.is_symlink():
        _check_link(Path(entry.path), root, name)
    if not entry.is_dir(follow_symlinks=False) and not stat.S_ISREG(entry.stat().st_mode):
        raise CheckpointError("neither a file nor a folder", where=name)
    return name


def _check_link(path: Path, root: Path, name: str) -> None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise CheckpointError("a link leads nowhere", where=name) from None
    if not target.is_relative_to(root):
        raise CheckpointError(
            "a link leads out of the checkpoint", where=name, remedy="Replace it by the file itself (cp -L)."
        )


def unsafe_files(folder: Path, names: list[str], breaks: bool = True) -> Iterator[Finding]:
    """A finding for each pickle and each program among `names`."""
    for name in names:
        kind = classify_name(name) or _classify_bytes(folder / name)
        if kind is not None:
            yield Finding(
                file=name,
                field="",
                found=f"a {kind}",
                expected="weights in safetensors, configuration and tokenizer files",
                summary="a pickle runs code when it is loaded"
                if kind == "pickle"
                else "a program beside the weights",
                rule="files",
                breaks=breaks,
            )


def _classify_bytes(path: Path) -> Kind | None:
    """What a file's first bytes say it is; the length of a safetensors header says nothing."""
    if path.suffix == ".safetensors":
        return None
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise CheckpointError(f"the file cannot be read: {error.strerror}", where=path.name) from None
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    if start.startswith((b"\x7fELF", b"#!", b"MZ")):
        return "program"
    return None
