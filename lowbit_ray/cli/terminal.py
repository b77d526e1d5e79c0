"""What all commands share: the application they belong to, where they print, how they end."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

__all__ = [
    "OPERATION",
    "ORGANIZERS",
    "OWN",
    "PARTICIPANTS",
    "Json",
    "app",
    "err",
    "leave",
    "out",
    "print_json",
]

app = typer.Typer(
    name="lowbit",
    help="Measures low-bit language models against their BF16 source.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
out = Console()
err = Console(stderr=True)

OWN = "On your own machine"
PARTICIPANTS = "For participants: the service at LOWBIT_URL, with the token in LOWBIT_TOKEN_FILE"
ORGANIZERS = "For organizers: the same service, and the ledger at LOWBIT_LEDGER"
OPERATION = "For who runs the cluster"
"""Panels of `lowbit --help`."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of text for a person.")]


def print_json(text: str) -> None:
    """For a program, so not through rich; each line at once."""
    print(text, flush=True)  # noqa: T201


def leave(code: int) -> None:
    """Ends the command with an exit code."""
    if code:
        raise typer.Exit(code)
