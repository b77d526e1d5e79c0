"""Commands of the engine track."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lowbit_ray.cli.terminal import OWN, Json, app, err, leave, out

__all__: list[str] = []

engine = typer.Typer(help="The engine track.", no_args_is_help=True)
app.add_typer(engine, name="engine", rich_help_panel=OWN)


@engine.command("test", epilog="Example: lowbit engine test ./engine --model ./candidate --task smollm2-135m")
def rehearse(
    folder: Annotated[str, typer.Argument(help="Folder with launch.sh, or the address of one.")],
    model: Annotated[str, typer.Option(help="The checkpoint that it serves: a folder or an address.")],
    task: Annotated[str, typer.Option(help="The task whose shapes and limits count.")] = "qwen3-8b",
    gpus: Annotated[str, typer.Option(help="GPUs, as 0,1; by default as many as the task needs.")] = "",
    keep: Annotated[Path, typer.Option(help="Folder for logs and sealed copies; made anew.")] = Path(
        "lowbit-engine-test"
    ),
    as_json: Json = False,
) -> None:
    """Runs an engine on this machine through what the cluster will ask of it, and says what to change. Minutes."""
    from lowbit_ray.doctor.finding import healthy
    from lowbit_ray.doctor.terminal import render_findings
    from lowbit_ray.rehearsal.rehearse import rehearsal
    from lowbit_ray.settings import settings

    def told(what: str) -> None:
        if not as_json:
            err.print(f"… {what}", style="dim")

    found = rehearsal(folder, model, task, gpus, keep, settings()).findings(told)
    if as_json:
        shown = list(found)
        print(json.dumps([finding.model_dump() for finding in shown], indent=1))  # noqa: T201
    else:
        shown = render_findings(found, out)
        out.print(f"logs  {keep / 'logs'}", highlight=False)
    leave(0 if healthy(shown) else 1)
