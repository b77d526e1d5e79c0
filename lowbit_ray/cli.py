"""The command line: thin commands, one call into the library each.

Exit codes: 0 done and good, 1 done and not good (a broken contract, a record that disagrees, a submission that was
rejected or failed), 2 could not be done (an error says why), 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from lowbit_ray.errors import ConfigError, LowbitError

__all__ = ["main"]

app = typer.Typer(
    name="lowbit",
    help="Measures low-bit language models against their BF16 source.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of text for a person.")]


@app.command(epilog="Example: lowbit demo --keep ./demo --candidate w4a16")
def demo(
    keep: Annotated[Path, typer.Option(help="Folder of the demo; a second run goes on from it.")] = Path(
        "lowbit-demo"
    ),
    candidate: Annotated[
        str, typer.Option(help="What to score: w8a8, w4a16, or bf16 (the anchor itself).")
    ] = "w8a8",
    task: Annotated[str, typer.Option(help="The task.")] = "smollm2-135m",
    as_json: Json = False,
) -> None:
    """Scores a quantized small real model on this machine: Ray, vLLM, and every stage of a real evaluation."""
    from lowbit_ray.demo.run import CANDIDATES, run_demo
    from lowbit_ray.report.console import ConsoleWatch
    from lowbit_ray.report.terminal import render_record

    chosen = next((name for name in CANDIDATES if name == candidate), None)
    if chosen is None:
        raise ConfigError(
            "no such candidate", where="--candidate", found=candidate, expected=", ".join(CANDIDATES)
        )
    with ConsoleWatch(err) as watch:
        finished = run_demo(keep, chosen, task, watch)
    if as_json:
        print(finished.record.to_json())  # noqa: T201  # for a program, so not through rich
    else:
        render_record(finished.record, out)
        out.print(f"record  {finished.record_path}\npage    {finished.page_path}", highlight=False)
    _leave(0 if finished.record.status == "done" else 1)


@app.command(epilog="Example: lowbit evaluate 0123456789abcdef")
def evaluate(
    submission: Annotated[str, typer.Argument(help="Id of a submission in the ledger (LOWBIT_LEDGER).")],
    as_json: Json = False,
) -> None:
    """Evaluates one submission on the Ray cluster at RAY_ADDRESS, or on a Ray of this machine."""
    from lowbit_ray.evaluate import run
    from lowbit_ray.report.console import ConsoleWatch
    from lowbit_ray.report.terminal import render_record

    with ConsoleWatch(err) as watch:
        record = run(submission, watch)
    if as_json:
        print(record.to_json())  # noqa: T201
    else:
        render_record(record, out)
    _leave(0 if record.status == "done" else 1)


@app.command(epilog="Example: lowbit watch 0123456789abcdef")
def watch(
    submission: Annotated[str, typer.Argument(help="Id of a submission in the ledger (LOWBIT_LEDGER).")],
    as_json: Json = False,
) -> None:
    """Follows one submission until there is a verdict, wherever it is evaluated; --json is one moment a line."""
    from lowbit_ray.ledger import open_ledger
    from lowbit_ray.progress import Moment, follow
    from lowbit_ray.report.following import show_moments
    from lowbit_ray.settings import settings

    moments = follow(open_ledger(settings().ledger), submission)
    last: Moment | None = None
    if as_json:
        for last in moments:
            print(last.model_dump_json(), flush=True)  # noqa: T201
    else:
        last = show_moments(moments, out)
    _leave(0 if last is not None and last.state.status == "done" else 1)


@app.command(epilog="Example: lowbit doctor --release 10.0.0.7")
def doctor(
    release: Annotated[str, typer.Option(help="Put a node of the quarantine back into service.")] = "",
    as_json: Json = False,
) -> None:
    """Tries everything that evaluations need: cluster, GPUs, ledger, hub, disk, vLLM, sandbox, niceness."""
    from lowbit_ray.doctor.examine import examine, put_back
    from lowbit_ray.doctor.finding import healthy
    from lowbit_ray.doctor.terminal import render_findings
    from lowbit_ray.settings import settings

    found = put_back(settings(), release) if release else examine(settings())
    findings = list(found) if as_json else render_findings(found, out)
    if as_json:
        print(json.dumps([finding.model_dump() for finding in findings], indent=1))  # noqa: T201
    _leave(0 if healthy(findings) else 1)


@app.command(epilog="Example: lowbit check ./source ./candidate --task qwen3-8b --declared W8A8KV8")
def check(
    source: Annotated[Path, typer.Argument(help="Folder of the BF16 source.")],
    candidate: Annotated[Path, typer.Argument(help="Folder of the quantized checkpoint.")],
    task: Annotated[str, typer.Option(help="The task whose workloads and limits count.")] = "qwen3-8b",
    declared: Annotated[str | None, typer.Option(help="The precision you would declare, W4A16KV8.")] = None,
    as_json: Json = False,
) -> None:
    """Holds a checkpoint against its source: contract, precision, expected memory, servable releases. No GPU."""
    from lowbit_ray.checkpoint.check import check as check_folders
    from lowbit_ray.checkpoint.render import render
    from lowbit_ray.rules import load_rules
    from lowbit_ray.settings import settings
    from lowbit_ray.tasks import load_task

    report = check_folders(
        source,
        candidate,
        task=load_task(task, settings().tasks),
        rules=load_rules(settings().rules),
        declared=declared,
    )
    if as_json:
        print(report.model_dump_json(indent=1))  # noqa: T201
    else:
        out.print(render(report))
    _leave(report.exit_code)


@app.command(epilog="Example: lowbit score record.json")
def score(
    record: Annotated[Path, typer.Argument(help="A record, as the service or the demo writes it.")],
    as_json: Json = False,
) -> None:
    """Recomputes every derived number of a record from its measured ones, and says where they differ."""
    from lowbit_ray.recheck import recheck_file
    from lowbit_ray.report.checks import render_checks

    checks = recheck_file(record)
    if as_json:
        print(json.dumps([check.model_dump() for check in checks], indent=1))  # noqa: T201
    else:
        out.print(render_checks(checks))
    _leave(1 if any(check.status == "differs" for check in checks) else 0)


def _leave(code: int) -> None:
    if code:
        raise typer.Exit(code)


def main() -> NoReturn:
    """Runs the command line; an error raised on purpose is one line, not a traceback."""
    try:
        code = app(standalone_mode=False)
    except LowbitError as error:
        err.print(f"[bold red]{type(error).__name__}[/]", end=" ")
        err.print(str(error), markup=False, highlight=False)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        err.print("interrupted; the same command goes on from the finished steps")
        sys.exit(130)
    except Exception as error:
        show = getattr(error, "show", None)  # a wrong option or argument
        if show is None:
            raise
        show()
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
