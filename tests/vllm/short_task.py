"""The task `smollm2-135m` with a fraction of its requests, on one thread: as all of its stages, in minutes."""

from __future__ import annotations

from pathlib import Path

import yaml

from lowbit_ray.tasks import TASKS

__all__ = ["write_short_task"]

SHAPES = {"serve": (256, 16, 4, 4), "interactive": (32, 16, 2, 1)}
"""Prompt and answer in tokens, requests, and how many of them at once; a third workload costs another start of vLLM.
Under its cap a server is given the longest of these as its length, and the accuracy items have to fit."""


def write_short_task(folder: Path) -> None:
    """Writes the task's file, under the task's own name."""
    fields = yaml.safe_load((TASKS / "smollm2-135m.yaml").read_text())
    fields["workloads"] = {name: fields["workloads"][name] for name in SHAPES}
    for name, (prompt, answer, requests, at_once) in SHAPES.items():
        fields["workloads"][name] |= {
            "input_len": prompt,
            "output_len": answer,
            "num_prompts": requests,
            "max_concurrency": at_once,
        }
    fields["kl"] |= {"sequences": 6, "max_tokens": 16, "max_concurrency": 4}
    fields["perplexity"]["hidden"] |= {"windows": 2, "window_len": 64}
    for domain in fields["accuracy"]["domains"].values():
        domain |= {"items": 4}
    fields["audit"] |= {"samples": 2}
    fields["speed_floor"] = 0.1
    # threads that wait for each other crawl where other tests run beside them
    fields["pod"] |= {"cpus": 1}
    folder.mkdir(parents=True)
    (folder / "smollm2-135m.yaml").write_text(yaml.safe_dump(fields, sort_keys=False))
