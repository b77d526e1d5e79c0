"""Following an evaluation on a terminal and on a pipe."""

import io
from datetime import UTC, datetime

from rich.console import Console

from lowbit_ray.progress import Moment, Progress
from lowbit_ray.report.following import show_moments
from lowbit_ray.submission import State

AT = datetime(2026, 1, 1, tzinfo=UTC)


def moment(
    status: str,
    stage: str | None = None,
    steps: tuple[str, ...] = (),
    what: str = "",
    score: float | None = None,
) -> Moment:
    progress = (
        Progress(step="timed-ab", what=what, done=3, total=9, since=AT, at=AT, host="h", attempt=0)
        if what
        else None
    )
    state = State.model_validate({"status": status, "stage": stage})
    return Moment(submission="ab", state=state, steps=steps, progress=progress, score=score, score_se=0.02)


STORY = [
    moment("waiting"),
    moment("running", "build"),
    moment("running", "efficiency", ("build", "contract"), "timing serve"),
    moment("running", "efficiency", ("build", "contract"), "timing serve"),
    moment("done", None, ("build", "contract", "timed-ab"), score=1.5),
]


def show(*, terminal: bool) -> str:
    stream = io.StringIO()
    last = show_moments(STORY, Console(file=stream, force_terminal=terminal, width=100))
    assert last == STORY[-1]
    return stream.getvalue()


def test_a_pipe_gets_each_change_once() -> None:
    said = [line.strip() for line in show(terminal=False).splitlines() if line.strip()]
    assert said == [
        "waiting",
        "running: build",
        "✓ build: fetch and seal",
        "✓ contract",
        "efficiency: candidate timed: timing serve 3 of 9",
        "✓ efficiency: candidate timed",
        "done",
        "done  score 1.500 ± 0.020",
    ]


def test_a_gate_that_failed_is_said_with_the_score() -> None:
    stream = io.StringIO()
    failed = moment("done", score=0.08).model_copy(update={"qualified": False})
    show_moments([failed], Console(file=stream, width=100))
    assert "done, a gate failed  score 0.080 ± 0.020" in stream.getvalue()


def test_what_comes_between_two_steps_belongs_to_none() -> None:
    stream = io.StringIO()
    between = moment("running", "efficiency", what="waiting for a pod")
    assert between.progress is not None
    progress = between.progress.model_copy(update={"step": "", "done": 0, "total": 0})
    show_moments([between.model_copy(update={"progress": progress})], Console(file=stream, width=100))
    assert stream.getvalue().strip() == "waiting for a pod"


def test_who_waits_is_told_the_place_in_the_queue() -> None:
    stream = io.StringIO()
    waits = [moment("waiting").model_copy(update={"queue_position": place}) for place in (3, 2)]
    show_moments(waits, Console(file=stream, width=100))
    assert [line.strip() for line in stream.getvalue().splitlines()] == [
        "waiting: number 3 in the queue",
        "waiting: number 2 in the queue",
    ]


def test_a_terminal_gets_finished_steps_and_the_verdict() -> None:
    text = show(terminal=True)
    assert text.count("build: fetch and seal") == 1
    assert "timing serve 3 of 9" in text
    assert "score 1.500 ± 0.020" in text
