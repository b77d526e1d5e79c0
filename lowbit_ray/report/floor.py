"""The noise floor in words: what an evaluation reads where the truth is no difference."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lowbit_ray.measure.noise_floor import FloorRuns, RepeatedFloor, Spread, floor_of

__all__ = ["floor_words", "render_floors"]


def floor_words(floor: RepeatedFloor) -> str:
    """One line: the figures of BF16 against itself, each with the scatter of a single evaluation."""
    return (
        f"BF16 against itself, {_count(floor)}: speed {_spread(floor.speed, '.3f')}, memory "
        f"{_spread(floor.memory, '.3f')}, KL {_spread(floor.kl, '.5f')}, accuracy drop "
        f"{_spread(floor.mean_drop, '.2f', 100)} points, score {_spread(floor.score, '.3f')}"
    )


def render_floors(runs: FloorRuns) -> Group:
    """A table for each way of measuring, one row a figure; eighty columns are enough."""
    parts: list[Text | Table] = [Text(f"Noise floor of {runs.task_id}: BF16 against itself", "bold")]
    for measurement in dict.fromkeys(run.measurement for run in runs.runs):
        floor = floor_of(runs.runs, measurement)
        if floor is None:
            continue
        measured = f"{measurement.device}, engine {measurement.release}, rules {measurement.rules_version}"
        parts += [Text(), Text(f"{measured}: {_count(floor)}"), _table(floor)]
    return Group(*parts)


def _table(floor: RepeatedFloor) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("figure", no_wrap=True)
    for column in ("truth", "mean", "standard deviation"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, truth, spread, factor in _figures(floor):
        error = "—" if spread.sd is None else f"{factor * spread.sd:.5f}"
        table.add_row(name, truth, f"{factor * spread.mean:.5f}", error)
    return table


def _figures(floor: RepeatedFloor) -> list[tuple[str, str, Spread, float]]:
    """Name, truth, figure, and what it is multiplied by to be in the unit of its name."""
    return [
        *((f"speed, {name.replace('_', ' ')}", "1", spread, 1.0) for name, spread in floor.speeds.items()),
        ("speed, geometric mean", "1", floor.speed, 1.0),
        ("memory", "1", floor.memory, 1.0),
        ("KL, nats per token", "0", floor.kl, 1.0),
        ("accuracy drop, points", "0", floor.mean_drop, 100.0),
        ("length shift, %", "0", floor.length_shift, 100.0),
        ("score", "1", floor.score, 1.0),
    ]


def _count(floor: RepeatedFloor) -> str:
    return f"{floor.evaluations} evaluation{'' if floor.evaluations == 1 else 's'}"


def _spread(spread: Spread, form: str, factor: float = 1.0) -> str:
    mean = f"{factor * spread.mean:{form}}"
    return mean if spread.sd is None else f"{mean} ± {factor * spread.sd:{form}}"
