"""A check's report on a terminal: the verdict, then precision, memory, releases and findings as tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowbit_ray.checkpoint.check import CheckReport
from lowbit_ray.checkpoint.findings import Finding
from lowbit_ray.checkpoint.memory import ExpectedMemory
from lowbit_ray.checkpoint.precision import Precision
from lowbit_ray.checkpoint.servable import Servable

__all__ = ["render"]

_VERDICT_STYLE = {"yes": "green", "no": "red", "review": "yellow"}


def render(report: CheckReport) -> RenderableType:
    """Everything the report says, for rich's console. Text of the checkpoint is never taken as markup."""
    parts: list[RenderableType] = [_verdict(report)]
    if report.precision is not None:
        parts += [_precision(report.precision)]
    if report.memory is not None:
        parts += [_memory(report.memory)]
    if report.servable:
        parts += [_servable(report.servable)]
    if report.contract.findings:
        parts += [_findings(report.contract.findings)]
    return Group(*parts)


def _verdict(report: CheckReport) -> Text:
    text = Text()
    text.append(
        "contract kept" if report.kept else "contract broken",
        style="bold green" if report.kept else "bold red",
    )
    if report.precision is not None:
        text.append(f"  {report.precision.label}")
        text.append(f" as read, {report.declared} as declared" if report.declared else " as read")
    share = report.contract.foreign_share
    text.append(f"  {report.contract.stored_gib:.2f} GiB stored, {share:.2%} foreign")
    return text


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _precision(precision: Precision) -> Table:
    table = _table("Precision", "part", "parameters", "weight bits", "bits with scales", "group size")
    for region in precision.regions:
        shares = sorted(region.bits.items(), key=lambda item: -item[1])
        bits = ", ".join(f"{width}" if share == 1 else f"{width} ({share:.1%})" for width, share in shares)
        groups = ", ".join(str(size) for size in region.group_sizes) or "—"
        table.add_row(region.region, f"{region.parameters:,}", bits, f"{region.effective_bits:.2f}", groups)
    table.caption = f"activations {precision.activations} bits, KV cache {precision.kv} bits"
    return table


def _memory(memory: ExpectedMemory) -> Table:
    table = _table("Expected memory, GiB", "workload", "BF16 weights + KV", "weights + KV", "gain")
    for name, workload in memory.workloads.items():
        table.add_row(
            name,
            f"{memory.anchor_weights_gib:.2f} + {workload.anchor_kv_gib:.2f}",
            f"{memory.weights_gib:.2f} + {workload.kv_gib:.2f}",
            f"{workload.gain:.2f}×",
        )
    table.caption = f"memory gain {memory.gain:.2f}×, without {memory.leaves_out}"
    return table


def _servable(releases: tuple[Servable, ...]) -> Table:
    table = Table(title="Served by vLLM", title_justify="left", title_style="bold")
    table.add_column("release")
    table.add_column("verdict")
    table.add_column("why")
    for release in releases:
        verdict = Text(release.verdict, style=_VERDICT_STYLE[release.verdict])
        table.add_row(release.release, verdict, Text("; ".join(release.reasons)))
    return table


def _findings(findings: tuple[Finding, ...]) -> Table:
    table = Table(title="Findings", title_justify="left", title_style="bold")
    for column in ("", "file: field", "finding", "found", "expected"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        mark = Text("broken", style="red") if finding.breaks else Text("note", style="dim")
        table.add_row(
            mark,
            *(
                Text(text)
                for text in (
                    finding.where,
                    ". ".join(filter(None, (finding.summary, finding.remedy))),
                    finding.found,
                    finding.expected,
                )
            ),
        )
    return table
