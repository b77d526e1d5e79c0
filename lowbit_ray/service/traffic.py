"""Counts and durations of requests, by route and status, in Prometheus' words."""

from __future__ import annotations

import time
from collections import Counter, defaultdict

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Traffic", "metric_lines"]

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Traffic:
    """What has been asked of this process."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """By method, route and status."""
        self._within: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS_S) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """Counts what passes through."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            started, status = time.perf_counter(), 500

            async def watched(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    self._count(scope, status, time.perf_counter() - started)
                await send(message)

            await app(scope, receive, watched)

        return counted

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """Until the head of the answer: a stream of events lasts as long as its reader wants."""
        route = getattr(
            scope.get("route"), "path", "(none)"
        )  # never the path itself: anybody can invent paths
        self.requests[scope["method"], route, status] += 1
        self._within[route][sum(seconds > bound for bound in BOUNDS_S)] += 1
        self._seconds[route] += seconds

    def lines(self) -> list[str]:
        """The counters as Prometheus reads them."""
        found = ["# TYPE lowbit_http_requests_total counter"]
        for (method, route, status), count in sorted(self.requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            found.append(f"lowbit_http_requests_total{{{labels}}} {count}")
        found.append("# TYPE lowbit_http_seconds histogram")
        for route, counts in sorted(self._within.items()):
            total = 0
            for bound, count in zip((*BOUNDS_S, "+Inf"), counts, strict=True):
                total += count
                found.append(f'lowbit_http_seconds_bucket{{route="{route}",le="{bound}"}} {total}')
            found.append(f'lowbit_http_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}')
            found.append(f'lowbit_http_seconds_count{{route="{route}"}} {total}')
        return found


def metric_lines(name: str, kind: str, values: dict[str, float], label: str = "") -> list[str]:
    """One metric: by the value of a label, or a single value under the empty string."""
    lines = [f"# TYPE {name} {kind}"]
    for value, number in values.items():
        lines.append(f'{name}{{{label}="{value}"}} {number:g}' if label else f"{name} {number:g}")
    return lines
