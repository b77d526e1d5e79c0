"""Tokenizer and chat template beside the source's.

Our vLLM serves a candidate with the source's own, so that a changed one moves no number; an engine that reads the
candidate's folder itself would tokenize otherwise. Either way it is worth knowing, and breaks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lowbit_ray.checkpoint.findings import Finding, show

__all__ = ["compare_tokenizers"]

PARTS = ("model", "added_tokens", "normalizer", "pre_tokenizer", "decoder")
"""What of tokenizer.json decides which ids a text becomes, and which text ids become."""
TEMPLATE = "chat_template"


def compare_tokenizers(source: Path, candidate: Path) -> Iterable[Finding]:
    """A finding for each part of the tokenizer that is not the source's; files that a side lacks are passed over."""
    ours, theirs = _read(source / "tokenizer.json"), _read(candidate / "tokenizer.json")
    if ours and theirs:
        for part in PARTS:
            if ours.get(part) != theirs.get(part):
                found, expected = show(theirs.get(part), 60), show(ours.get(part), 60)
                if found == expected:
                    found, expected = "another one", "the source's"
                yield _finding("tokenizer.json", part, found, expected)
    ours_text, theirs_text = _template(source), _template(candidate)
    if ours_text is not None and theirs_text is not None and ours_text != theirs_text:
        yield _finding(
            "tokenizer_config.json or chat_template.jinja",
            TEMPLATE,
            show(theirs_text, 60),
            show(ours_text, 60),
        )


def _finding(file: str, field: str, found: str, expected: str) -> Finding:
    return Finding(
        file=file,
        field=field,
        found=found,
        expected=expected,
        summary="not the source's; our vLLM serves the candidate with the source's own",
        rule="execution",
        breaks=False,
    )


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none that can be read."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(read, dict):
        return {}
    model = read.get("model")
    if isinstance(model, dict) and isinstance(model.get("merges"), list):
        # either spelling of the format: "a b" or ["a", "b"]
        pairs = [merge if isinstance(merge, str) else " ".join(map(str, merge)) for merge in model["merges"]]
        read["model"] = {**model, "merges": pairs}
    return read


def _template(folder: Path) -> str | None:
    """The chat template as transformers finds it: its own file first."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace").strip()
    template = _read(folder / "tokenizer_config.json").get(TEMPLATE)
    return template.strip() if isinstance(template, str) else None
