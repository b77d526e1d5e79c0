"""Commands for organizers: the service itself, tokens, the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowbit_ray.cli.terminal import OPERATION, ORGANIZERS, Json, app, err, leave, out, print_json

if TYPE_CHECKING:
    from lowbit_ray.ledger import Ledger

token = typer.Typer(help="Tokens of participants and organizers, in the ledger.", no_args_is_help=True)
ledger = typer.Typer(help="The ledger as a whole: backup, move, check.", no_args_is_help=True)
app.add_typer(token, name="token", rich_help_panel=ORGANIZERS)
app.add_typer(ledger, name="ledger", rich_help_panel=ORGANIZERS)

Name = Annotated[str, typer.Argument(help="The person's name: a-z, 0-9, dots, dashes, underscores.")]
File = Annotated[Path, typer.Argument(help="The file, a gzipped tar.", dir_okay=False)]
Export = Annotated[
    Path, typer.Argument(help="What `lowbit ledger export` wrote.", exists=True, dir_okay=False)
]


@app.command(rich_help_panel=OPERATION, epilog="Example: lowbit serve --port 8000")
def serve(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8000,
    evaluate: Annotated[
        bool, typer.Option(help="Also start a Ray on this machine that evaluates what is submitted.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Serves the arena from this machine: API, pages, and a Ray of its own that evaluates."""
    from lowbit_ray.service.local import serve as serve_here
    from lowbit_ray.settings import settings

    def ready(url: str, token_file: Path | None) -> None:
        if as_json:
            print_json(
                json.dumps({"url": url, "token_file": None if token_file is None else str(token_file)})
            )
            return
        err.print(f"serving {url}", highlight=False, soft_wrap=True)
        if token_file is not None:
            err.print(f"an organizer's token was put into {token_file}", highlight=False, soft_wrap=True)

    serve_here(settings(), host=host, port=port, evaluate=evaluate, ready=ready)


@token.command(epilog="Example: lowbit token issue ann")
def issue(
    name: Name,
    organizer: Annotated[bool, typer.Option("--organizer", help="A new person is an organizer.")] = False,
    save: Annotated[
        bool, typer.Option("--save", help="Put it into LOWBIT_TOKEN_FILE, for this user.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Issues one more token to a person, who is made where there is none. It is shown this once."""
    from lowbit_ray.people import check_issue, issue_token

    ledger = open_configured()
    check_issue(ledger, name, "organizer" if organizer else None)
    log_command(name, "token issued", "as organizer" if organizer else "")
    text = issue_token(ledger, name, "organizer" if organizer else None)
    _show_token(name, text, save, as_json)


@token.command(epilog="Example: lowbit token rotate ann")
def rotate(
    name: Name,
    save: Annotated[
        bool, typer.Option("--save", help="Put it into LOWBIT_TOKEN_FILE, for this user.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Issues a new token and revokes all others of the person."""
    from lowbit_ray.people import find_person, rotate_token

    find_person(open_configured(), name)
    log_command(name, "tokens rotated")
    _show_token(name, rotate_token(open_configured(), name), save, as_json)


@token.command(epilog="Example: lowbit token revoke ann --id 5f2c1d0e")
def revoke(
    name: Name,
    token_id: Annotated[str | None, typer.Option("--id", help="Only this token; all without it.")] = None,
    as_json: Json = False,
) -> None:
    """Revokes tokens; they stop working within seconds."""
    from lowbit_ray.people import live_tokens, revoke_tokens

    live_tokens(open_configured(), name, token_id)
    log_command(name, "tokens revoked", token_id or "all")
    count = revoke_tokens(open_configured(), name, token_id)
    if as_json:
        print_json(json.dumps({"revoked": count}))
    else:
        out.print(f"{count} revoked")


@token.command("list", epilog="Example: lowbit token list")
def list_(as_json: Json = False) -> None:
    """Lists people and the ids of their tokens; no token itself is known any more."""
    from rich.table import Table

    from lowbit_ray.people import list_people
    from lowbit_ray.report.people import own_quotas

    people = list_people(open_configured())
    if as_json:
        print_json(json.dumps([person.model_dump(mode="json") for person in people], indent=1))
        return
    table = Table("name", "role", "tokens", "quotas of their own", box=None, pad_edge=False)
    for person in people:
        tokens = ", ".join(one.id for one in person.live_tokens()) or "none"
        table.add_row(person.name, person.role, tokens, own_quotas(person.model_dump()))
    out.print(table)


@ledger.command(epilog="Example: lowbit ledger export backup.tar.gz")
def export(file: File, as_json: Json = False) -> None:
    """Writes every object into one file."""
    from lowbit_ray.archive import export_ledger

    count = export_ledger(open_configured(), file)
    print_json(json.dumps({"objects": count})) if as_json else out.print(f"{count} objects")


@ledger.command(
    "import", epilog="Example: LOWBIT_LEDGER=s3://bucket/arena lowbit ledger import backup.tar.gz"
)
def import_(file: Export, as_json: Json = False) -> None:
    """Creates every object of a file that the ledger does not have; nothing is replaced."""
    from lowbit_ray.archive import import_ledger

    log_command("ledger", "import", file.name)
    done = import_ledger(open_configured(), file)
    if as_json:
        print_json(done.model_dump_json(indent=1))
    else:
        out.print(f"{done.created} created, {done.known} known, {len(done.conflicts)} with other content")
        for key in done.conflicts:
            out.print(f"differs  {key}", markup=False, highlight=False)
    leave(1 if done.conflicts else 0)


@ledger.command(epilog="Example: lowbit ledger fsck --repair")
def fsck(
    repair: Annotated[
        bool, typer.Option("--repair", help="Put submissions that a crash left out into the queue.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Checks that every object can be read and agrees with its neighbours."""
    from lowbit_ray.fsck import fsck as check_ledger

    if repair:
        log_command("ledger", "repair")
    faults = check_ledger(open_configured(), repair=repair)
    if as_json:
        print_json(json.dumps([fault.model_dump() for fault in faults], indent=1))
    for fault in [] if as_json else faults:
        note = " (repaired)" if fault.repaired else ""
        out.print(f"{fault.key}: {fault.what}{note}", markup=False, highlight=False, soft_wrap=True)
    if not faults and not as_json:
        out.print("the ledger is whole")
    leave(1 if any(not fault.repaired for fault in faults) else 0)


def open_configured() -> Ledger:
    """The ledger of LOWBIT_LEDGER."""
    from lowbit_ray.ledger import open_ledger
    from lowbit_ray.settings import settings

    return open_ledger(settings().ledger)


def log_command(subject: str, what: str, reason: str = "") -> None:
    """Into the audit log, before the act: what cannot be logged is not done."""
    from lowbit_ray.journal import account, log_action

    log_action(open_configured(), f"command line: {account()}", what, subject, reason)


def _show_token(name: str, text: str, save: bool, as_json: bool) -> None:
    from lowbit_ray.service.client import write_token
    from lowbit_ray.settings import settings

    path = settings().token_file
    if save:
        write_token(path, text)
    if as_json:
        print_json(
            json.dumps({"name": name, "token_file": str(path)} if save else {"name": name, "token": text})
        )
    elif save:
        out.print(f"in {path}", highlight=False, soft_wrap=True)
    else:
        print_json(text)
