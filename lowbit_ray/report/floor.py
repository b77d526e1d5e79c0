"""The noise floor in words: what an evaluation reads where the truth is no difference."""

from __future__ import annotations

from rich.table import Table

from lowbit_ray.measure.noise_floor import FloorRuns, RepeatedFloor, Spread, floor_of

__all__ = ["floor_words", "render_floors"]


def floor_words(floor: RepeatedFloor) -> str:
    """One line: the figures of BF16 against itself, each with the scatter of a single evaluation."""
    count = f"{floor.evaluations} evaluation{'' if floor.evaluations == 1 else 's'}"
    return (
        f"BF16 against itself, {count}: speed {_spread(floor.speed, '.3f')}, memory {_spread(floor.memory, '.3f')}, "
        f"KL {_spread(floor.kl, '.5f')}, accuracy drop {_spread(floor.mean_drop, '.2f', 100)} points, "
        f"score {_spread(floor.score, '.3f')}"
    )


def render_floors(runs: FloorRuns) -> Table:
    """One row a figure and way of measuring."""
    table = Table(title=f"Noise floor of {runs.task_id}: BF16 against itself", title_justify="left")
    for column in ("device", "engine", "figure", "truth", "mean", "standard deviation", "evaluations"):
        table.add_column(column, justify="left" if column in {"device", "engine", "figure"} else "right")
    for measurement in dict.fromkeys(run.measurement for run in runs.runs):
        floor = floor_of(runs.runs, measurement)
        if floor is None:
            continue
        for name, truth, spread in _figures(floor):
            error = "—" if spread.sd is None else f"{spread.sd:.5f}"
            row = (measurement.device, measurement.release, name, truth, f"{spread.mean:.5f}", error)
            table.add_row(*row, str(floor.evaluations))
    return table


def _figures(floor: RepeatedFloor) -> list[tuple[str, str, Spread]]:
    speeds = [(f"speed, {name.replace('_', ' ')}", "1", spread) for name, spread in floor.speeds.items()]
    return [
        *speeds,
        ("speed, geometric mean", "1", floor.speed),
        ("memory", "1", floor.memory),
        ("KL, nats per token", "0", floor.kl),
        ("accuracy drop", "0", floor.mean_drop),
        ("length shift", "0", floor.length_shift),
        ("score", "1", floor.score),
    ]


def _spread(spread: Spread, form: str, factor: float = 1.0) -> str:
    mean = f"{factor * spread.mean:{form}}"
    return mean if spread.sd is None else f"{mean} ± {factor * spread.sd:{form}}"
