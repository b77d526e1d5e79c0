"""Commands that measure and check: demo, evaluate, doctor, check, score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lowbit_ray.cli.terminal import OPERATION, OWN, Json, app, err, leave, out, print_json
from lowbit_ray.errors import ConfigError


@app.command(rich_help_panel=OWN, epilog="Example: lowbit demo --keep ./demo --candidate w4a16")
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
        print_json(finished.record.to_json())
    else:
        render_record(finished.record, out)
        out.print(f"record  {finished.record_path}\npage    {finished.page_path}", highlight=False)
    leave(0 if finished.record.status == "done" else 1)


@app.command(rich_help_panel=OPERATION, epilog="Example: lowbit evaluate 0123456789abcdef")
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
        print_json(record.to_json())
    else:
        render_record(record, out)
    leave(0 if record.status == "done" else 1)


@app.command(rich_help_panel=OPERATION, epilog="Example: lowbit doctor --release 10.0.0.7")
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
        print_json(json.dumps([finding.model_dump() for finding in findings], indent=1))
    leave(0 if healthy(findings) else 1)


@app.command(
    rich_help_panel=OWN,
    epilog="Example: lowbit check ./source ./candidate --task qwen3-8b --declared W8A8KV8",
)
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
        print_json(report.model_dump_json(indent=1))
    else:
        out.print(render(report))
    leave(report.exit_code)


@app.command(rich_help_panel=OWN, epilog="Example: lowbit score record.json")
def score(
    record: Annotated[Path, typer.Argument(help="A record, as the service or the demo writes it.")],
    as_json: Json = False,
) -> None:
    """Recomputes every derived number of a record from its measured ones, and says where they differ."""
    from lowbit_ray.recheck import recheck_file
    from lowbit_ray.report.checks import render_checks

    checks = recheck_file(record)
    if as_json:
        print_json(json.dumps([check.model_dump() for check in checks], indent=1))
    else:
        out.print(render_checks(checks))
    leave(1 if any(check.status == "differs" for check in checks) else 0)
