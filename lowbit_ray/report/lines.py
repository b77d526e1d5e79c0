"""A record in words: the lines that terminal and page both show, as the arena's own page has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from lowbit_ray.records import Record, Result
from lowbit_ray.report.floor import floor_words
from lowbit_ray.report.refusal import gate_words
from lowbit_ray.rules import WORKLOAD_NAMES

__all__ = ["Line", "fault_lines", "headline", "in_order", "lines_of", "workload_rows"]

NAMES = {"serve": "serve", "interactive": "interactive", "long_context": "long context"}
BUSY = 0.1
"""Share of the host's CPUs in others' hands above which speeds are shown with a warning."""
HELD_BY = {
    "filler": "a process with the rest of the GPU's memory",
    "cgroup": "the kernel (control group of its processes)",
    "watched": "looking at its resident memory every second",
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the result."""

    title: str
    text: str
    note: str = ""
    """What it means, smaller."""


def headline(record: Record) -> str:
    """The verdict in one sentence."""
    result = record.result
    if record.status == "failed":
        return f"Not evaluated: {record.error}"
    if result is None:
        return f"Score 0: {record.error}"
    if result.qualified:
        return "Qualified: the accuracy, speed, and length gates passed."
    return f"Not qualified: {result.reason}."


def lines_of(record: Record) -> list[Line]:
    """The rows, in the arena's order; empty where there is no result."""
    result = record.result
    if result is None:
        return [*fault_lines(record), *(Line("Finding", finding) for finding in record.findings)]
    return [
        _precision(record, result),
        _accuracy(result),
        _drift(result),
        _noise_floor(result),
        Line(
            "Speed gain",
            f"{result.speed:.2f}× BF16 in the same pod ({_each(result.speeds)})",
            _speed_note(result),
        ),
        _memory(result),
        Line("Efficiency gain E", f"{result.efficiency_gain:.3f}"),
        *(Line(f"Gate: {gate.name}", gate_words(gate)) for gate in result.gates),
        _cap(result),
        _audit(result),
        *_conduct(result),
        _perplexity(result),
        _engine(record, result),
        *_sandbox(record),
    ]


def in_order(by_workload: dict[str, T]) -> Iterable[tuple[str, T]]:
    """Entries in the rules' order of workloads; a record that was read back has them sorted by name."""
    order = {name: place for place, name in enumerate(WORKLOAD_NAMES)}
    return sorted(by_workload.items(), key=lambda entry: order.get(entry[0].partition("@")[0], len(order)))


def workload_rows(result: Result) -> list[tuple[str, str, str, str, str, str]]:
    """Per workload: name, candidate's and anchor's figure, speed gain, peaks, memory gain."""
    rows = []
    for name, speed in in_order(result.speeds):
        peak, other = result.peak_memory[name].peak_gib, result.anchor_peak_memory[name].peak_gib
        rows.append(
            (
                NAMES.get(name, name),
                f"{result.efficiency[name]:.2f}",
                f"{result.anchor_efficiency[name]:.2f}",
                f"{speed:.3f}×",
                f"{peak:.3f} / {other:.3f} GiB",
                f"{result.memories[name]:.3f}×",
            )
        )
    return rows


def _precision(record: Record, result: Result) -> Line:
    solution = record.solution
    declared = f"{solution.precision} declared" if solution.declared_precision else "none declared"
    executed = f" · the engine executes {result.executed.label}" if result.executed else ""
    why = "; ".join(result.executed.reasons) if result.executed else ""
    bits = f"{result.precision.effective_bits:.2f} stored bits a weight, scales included"
    return Line(
        "W·A·KV",
        f"{declared} · read {solution.detected_precision}{executed}",
        f"{bits}{f' · {why}' if why else ''}",
    )


def _accuracy(result: Result) -> Line:
    error = f" ± {100 * result.mean_drop_se:.2f}" if result.mean_drop_se is not None else ""
    domains = f"{result.accuracy_items} items in {result.quality.valid_domains} valid domains"
    return Line(
        "Accuracy",
        f"tier {result.quality.tier or 'none'} · mean drop {100 * result.mean_drop:.2f}{error} points",
        domains,
    )


def _drift(result: Result) -> Line:
    kl, floor = result.kl, result.noise_floor
    text = (
        f"KL {kl.kl:.4f} ± {kl.kl_se:.4f} nats per token · generated length {result.length_shift:+.1%}"
        f" · D = {result.drift:.2f} points"
    )
    note = (
        f"noise floor, BF16 against itself: {floor.kl:.5f} · top {kl.top_k} of both sides, {kl.tail_mass:.2%} of the "
        f"probability beyond · {kl.tokens} tokens by {kl.method}"
    )
    if kl.reorder_kl is not None:
        note += f" · {kl.reorder_sequences} sequences in another order differ by {kl.reorder_kl:.5f}"
    return Line("Drift from BF16", text, note)


def _noise_floor(result: Result) -> Line:
    repeated = result.noise_floor.repeated
    if repeated is None:
        text = "no evaluation of BF16 against itself on this kind of device when it was scored"
        return Line("Noise floor", text)
    speeds = ", ".join(
        f"{NAMES.get(name, name)} {spread.mean:.3f}" + ("" if spread.sd is None else f" ± {spread.sd:.3f}")
        for name, spread in in_order(repeated.speeds)
    )
    return Line(
        "Noise floor", floor_words(repeated), f"± is the scatter of one evaluation; speed on {speeds}"
    )


def _each(gains: dict[str, float]) -> str:
    return ", ".join(f"{NAMES.get(name, name)} {gain:.2f}×" for name, gain in in_order(gains))


def _speed_note(result: Result) -> str:
    errors = {name: error for name, error in in_order(result.speeds_se) if error is not None}
    words = ", ".join(f"{NAMES.get(name, name)} {error:.1%}" for name, error in errors.items())
    mean = "" if result.speed_se is None else f", of the mean {result.speed_se:.1%}"
    runs = max((len(each) for each in result.runs.values()), default=0)
    note = (
        f"measured error of {runs} runs a side {words}{mean}"
        if errors
        else "one run a side: no measured error"
    )
    return f"{note}; the rules take 5 % a workload{_busy(result)}"


def _busy(result: Result) -> str:
    busy = {name: share for name, share in in_order(result.foreign_cpu) if share > BUSY}
    if not busy:
        return ""
    words = ", ".join(f"{share:.0%} during {NAMES.get(name, name)}" for name, share in busy.items())
    return f" · WARNING: others used the host's CPUs ({words}): do not trust these speeds"


def _memory(result: Result) -> Line:
    leaves_out = result.engine.startup is not None and result.engine.startup.leaves_out == "runtime"
    note = "peak = weights + KV in use; on a CPU the runtime is left out" if leaves_out else ""
    return Line(
        "Memory gain",
        f"{result.memory:.2f}× BF16's peak ({_each(result.memories)}) · {result.peak_gib:.2f} GiB against BF16's "
        f"{result.bf16_peak_gib:.2f} GiB on the first workload",
        note,
    )


def _cap(result: Result) -> Line:
    runs = list(in_order(result.engine.budget))
    text = ", ".join(
        f"{NAMES.get(name.partition('@')[0], name)} {'healthy' if run.healthy else 'NOT healthy'} "
        f"in {run.budget_gib:.2f} GiB"
        for name, run in runs
    )
    factors = ", ".join(dict.fromkeys(f"{run.factor:g}" for _, run in runs))
    note = f"served again in {factors} × its peak; quality was measured under the largest"
    held = dict.fromkeys(HELD_BY[run.held_by] for _, run in runs if run.held_by is not None)
    return Line("Hard cap", text, f"{note} · held by {', '.join(held)}" if held else note)


def _audit(result: Result) -> Line:
    audits = {name: audit for name, audit in in_order(result.timed_audit) if audit.status == "audited"}
    text = ", ".join(
        f"{NAMES.get(name, name)} {audit.gap_median:+.4f}"
        for name, audit in audits.items()
        if audit.status == "audited" and audit.gap_median is not None
    )
    return Line(
        "Audit",
        f"median gap {text} nats per token",
        "how much less likely BF16 finds what it said while timed",
    )


def fault_lines(record: Record) -> list[Line]:
    """Which rule, what was seen, the limit; what stands in the headline as one sentence."""
    fault = record.fault
    if fault is None:
        return []
    rule = f"{fault.rule.replace('_', ' ')}: {fault.summary}" if fault.rule else fault.summary
    parts = (
        (f"Broken: {fault.kind}" if record.status == "rejected" else f"Failed: {fault.kind}", rule),
        ("Where", fault.where),
        ("Seen", fault.seen),
        ("Limit" if fault.kind == "engine rules" else "Expected", fault.limit),
        ("To do", fault.remedy),
    )
    return [Line(title, text) for title, text in parts if text]


def _conduct(result: Result) -> list[Line]:
    """How the server behaved when it was asked again."""
    conduct = result.engine.conduct
    if conduct is None:
        return []
    said = conduct.consistency
    gaps = [gap for gap in said.self_gap.values() if gap is not None]
    replays = [replay.tpot_ratio for replay in (conduct.replay, conduct.later_replay) if replay is not None]
    shifts = [shift for shift in (said.asked_again, said.forced) if shift is not None]
    return [
        Line(
            "Conduct",
            f"prompts asked again take {min(replays):.2f} of a fresh one's time per token"
            + (f" · timed tokens asked as probes {max(gaps):+.4f} nats" if gaps else "")
            + (
                f" · log-probabilities differ by {max(shifts):.4f} nats between ways to ask" if shifts else ""
            ),
            "no memory of answers, the same words timed and probed: each far from its limit"
            if result.admitted
            else "",
        )
    ]


def _perplexity(result: Result) -> Line:
    text = ", ".join(
        f"{name} {item.ppl:.3f} (BF16 {item.ppl_bf16:.3f}, {item.dnll:+.4f} nats per token)"
        for name, item in result.kl.ppl.items()
    )
    if not text:
        generated = result.kl.method == "generation"
        text = "not measured" + (": the engine gives log-probabilities of its own tokens alone" * generated)
    return Line("Perplexity", text, "shown, not scored")


def _engine(record: Record, result: Result) -> Line:
    startup = result.engine.startup
    held = f"{startup.weights_gib:.2f} GiB of weights held, " if startup else ""
    version = f" · vLLM {startup.vllm_version}" if startup else ""
    return Line(
        "Engine",
        f"{held}{result.engine.stored_gib:.2f} GiB stored{version} · started in {result.engine.start_seconds:.0f} s",
        f"{record.charged_hours:.2f} GPU-hours",
    )


def _sandbox(record: Record) -> list[Line]:
    """What a participant's engine was shut in by; nothing on the checkpoint track."""
    return [] if record.isolation is None else [Line("Sandbox", *record.isolation.words)]
