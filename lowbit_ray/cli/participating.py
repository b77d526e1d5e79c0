"""Commands for participants: the service at LOWBIT_URL, with the token of LOWBIT_TOKEN_FILE."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowbit_ray.cli.terminal import PARTICIPANTS, Json, app, leave, out, print_json

if TYPE_CHECKING:
    from lowbit_ray.progress import Moment
    from lowbit_ray.service.client import Service

FOLLOWED = ("queue_position", "steps", "progress", "score", "score_se", "qualified", "reason")
"""What an event says beside the state."""
Id = Annotated[str, typer.Argument(help="A submission's id, 16 hex digits.")]


@app.command(
    rich_help_panel=PARTICIPANTS,
    epilog="Example: lowbit submit owner/name@<commit> --task qwen3-8b --method 'FP8, calibrated KV'",
)
def submit(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="owner/name@<40-digit commit>, or s3://bucket/prefix; for organizers also a folder "
            "where it is evaluated."
        ),
    ],
    task: Annotated[str, typer.Option(help="The task.", autocompletion=_tasks)],
    method: Annotated[str, typer.Option(help="What it is, in a few words.")],
    precision: Annotated[str | None, typer.Option(help="As you declare it, W8A8KV8.")] = None,
    split: Annotated[str, typer.Option(help="dev, or test: scored and public.")] = "dev",
    engine: Annotated[
        str | None, typer.Option(help="Where launch.sh lies; makes it the engine track.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Who acts for you.")] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="For organizers: shown without a rank.")
    ] = False,
    key: Annotated[str | None, typer.Option(help="The same key gives the same submission.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with `lowbit watch`.")] = False,
    as_json: Json = False,
) -> None:
    """Hands a checkpoint in for evaluation."""
    body = {
        "task": task,
        "checkpoint": _address(checkpoint),
        "engine": _address(engine) if engine else None,
        "track": "engine" if engine else "checkpoint",
        "precision": precision,
        "split": split,
        "method": method,
        "agent": agent,
        "reference": reference,
    }
    with the_service() as service:
        view = service.submit(body, key)
        say(view, as_json)
        if not as_json:
            signed = "" if split == "test" else "  (a dev submission: sign in there with your token)"
            out.print(
                f"page  {service.url}/submissions/{view['id']}{signed}", highlight=False, soft_wrap=True
            )
    if follow:
        watch(view["id"], as_json)


@app.command(rich_help_panel=PARTICIPANTS, epilog="Example: lowbit watch 0123456789abcdef")
def watch(submission: Id, as_json: Json = False) -> None:
    """Follows one submission until there is a verdict; --json is one moment a line.

    Asks the service; with LOWBIT_LEDGER set and LOWBIT_URL not, the ledger itself.
    """
    from lowbit_ray.ledger import open_ledger
    from lowbit_ray.progress import follow
    from lowbit_ray.report.following import show_moments
    from lowbit_ray.settings import settings

    given = settings().model_fields_set
    asks_service = "ledger" not in given or "url" in given
    moments = _moments(submission) if asks_service else follow(open_ledger(settings().ledger), submission)
    last: Moment | None = None
    if as_json:
        for last in moments:
            print_json(last.model_dump_json())
    else:
        last = show_moments(moments, out)
        if last is not None and last.over:
            _say_why(last, asks_service)
    leave(0 if last is not None and last.state.status == "done" else 1)


@app.command(rich_help_panel=PARTICIPANTS, epilog="Example: lowbit show 0123456789abcdef")
def show(
    submission: Id,
    logs: Annotated[bool, typer.Option("--logs", help="The start-up logs of your own engine.")] = False,
    as_json: Json = False,
) -> None:
    """Shows one submission: where it stands, or its record."""
    from lowbit_ray.report.plain import plain
    from lowbit_ray.report.steps import log_title

    with the_service() as service:
        if not logs:
            say(service.show(submission), as_json)
            return
        found = service.logs(submission)
    if as_json:
        print_json(json.dumps(found, indent=1))
        return
    for name, text in found.items():
        out.rule(f"{log_title(name)} ({name})")
        out.print(plain(text), markup=False, highlight=False, soft_wrap=True)


@app.command(
    "list", rich_help_panel=PARTICIPANTS, epilog="Example: lowbit list --task qwen3-8b --status done"
)
def list_(
    task: Annotated[str | None, typer.Option(help="Only of this task.", autocompletion=_tasks)] = None,
    participant: Annotated[str | None, typer.Option(help="Only this person's.")] = None,
    status: Annotated[
        str | None, typer.Option(help="waiting, running, done, rejected, failed or cancelled.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="dev or test.")] = None,
    limit: Annotated[int, typer.Option(help="Submissions at most, 1 to 200.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="`next` of the page before.")] = None,
    as_json: Json = False,
) -> None:
    """Lists submissions, the newest first: scored ones of everybody, dev ones of your own."""
    from lowbit_ray.report.brief import submissions_table

    given = {"task": task, "participant": participant, "status": status, "split": split, "cursor": cursor}
    with the_service() as service:
        page = service.list(limit=str(limit), **{name: value for name, value in given.items() if value})
    if as_json:
        print_json(json.dumps(page, indent=1, ensure_ascii=False))
        return
    out.print(submissions_table(page))
    if page["next"] is not None:
        out.print(f"older ones: --cursor {page['next']}", highlight=False, soft_wrap=True)


@app.command(
    rich_help_panel=PARTICIPANTS, epilog="Example: lowbit cancel 0123456789abcdef --reason 'wrong commit'"
)
def cancel(
    submission: Id, reason: Annotated[str, typer.Option(help="Why.")] = "", as_json: Json = False
) -> None:
    """Stops a submission before its next step; it uses no quota."""
    with the_service() as service:
        say(service.cancel(submission, reason), as_json)


@app.command(rich_help_panel=PARTICIPANTS, epilog="Example: lowbit board qwen3-8b")
def board(
    task: Annotated[str, typer.Argument(help="The task.", autocompletion=_tasks)], as_json: Json = False
) -> None:
    """Shows the board of a task."""
    from lowbit_ray.report.brief import board_table

    with the_service() as service:
        answer = service.board(task)
    if as_json:
        print_json(json.dumps(answer, indent=1))
    elif answer["rows"]:
        out.print(board_table(answer))
    else:
        out.print("no scored submission yet: dev ones are on no board")


@app.command(rich_help_panel=PARTICIPANTS, epilog="Example: lowbit whoami")
def whoami(as_json: Json = False) -> None:
    """Says whose token it is, and what is left of the quotas."""
    from lowbit_ray.report.people import person_table

    with the_service() as service:
        me = service.me()
    if as_json:
        print_json(json.dumps(me, indent=1))
    else:
        out.print(person_table(me))


def _say_why(last: Moment, asks_service: bool) -> None:
    """Why a submission that is over did not qualify, and what to change; where its figures are."""
    from lowbit_ray.report.brief import refusal_table
    from lowbit_ray.report.plain import plain

    if last.reason is not None and asks_service:
        with the_service() as service:
            out.print(refusal_table(service.show(last.submission)))
    elif last.reason is not None:
        out.print(f"reason  {plain(last.reason)}", markup=False, highlight=False)
    if asks_service:
        out.print(f"figures  lowbit show {last.submission}", highlight=False)


def _address(text: str) -> str:
    """A folder of this machine by its whole path, as whoever evaluates starts elsewhere; anything else as it is."""
    return str(Path(text).expanduser().resolve()) if text.startswith((".", "~")) else text


def the_service() -> Service:
    """The service at LOWBIT_URL."""
    from lowbit_ray.service.client import Service, read_token
    from lowbit_ray.settings import settings

    return Service(settings().url, read_token(settings().token_file))


def _moments(submission: str) -> Iterator[Moment]:
    from lowbit_ray.progress import Moment

    with the_service() as service:
        for told in service.follow(submission):
            moment = {name: told[name] for name in FOLLOWED if name in told}
            state = {"status": told["status"], "stage": told["stage"]}
            yield Moment.model_validate(moment | {"submission": submission, "state": state})


def say(view: dict[str, Any], as_json: bool) -> None:
    """One submission."""
    from lowbit_ray.report.brief import submission_table

    if as_json:
        print_json(json.dumps(view, indent=1, ensure_ascii=False))
    else:
        out.print(submission_table(view))


def _tasks(incomplete: str) -> list[str]:
    """For the shell's completion: the tasks that this installation knows."""
    from lowbit_ray.settings import settings
    from lowbit_ray.tasks import list_tasks

    return [name for name in list_tasks(settings().tasks) if name.startswith(incomplete)]
