"""The sections of a record's page: each says what the record says, no more."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.records import moved_record

from lowbit_ray import conduct
from lowbit_ray.checkpoint import contract
from lowbit_ray.measure.consistency import Consistency
from lowbit_ray.measure.replay import Replay
from lowbit_ray.records import Conduct, Record, StageTime
from lowbit_ray.report import advice
from lowbit_ray.report.advice import advice_on
from lowbit_ray.report.limits import limits_of
from lowbit_ray.report.page import result_page
from lowbit_ray.report.picture import Point, pareto, picture
from lowbit_ray.report.precision_table import precision_rows, region_views
from lowbit_ray.report.steps import duration, step_title, time_line
from lowbit_ray.report.strip import strip_of
from lowbit_ray.report.view import view_of
from lowbit_ray.report.workloads import workload_views
from lowbit_ray.rules import load_rules
from lowbit_ray.tasks import load_task

RULES, TASK = load_rules(), load_task("qwen3-8b")


@pytest.fixture(scope="module")
def record() -> Record:
    return moved_record(1)


def step(name: str, start: float, seconds: float, pod: float = 0.0) -> StageTime:
    begun = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=start)
    return StageTime(name=name, started_at=begun, seconds=seconds, pod_seconds=pod)


def refused(error: str, status: str = "rejected", **changes: Any) -> Record:
    return moved_record(2).model_copy(update={"result": None, "status": status, "error": error, **changes})


def test_every_gate_and_every_rule_has_its_limit_and_margin(record: Record) -> None:
    assert record.result is not None
    limits = limits_of(record.result, RULES, TASK)
    named = {limit.name: limit for limit in limits}
    assert [limit.kind for limit in limits[:3]] == ["gate", "gate", "gate"]
    assert named["KL from BF16, nats per token"].margin == f"{0.15 - 0.01:+.4f}"
    assert named["Audit, serve: median gap, nats per token"].limit == "at most 0.034"
    assert named["Hard cap, long context"].passed
    assert all(limit.passed for limit in limits)


def test_conduct_has_its_limits_where_it_was_measured(record: Record) -> None:
    assert record.result is not None
    before = {limit.name for limit in limits_of(record.result, RULES, TASK)}
    conduct_part = Conduct(
        replay=Replay(requests=8, rounds=1, tpot_ratio=0.98),
        later_replay=Replay(requests=12, rounds=3, tpot_ratio=0.2),
        consistency=Consistency(
            self_gap={"serve": 0.01}, timed_tokens=64, chosen_share=0.0, asked_again=0.0, forced=None
        ),
        texts_disagree=None,
        at_start=None,
        at_end=None,
        anchor=None,
    )
    engine = record.result.engine.model_copy(update={"conduct": conduct_part})
    limits = limits_of(record.result.model_copy(update={"engine": engine}), RULES, TASK)
    added = {limit.name: limit.passed for limit in limits if limit.name not in before}
    assert len(added) == 5
    assert [name for name, passed in added.items() if not passed] == [
        "Time per token of a prompt asked before, against a fresh one, later server"
    ]


def test_a_page_without_a_score_shows_the_rule_what_was_seen_and_the_limit() -> None:
    breach = conduct.Breach(
        rule="two faces", where="workload serve", seen="4.2 nats <less likely>", limit="≤ 0.25 nats"
    )
    page = result_page(refused(str(breach.error), fault=conduct.Fault.of(breach.error)))
    for words in ("Why there is no score", "two faces: ", "4.2 nats &lt;less likely&gt;", "≤ 0.25 nats"):
        assert words in page
    assert advice.RULES["two faces"].change in page
    assert "Why there is no score" not in result_page(moved_record(1))


def test_a_broken_limit_says_so_and_its_bar_passes_the_mark() -> None:
    result = moved_record(1, kl=0.2).result
    assert result is not None
    (ceiling,) = [limit for limit in limits_of(result, RULES, TASK) if limit.name.startswith("KL")]
    assert not ceiling.passed
    assert ceiling.margin.startswith("-")
    assert ceiling.fill is not None
    assert ceiling.fill > ceiling.mark


def test_a_task_that_is_unknown_here_has_no_audit_limit(record: Record) -> None:
    assert record.result is not None
    other = record.result.model_copy(update={"task_id": "gone"})
    assert not any("median gap" in limit.name for limit in limits_of(other, RULES, None))


def test_bars_of_a_workload_are_in_proportion(record: Record) -> None:
    assert record.result is not None
    serve, interactive, _ = workload_views(record.result, RULES.workloads)
    mine, theirs = (bar.parts[0].width for bar in serve.rates)
    assert mine == 100
    assert theirs == pytest.approx(100 / serve.speed, rel=1e-3)
    assert sum(part.width for part in serve.peaks[1].parts) == pytest.approx(100)
    assert sum(part.width for part in serve.peaks[0].parts) == pytest.approx(100 / serve.memory, rel=1e-3)
    assert "median TPOT" in interactive.unit


def test_precision_is_told_three_times_and_a_difference_is_marked(record: Record) -> None:
    declared = record.model_copy(
        update={"solution": record.solution.model_copy(update={"precision": "W4A16KV8"})}
    )
    rows = {row.source: row for row in precision_rows(declared)}
    assert list(rows) == ["declared", "read from the bytes", "executed"]
    assert rows["declared"].differs
    assert not rows["read from the bytes"].differs
    assert rows["executed"].weights == "8"


def test_parts_of_the_model_have_their_bits(record: Record) -> None:
    assert record.result is not None
    parts = {part.name: part for part in region_views(record.result.precision)}
    assert parts["linear layers"].bits == "8"
    assert parts["head"].effective == 16


def test_what_was_refused_early_still_shows_the_precision_that_was_read() -> None:
    rows = precision_rows(refused("config.json: hidden_size: differs"))
    assert rows[-1].weights == "8"


def test_the_strip_shows_every_sample_and_counts_those_beyond(record: Record) -> None:
    assert record.result is not None
    audit = record.result.timed_audit["serve"].model_copy(
        update={"gaps": (-0.01, 0.0, 0.02, 0.5), "gap_median": 0.01, "gap_max": 0.5}
    )
    strip = strip_of(audit, 0.034)  # type: ignore[arg-type]
    assert strip is not None
    assert len(strip.samples) == 4
    assert strip.beyond == 1
    assert strip.limit is not None
    assert strip.samples[0] < strip.zero < strip.samples[2] < strip.limit < strip.samples[3] <= 100


def test_a_record_without_kept_gaps_still_has_a_strip(record: Record) -> None:
    assert record.result is not None
    audit = record.result.timed_audit["serve"].model_copy(update={"gaps": ()})
    strip = strip_of(audit, None)  # type: ignore[arg-type]
    assert strip is not None
    assert strip.limit is None


def test_the_time_line_places_steps_and_counts_their_gpu_hours() -> None:
    spans = time_line([step("build", 0, 10), step("timed-ab12", 10, 90, pod=90)], gpus=2)
    assert [span.left for span in spans] == [0, 10]
    assert spans[1].width == 90
    assert spans[1].gpu_hours == pytest.approx(0.05)
    assert spans[1].title == "efficiency: candidate timed"
    assert time_line([], gpus=1) == []


def test_what_lies_between_two_steps_is_a_row_of_the_time_line() -> None:
    steps = [
        step("build", 0, 10),
        step("timed-ab12", 15, 60, pod=60),
        step("anchor-ab12", 76, 24, pod=24),
        step("capped-serve-ab12", 220, 30, pod=30),
    ]
    spans = time_line(steps, gpus=1, charged_hours=(60 + 24 + 30 + 118) / 3600)
    assert [(span.title.partition(":")[0], span.start_s, span.seconds) for span in spans] == [
        ("build", 0, 10),
        ("preparing the questions, waiting for a pod", 10, 5),
        ("efficiency", 15, 60),
        ("efficiency", 76, 24),
        ("anchor", 100, 120),
        ("efficiency", 220, 30),
    ]
    assert spans[1].pod_seconds == 0
    assert spans[4].pod_seconds == pytest.approx(118)  # no more than was charged
    assert sum(span.gpu_hours for span in spans) == pytest.approx((60 + 24 + 30 + 118) / 3600)
    later = step("capped-interactive-ab12", 300, 30, pod=30)
    assert time_line([*steps, later], gpus=1)[-2].title == "between two steps"
    assert time_line(steps, gpus=0)[4].pod_seconds is None  # nothing says it where nothing is charged


def test_a_pages_time_line_adds_up_to_what_is_charged(record: Record) -> None:
    spans = view_of(record, RULES, TASK).spans
    assert sum(span.gpu_hours for span in spans) == pytest.approx(0.2975, abs=0.003)


@pytest.mark.parametrize(
    ("seconds", "words"), [(4.21, "4.2 s"), (61.0, "1:01 min"), (7384.0, "2:03:04 h"), (0.0, "0.0 s")]
)
def test_durations_read_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_an_unknown_step_keeps_its_name() -> None:
    assert step_title("capped-long_context-5f0c") == "efficiency: under the hard cap (long_context)"
    assert step_title("something") == "something"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("config.json: rope_theta: differs, found 1, expected 2", "RoPE"),
        ("KL from BF16 is 0.2 nats per token, above the ceiling of 0.15", "KL ceiling"),
        ("KV blocks are offloaded to host memory", "host's memory"),
        ("under 15.200 GiB ran 3 requests at once instead of 8 and kept 0.5 of its rate", "more memory"),
        ("the engine did not answer within 900 s", "did not come up"),
        ("owner/name@0123: the repository is private, gated or absent, found HTTP 401", "could not be read"),
        ("s3://bucket/x: nothing is stored under this prefix", "Nothing lies"),
        ("the checkpoint is too large, found 40.00 GiB, expected at most 20 GiB", "larger together"),
        (
            "config.json: quantization_config.quant_method: no reader for this quantization method, found 'exl3', "
            "expected one of awq, gptq",
            "cannot be read",
        ),
        ("model.layers.3.mlp.up_proj.weight: a weight of the source is missing", "in no form"),
        (
            "given up after 6 faults of ours, free of charge: the hub did not answer: HTTP 503",
            "fault is ours",
        ),
        (
            "timed-0.log: the engine died: ValueError: no tensor of this name in config.json",
            "did not come up",
        ),
        ("something that nobody foresaw", "score is 0"),
    ],
)
def test_a_refusal_is_explained_in_plain_words(error: str, words: str) -> None:
    (advice,) = advice_on(refused(error))
    assert words in advice.meaning
    assert advice.change


def test_every_rule_of_the_contract_has_advice_of_its_own() -> None:
    folder = Path(contract.__file__).parent
    named = {
        name
        for path in folder.rglob("*.py")
        for name in re.findall(r"""(?:rule=|rule: str = |finding_of\(error, )"(\w+)\"""", path.read_text())
    }
    assert {"configuration", "source_weights", "companions", "precision"} <= named
    assert named <= advice.CONTRACT.keys()
    broken = conduct.Fault(
        kind="contract",
        rule="companions",
        summary="a companion of a quantized weight is missing",
        where="model.safetensors: a.weight_scale",
        seen="no such tensor",
        limit="shape [8]",
        remedy="",
    )
    record = refused("config.json is not what broke it", fault=broken)
    assert advice_on(record) == [advice.CONTRACT["companions"]]
    assert advice_on(json.loads(record.to_json())) == advice_on(record)
    page = result_page(record)
    for words in ("Broken: contract", "a.weight_scale", "no such tensor", "Expected", "shape [8]"):
        assert words in page


def test_every_engine_rule_has_advice_of_its_own() -> None:
    assert advice.RULES.keys() == conduct.RULES.keys()
    fault = conduct.Fault.of(
        conduct.Breach(rule="answer cache", where="serve", seen="0.2", limit="0.6").error
    )
    assert advice_on(refused("it broke a rule", fault=fault)) == [advice.RULES["answer cache"]]


def test_a_failure_without_a_known_reason_says_that_there_is_no_score() -> None:
    (advice,) = advice_on(refused("odd", status="failed"))
    assert "no score" in advice.meaning


def test_each_failed_gate_has_its_own_advice() -> None:
    slow = moved_record(3, rate=0.5, drop=0.07)
    assert {item.meaning.partition(" ")[0] for item in advice_on(slow)} == {"On", "Less"}
    assert advice_on(moved_record(4)) == []


def test_the_page_says_how_many_derived_numbers_follow(record: Record) -> None:
    view = view_of(record, RULES, TASK)
    assert view.checked > 15
    assert view.agreeing == view.checked
    assert view.gpus == 1
    assert [span.pod_seconds > 0 for span in view.spans].count(True) >= 6


def test_the_pareto_front_holds_what_no_other_point_beats() -> None:
    points = [
        Point(str(i), "candidate", d, e) for i, (d, e) in enumerate([(0, 1.0), (1, 0.9), (2, 1.4), (1, 1.2)])
    ]
    assert [point.label for point in pareto(points)] == ["0", "3", "2"]


def test_one_far_outlier_does_not_squeeze_the_picture() -> None:
    near, far = Point("near", "candidate", 2.0, 1.2, score=1.0), Point("far", "candidate", 60.0, 1.2)
    drawn = picture([near, far])
    assert drawn.count("<path") == 1  # the far one, as an arrow at the edge


def test_labels_do_not_cover_each_other_but_every_point_says_its_name() -> None:
    points = [Point(f"team-{i}", "candidate", 1.0, 1.2, score=1.0 - i / 100) for i in range(5)]
    drawn = picture(points, front=True)
    assert drawn.count('class="label"') == 2  # one above the marks, one below
    assert all(drawn.count(f"team-{i}") >= 2 for i in range(5))
