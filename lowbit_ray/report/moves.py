"""How a board moves under new rules, on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from lowbit_ray.rescore import Move

__all__ = ["moves_table"]


def moves_table(moves: Iterable[Move]) -> Table:
    """One line a row of the board: where it was, where it would be, and what its score does."""
    table = Table(box=None, pad_edge=False)
    for name in ("was", "is"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("participant", "submission"):
        table.add_column(name, overflow="fold")
    for name in ("after cost, was", "is", "by"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for move in moves:
        by = move.board_score_after - move.board_score_before
        table.add_row(
            _place(move, move.rank_before),
            Text(_place(move, move.rank_after), "bold" if move.rank_before != move.rank_after else ""),
            Text(move.participant),
            move.submission,
            f"{move.board_score_before:.4f}",
            f"{move.board_score_after:.4f}",
            Text(f"{by:+.4f}", "green" if by > 0 else "red" if by < 0 else "dim"),
            Text(_note(move)),
        )
    return table


def _place(move: Move, rank: int | None) -> str:
    return "ref" if move.reference else "flag" if rank is None else str(rank)


def _note(move: Move) -> str:
    if move.qualified_before == move.qualified_after:
        return ""
    return "qualifies now" if move.qualified_after else f"qualifies no more: {move.reason}"
