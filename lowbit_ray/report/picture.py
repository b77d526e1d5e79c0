"""The picture of scores: efficiency E against drift D, with curves of equal score, as SVG.

S = E · exp(−D / 10), so a curve of equal score rises with the drift; up and to the left is better. The Pareto front
joins the points that no other beats on both. Colours come from the page's style sheet by class (`anchor`,
`candidate`, …), so that the picture follows light and dark; what a point says shows when it is pointed at, also
without scripts. A table of the same numbers stands beside every picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Point", "pareto", "picture"]

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 96, 24, 60
STEPS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
FAR = 20.0
"""Points of drift beyond which a mark stands at the right edge, so that one outlier does not squeeze all others."""
LABEL = 18
"""Characters of a label that are drawn; pointing at the mark shows all."""
BOX = (150.0, 20.0)
"""Room that a label takes, in the picture's units: none is drawn over another one."""


@dataclass(frozen=True, slots=True)
class Point:
    """One submission in the picture."""

    label: str
    kind: str
    """CSS class: `anchor`, `candidate`, `reference`, `unqualified` or `other`."""
    drift: float
    """D in points; drawn at 0 where negative, as the score treats it."""
    efficiency: float
    drift_se: float = 0.0
    score: float = 0.0
    score_se: float | None = None
    href: str = ""


@dataclass(frozen=True, slots=True)
class _Axes:
    """Maps drift and efficiency to pixels."""

    drift_max: float
    low: float
    high: float

    def x(self, drift: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(drift, 0.0), self.drift_max) / self.drift_max

    def y(self, efficiency: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - efficiency) / (self.high - self.low)


def picture(points: Sequence[Point], *, scale: float = 10.0, front: bool = False) -> str:
    """An SVG element; `scale` is the rules' points of drift for a factor e, `front` draws the Pareto front."""
    axes = _axes(points)
    marks = [(point, axes.x(point.drift), axes.y(point.efficiency)) for point in points]
    role = "group" if any(point.href for point in points) else "img"
    parts = [
        f'<svg class="picture" viewBox="0 0 {WIDTH} {HEIGHT}" role="{role}" aria-label="{escape(_summary(points))}">',
        '<g aria-hidden="true">',
        *_grid(axes),
        *_curves(axes, scale),
        *(_front(pareto([p for p in points if p.kind != "unqualified"]), axes) if front else []),
        *(_mark(point, x, y, axes) for point, x, y in marks),
        *_labels(marks),
        "</g>",
        *(_hover(point, x, y) for point, x, y in marks),
        "</svg>",
    ]
    return "\n".join(parts)


def pareto(points: Sequence[Point]) -> list[Point]:
    """The points that no other one beats on both drift and efficiency, by drift."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (max(point.drift, 0.0), -point.efficiency)):
        if not front or point.efficiency > front[-1].efficiency:
            front.append(point)
    return front


def _summary(points: Sequence[Point]) -> str:
    best = max(
        (point for point in points if point.kind != "unqualified"),
        key=lambda point: point.score,
        default=None,
    )
    words = f"Efficiency against drift with curves of equal score; {len(points)} points."
    if best is not None:
        words += (
            f" The best score is {best.score:.3f}: {best.label}, E {best.efficiency:.3f}, D {best.drift:.3f}."
        )
    return f"{words} The table gives the same numbers."


def _axes(points: Sequence[Point]) -> _Axes:
    reach = max([1.0, *(1.25 * (max(point.drift, 0.0) + point.drift_se) for point in points)])
    values = [1.0, *(point.efficiency for point in points)]
    room = max(0.15, 0.25 * (max(values) - min(values)))
    return _Axes(drift_max=min(reach, FAR), low=max(0.0, min(values) - room), high=max(values) + room)


def _ticks(low: float, high: float, most: int) -> list[float]:
    step = next((step for step in STEPS if (high - low) / step <= most), STEPS[-1])
    first = math.ceil(low / step - 1e-9)
    return [step * index for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _grid(axes: _Axes) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for drift in _ticks(0.0, axes.drift_max, 6):
        x = axes.x(drift)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 22}" text-anchor="middle">{drift:g}</text>'
        )
    for value in _ticks(axes.low, axes.high, 6):
        y = axes.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{value:.2f}</text>'
        )
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text class="axis" x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">'
        "drift D from BF16, points</text>"
    )
    parts.append(
        f'<text class="axis up" transform="translate(22 {middle:.0f}) rotate(-90)" text-anchor="middle">'
        "efficiency gain E</text>"
    )
    return parts


def _curves(axes: _Axes, scale: float) -> list[str]:
    parts = []
    for level in _ticks(axes.low, axes.high, 6):
        if level <= 0:
            continue
        inside = []
        for step in range(61):
            drift = axes.drift_max * step / 60
            efficiency = level * math.exp(drift / scale)
            if efficiency <= axes.high:
                inside.append((axes.x(drift), axes.y(efficiency)))
        if len(inside) < 2:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in inside)
        x, y = inside[-1]
        parts.append(f'<polyline class="curve" points="{path}"/>')
        parts.append(f'<text class="level" x="{x + 4:.1f}" y="{y + 4:.1f}">S {level:.2f}</text>')
    return parts


def _front(front: Sequence[Point], axes: _Axes) -> list[str]:
    """A staircase: between two of its points nothing is better than the left one's efficiency."""
    if len(front) < 2:
        return []
    steps: list[tuple[float, float]] = []
    for point in front:
        x, y = axes.x(point.drift), axes.y(point.efficiency)
        if steps:
            steps.append((x, steps[-1][1]))
        steps.append((x, y))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in steps)
    return [f'<polyline class="front" points="{path}"/>']


def _mark(point: Point, x: float, y: float, axes: _Axes) -> str:
    low, high = axes.x(point.drift - point.drift_se), axes.x(point.drift + point.drift_se)
    shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
    if point.kind == "reference":
        shape = f'<rect x="{x - 5.5:.1f}" y="{y - 5.5:.1f}" width="11" height="11"/>'
    if point.drift > axes.drift_max:  # further right than the picture reaches
        shape = f'<path d="M{x - 6:.1f} {y - 7:.1f} L{x + 6:.1f} {y:.1f} L{x - 6:.1f} {y + 7:.1f} Z"/>'
    return (
        f'<g class="mark {escape(point.kind)}">'
        f'<line class="error" x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}"/>{shape}</g>'
    )


def _labels(marks: Sequence[tuple[Point, float, float]]) -> list[str]:
    """Candidates' labels first, the best before others, those that do not count last; none covers another one."""
    taken: list[tuple[float, float]] = []
    parts = []
    for point, x, y in sorted(marks, key=lambda mark: (ORDER.get(mark[0].kind, 1), -mark[0].score)):
        if point.kind == "other":  # stands there for comparison
            continue
        left = _flips(x)
        centre = x + (-1 if left else 1) * (10 + BOX[0] / 2)
        height = next((at for at in (y - 9, y + 20) if _free(centre, at, taken)), None)
        if height is None:
            continue
        taken.append((centre, height))
        text = point.label if len(point.label) <= LABEL else f"{point.label[: LABEL - 1]}…"
        anchor, shift = ("end", -10) if left else ("start", 10)
        parts.append(
            f'<text class="label{" more" if len(taken) > FEW else ""}" x="{x + shift:.1f}" y="{height:.1f}" '
            f'text-anchor="{anchor}">{escape(text)}</text>'
        )
    return parts


ORDER = {"candidate": 0, "unqualified": 2}
FEW = 5
"""Labels that are drawn on a phone too."""


def _free(centre: float, height: float, taken: Sequence[tuple[float, float]]) -> bool:
    return not any(abs(centre - x) < BOX[0] and abs(height - y) < BOX[1] for x, y in taken)


def _hover(point: Point, x: float, y: float) -> str:
    """An unseen disc over the mark; pointing at it shows the tip above everything else."""
    error = "" if point.score_se is None else f" ± {point.score_se:.3f}"
    figures = f"S {point.score:.3f}{error} · E {point.efficiency:.3f} · D {point.drift:.2f}"
    name = escape(point.label)
    anchor, shift = ("end", -14) if _flips(x) else ("start", 14)
    height = y - 26 if y > HEIGHT / 3 else y + 22
    tip = (
        f'<text class="tip" aria-hidden="true" text-anchor="{anchor}">'
        f'<tspan x="{x + shift:.1f}" y="{height:.1f}">{name}</tspan>'
        f'<tspan x="{x + shift:.1f}" dy="1.25em">{figures}</tspan></text>'
    )
    disc = f'<circle class="target" cx="{x:.1f}" cy="{y:.1f}" r="12"/>'
    if point.href:
        disc = f'<a href="{escape(point.href)}" tabindex="-1" aria-label="{name}: {figures}">{disc}</a>'
    return f'<g class="hover">{disc}<title>{name}: {figures}</title>{tip}</g>'


def _flips(x: float) -> bool:
    """Whether text stands to the left of a mark, so that it stays inside the picture."""
    return x > (WIDTH - RIGHT) * 0.6
