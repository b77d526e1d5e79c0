"""The command line: thin commands, one call into the library each.

    evaluating.py     demo, evaluate, doctor, check, score
    participating.py  submit, watch, show, list, cancel, board, whoami: the service's API in the same words
    engine_track.py   engine test
    organizing.py     serve, token …, ledger …
    overseeing.py     quota, flag, audit
    terminal.py       what they share

Exit codes: 0 done and good, 1 done and not good (a broken contract, a record that disagrees, a submission that was
rejected or failed), 2 could not be done (an error says why), 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from lowbit_ray.cli import engine_track, evaluating, organizing, overseeing, participating
from lowbit_ray.cli.terminal import app, err
from lowbit_ray.errors import LowbitError

__all__ = ["COMMANDS", "app", "main"]

COMMANDS = (evaluating, participating, engine_track, organizing, overseeing)
"""They add their commands to `app` as they are imported."""


def main() -> NoReturn:
    """Runs the command line; an error raised on purpose is one line, not a traceback."""
    try:
        code = app(standalone_mode=False)
    except LowbitError as error:
        err.print(f"[bold red]{type(error).__name__}[/]", end=" ")
        err.print(str(error), markup=False, highlight=False)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        err.print("interrupted; what was finished is kept, and the same command goes on from there")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)  # whoever reads has seen enough
    except Exception as error:  # typer shows its own faults; any other goes on as a traceback
        show = getattr(error, "show", None)  # a wrong option or argument
        if show is None:
            raise
        show()
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
