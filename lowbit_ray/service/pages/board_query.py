"""What somebody asked of a board: sorting, filtering, pages; every state is an address, so that no script is needed.

An address that makes no sense shows the plain board rather than an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlencode

from lowbit_ray.board import Row

__all__ = ["COLUMNS", "BoardQuery", "Column", "Shown"]

PER_PAGE = 100
LONGEST = 100
"""Characters of a search text."""
Order = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the board that can be sorted by."""

    key: str
    title: str
    value: Callable[[Row], Any]
    first: Order
    """The order that a first click gives."""
    number: bool = True


COLUMNS = (
    Column("rank", "rank", lambda row: row.rank, "up"),
    Column("participant", "participant", lambda row: row.participant.casefold(), "up", number=False),
    Column("score", "score ± se", lambda row: row.score, "down"),
    Column("board", "cost-adjusted", lambda row: row.board_score, "down"),
    Column("precision", "precision", lambda row: row.precision, "up", number=False),
    Column("kl", "KL, nats", lambda row: row.kl, "up"),
    Column("speed", "speed", lambda row: row.speed, "down"),
    Column("memory", "memory", lambda row: row.memory, "down"),
    Column("hours", "GPU-hours", lambda row: row.gpu_hours, "up"),
    Column("track", "track", lambda row: row.track, "up", number=False),
)
BY_KEY = {column.key: column for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows of one page of a board."""

    rows: Sequence[Row]
    total: int
    """Rows that the filter leaves."""
    pages: int


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """One view of a board."""

    sort: str = ""
    """Key of a column; empty for the board's own order."""
    order: Order = "up"
    track: str = ""
    precision: str = ""
    text: str = ""
    """Part of a participant's name or method."""
    qualified: bool = False
    references: bool = True
    page: int = 1

    @classmethod
    def read(cls, given: Mapping[str, str]) -> BoardQuery:
        """From an address's query."""
        sort = given.get("sort", "")
        column = BY_KEY.get(sort)
        order = given.get("order", "")
        page = given.get("page", "")
        return cls(
            sort=sort if column else "",
            order="down" if order == "down" else "up" if order == "up" or not column else column.first,
            track=given.get("track", "") if given.get("track") in {"checkpoint", "engine"} else "",
            precision=given.get("precision", "")[:LONGEST],
            text=given.get("q", "").strip()[:LONGEST],
            qualified=given.get("qualified") == "yes",
            references=given.get("references") != "no",
            page=max(1, int(page[:9])) if page.isascii() and page.isdigit() else 1,
        )

    def link(self, **changes: Any) -> str:
        """The query of the same view with changes; another sorting or filter begins at page 1."""
        other = replace(self, **({"page": 1} | changes))
        return f"?{urlencode(other.given)}"

    @property
    def given(self) -> dict[str, str]:
        """What differs from the plain board."""
        values = {
            "sort": self.sort,
            "order": self.order if self.sort else "",
            "track": self.track,
            "precision": self.precision,
            "q": self.text,
            "qualified": "yes" if self.qualified else "",
            "references": "" if self.references else "no",
            "page": str(self.page) if self.page > 1 else "",
        }
        return {name: value for name, value in values.items() if value}

    def sorting(self, column: Column) -> str:
        """The link that sorts by a column, or turns the order where it sorts already."""
        order = column.first
        if self.sort == column.key:
            order = "down" if self.order == "up" else "up"
        return self.link(sort=column.key, order=order)

    def direction(self, column: Column) -> str | None:
        """The column's `aria-sort`; None where the board is not sorted by it."""
        if (self.sort or "rank") != column.key:
            return None
        return "descending" if self.order == "down" else "ascending"

    def filtered(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that the filter leaves, in order."""
        text = self.text.casefold()
        left = [
            row
            for row in rows
            if (not self.track or row.track == self.track)
            and (not self.precision or row.precision == self.precision)
            and (not self.qualified or row.qualified)
            and (self.references or not row.reference)
            and (not text or text in row.participant.casefold() or text in row.method.casefold())
        ]
        if not self.sort:
            return left
        value = BY_KEY[self.sort].value
        known = [row for row in left if value(row) is not None]
        known.sort(key=value, reverse=self.order == "down")
        return known + [row for row in left if value(row) is None]  # what has no value stands last either way

    def shown(self, rows: Sequence[Row]) -> Shown:
        """This page of the filtered rows."""
        left = self.filtered(rows)
        pages = max(1, -(-len(left) // PER_PAGE))
        first = (min(self.page, pages) - 1) * PER_PAGE
        return Shown(left[first : first + PER_PAGE], len(left), pages)
