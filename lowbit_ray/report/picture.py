"""The picture of a score: efficiency E against drift D, with curves of equal score, as SVG.

S = E · exp(−D / 10), so a curve of equal score rises with the drift; up and to the left is better. Colours come
from the page's style sheet by class (`anchor`, `candidate`, …), so that the picture follows light and dark.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

__all__ = ["Point", "picture"]

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 96, 24, 52
STEPS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True)
class Point:
    """One submission in the picture."""

    label: str
    kind: str
    """CSS class: `anchor`, `candidate` or `other`."""
    drift: float
    """D in points; drawn at 0 where negative, as the score treats it."""
    efficiency: float
    drift_se: float = 0.0
    score: float = 0.0


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


def picture(points: list[Point], *, scale: float = 10.0) -> str:
    """An SVG element; `scale` is the rules' points of drift for a factor e."""
    axes = _axes(points)
    parts = [
        f'<svg class="picture" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Efficiency against drift, with curves of equal score">',
        *_grid(axes),
        *_curves(axes, scale),
        *(_mark(point, axes) for point in points),
        "</svg>",
    ]
    return "\n".join(parts)


def _axes(points: list[Point]) -> _Axes:
    reach = max([1.0, *(1.25 * (max(point.drift, 0.0) + point.drift_se) for point in points)])
    values = [1.0, *(point.efficiency for point in points)]
    room = max(0.15, 0.25 * (max(values) - min(values)))
    return _Axes(drift_max=reach, low=max(0.0, min(values) - room), high=max(values) + room)


def _ticks(low: float, high: float, most: int) -> list[float]:
    step = next((step for step in STEPS if (high - low) / step <= most), STEPS[-1])
    first = math.ceil(low / step - 1e-9)
    return [step * index for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _grid(axes: _Axes) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for drift in _ticks(0.0, axes.drift_max, 8):
        x = axes.x(drift)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{drift:g}</text>'
        )
    for value in _ticks(axes.low, axes.high, 8):
        y = axes.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        )
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text class="axis" x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">'
        "drift D from BF16, points (less is better)</text>"
    )
    parts.append(
        f'<text class="axis" transform="translate(16 {middle:.0f}) rotate(-90)" text-anchor="middle">'
        "efficiency gain E (more is better)</text>"
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
        parts.append(f'<text class="level" x="{x + 4:.1f}" y="{y + 4:.1f}">S = {level:.2f}</text>')
    return parts


def _mark(point: Point, axes: _Axes) -> str:
    x, y = axes.x(point.drift), axes.y(point.efficiency)
    kind, label = escape(point.kind), escape(point.label)
    low, high = axes.x(point.drift - point.drift_se), axes.x(point.drift + point.drift_se)
    right = x > (WIDTH - RIGHT) * 0.7
    anchor, shift = ("end", -10) if right else ("start", 10)
    return (
        f'<g class="{kind}"><title>{label}: E {point.efficiency:.3f}, D {point.drift:.3f} ± {point.drift_se:.3f}, '
        f"score {point.score:.4f}</title>"
        f'<line class="error" x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
        f'<text class="label" x="{x + shift:.1f}" y="{y - 10:.1f}" text-anchor="{anchor}">{label}</text></g>'
    )
