"""Engines of the engine track for tests: folders with a launch.sh that starts the fake engine, or what is told."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["SERVE", "write_launch"]

FAKES = Path(__file__).parent
SERVE = (
    'exec python "$here/engine.py" --model "$LOWBIT_MODEL_DIR" --port "$LOWBIT_PORT" '
    '--served-model-name "$LOWBIT_SERVED_NAME" --max-model-len "$LOWBIT_MAX_MODEL_LEN" --max-logprobs -1'
)
"""Starts the fake engine as a participant would."""


def write_launch(folder: Path, *lines: str, accounts: bool = False) -> Path:
    """A folder with launch.sh; `lines` run before the fake engine is started, and may replace it.

    With `accounts` it prints vLLM's start-up lines, else nothing of the kind.
    """
    folder.mkdir(parents=True)
    for path in FAKES.glob("*.py"):
        shutil.copy(path, folder / path.name)
    serve = SERVE if accounts else f"{SERVE} > /dev/null"
    script = ["#!/usr/bin/env bash", "set -eu", 'here=$(dirname "$0")', '[ "$1" = serve ]', *lines, serve]
    (folder / "launch.sh").write_text("\n".join(script) + "\n")
    return folder
