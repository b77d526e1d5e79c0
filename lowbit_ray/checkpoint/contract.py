"""The checkpoint contract: is the candidate the source, only stored in fewer bits?

1. config.json has the source's architecture and RoPE, and nothing that makes an engine compute otherwise;
2. every place that describes the quantization says the same;
3. every source weight is there in some form, with its shape and with the companions its scheme needs;
4. tensors that are neither a source weight nor a companion of one ("foreign") hold at most the rules' share
   of the source's bytes;
5. no pickle and no program lies beside the weights.

A broken contract is a verdict, not an error: all findings come back at once. Only bytes that cannot be read
as a checkpoint raise CheckpointError.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from lowbit_ray.checkpoint.architecture import compare_architecture
from lowbit_ray.checkpoint.files import list_files, unsafe_files
from lowbit_ray.checkpoint.findings import Finding
from lowbit_ray.checkpoint.generation import compare_generation
from lowbit_ray.checkpoint.header import Headers, Tensor
from lowbit_ray.checkpoint.kv_scales import check_calibration
from lowbit_ray.checkpoint.precision import Precision
from lowbit_ray.checkpoint.reading import Checkpoint, Reading, read_both, read_checkpoint
from lowbit_ray.checkpoint.tokenizing import compare_tokenizers
from lowbit_ray.rules import Rules

__all__ = ["Contract", "Track", "check_contract", "judge"]

Track = Literal["checkpoint", "engine"]
MAX_FINDINGS = 100


class Contract(BaseModel):
    """The verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kept: bool
    findings: tuple[Finding, ...]
    """What breaks it first, then what is only worth knowing; at most 100."""
    foreign_share: float
    """Bytes of foreign tensors / bytes of the source's tensors."""
    foreign: tuple[str, ...]
    """Names of foreign tensors, the largest first, at most 20."""
    source_gib: float
    """Bytes of the source's tensors / 2^30."""
    stored_gib: float
    """Bytes of the candidate's tensors / 2^30."""
    precision: Precision | None
    """None when the quantization config cannot be read."""

    @property
    def broken(self) -> list[Finding]:
        """The findings that break it."""
        return [finding for finding in self.findings if finding.breaks]

    @property
    def reason(self) -> str | None:
        """Why it is broken, in one line; None when it is kept."""
        broken = self.broken
        if not broken:
            return None
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return f"{broken[0].model_copy(update={'remedy': ''})}{more}"


def check_contract(
    source_dir: Path, candidate_dir: Path, rules: Rules, track: Track = "checkpoint"
) -> Contract:
    """Holds the candidate against its source. Raises CheckpointError when either cannot be read."""
    source, candidate = read_checkpoint(source_dir), read_checkpoint(candidate_dir)
    return judge(source, candidate, read_both(source, candidate), rules, track)


def judge(
    source: Checkpoint, candidate: Checkpoint, reading: Reading, rules: Rules, track: Track
) -> Contract:
    """The verdict over a reading, the files, and both configurations."""
    limit = rules.contract.foreign_tensor_share
    foreign_bytes = sum(tensor.nbytes for tensor in reading.foreign)
    share = foreign_bytes / max(source.headers.nbytes, 1)
    folder = candidate.headers.folder
    findings = [
        *compare_architecture(source.config.data, candidate.config.data),
        *reading.findings,
        *check_calibration(candidate.headers, reading.plan.kv if reading.plan else None),
        *_foreign(reading.foreign, share, limit),
        *unsafe_files(folder, list_files(folder), breaks=track == "checkpoint"),
        *_unindexed(candidate.headers),
        *compare_generation(source.headers.folder, folder),
        *compare_tokenizers(source.headers.folder, folder),
    ]
    findings.sort(key=lambda finding: not finding.breaks)
    return Contract(
        kept=not any(finding.breaks for finding in findings),
        findings=tuple(findings[:MAX_FINDINGS]),
        foreign_share=share,
        foreign=tuple(tensor.name for tensor in reading.foreign[:20]),
        source_gib=source.headers.nbytes / 2**30,
        stored_gib=candidate.headers.nbytes / 2**30,
        precision=reading.precision,
    )


def _foreign(foreign: tuple[Tensor, ...], share: float, limit: float) -> Iterable[Finding]:
    if foreign:
        largest = foreign[0]
        yield Finding(
            file=largest.file,
            field=largest.name,
            found=f"{share:.3%} of the source's bytes in {len(foreign)} tensors",
            expected=f"at most {limit:.0%}",
            summary="tensors that are neither a source weight nor a companion of one",
            rule="foreign_tensors",
            breaks=share > limit,
        )


def _unindexed(headers: Headers) -> Iterable[Finding]:
    for file in headers.unindexed:
        yield Finding(
            file=file,
            field="",
            found="a safetensors file",
            expected="every safetensors file named in model.safetensors.index.json",
            summary="the index does not name this file, so that no engine would load it",
            rule="files",
        )
