"""Commands for organizers who look after people and results: quotas of one person, flags, the audit log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from lowbit_ray.cli.organizing import Name, log_command, open_configured
from lowbit_ray.cli.participating import Id, say, the_service
from lowbit_ray.cli.terminal import ORGANIZERS, Json, app, out, print_json
from lowbit_ray.errors import ConfigError

if TYPE_CHECKING:
    from lowbit_ray.people import OwnQuota

__all__: list[str] = []

DEFAULT = "default"
DIGITS = 6


@app.command(rich_help_panel=ORGANIZERS, epilog="Example: lowbit quota ann --scored 5 --dev-per-day default")
def quota(
    name: Name,
    scored: Annotated[
        str | None, typer.Option(help="Scored submissions a task: a number, or `default` for the rules'.")
    ] = None,
    dev_per_day: Annotated[
        str | None,
        typer.Option(help="Dev submissions a task and day: a number, or `default` for the task's."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Shows what a participant may submit and has; with options, gives quotas of their own. Needs the ledger."""
    from lowbit_ray.index import Index
    from lowbit_ray.people import find_participant, find_person, set_quotas
    from lowbit_ray.report.people import quotas_table
    from lowbit_ray.rules import load_rules
    from lowbit_ray.service.quota import quotas_of
    from lowbit_ray.settings import settings
    from lowbit_ray.tasks import list_tasks, load_task

    ledger, configured = open_configured(), settings()
    changes: dict[OwnQuota, int | None] = {}
    if scored is not None:
        changes["scored_per_task"] = _number("--scored", scored)
    if dev_per_day is not None:
        changes["dev_per_day"] = _number("--dev-per-day", dev_per_day)
    if changes:
        find_participant(ledger, name)
        words = (f"{what} {DEFAULT if number is None else number}" for what, number in changes.items())
        log_command(name, "quotas set", ", ".join(words))
        set_quotas(ledger, name, changes)
    tasks = [load_task(task, configured.tasks) for task in list_tasks(configured.tasks)]
    person, rules = find_person(ledger, name), load_rules(configured.rules)
    found = quotas_of(ledger, Index(ledger).reread, person, tasks, rules)
    if as_json:
        print_json(found.model_dump_json(indent=1))
    else:
        out.print(quotas_table(found.model_dump(mode="json")))


@app.command(
    rich_help_panel=ORGANIZERS, epilog="Example: lowbit flag 0123456789abcdef --reason 'remembers answers'"
)
def flag(
    submission: Id,
    reason: Annotated[str, typer.Option(help="Why; everybody can read it.")] = "",
    lift: Annotated[bool, typer.Option("--lift", help="Take the flag back.")] = False,
    as_json: Json = False,
) -> None:
    """Takes a submission off the board; its record stays visible, with the reason."""
    if lift == bool(reason):
        raise ConfigError("one of two options is needed", where="lowbit flag", expected="--reason or --lift")
    with the_service() as service:
        say(service.unflag(submission) if lift else service.flag(submission, reason), as_json)


@app.command(rich_help_panel=ORGANIZERS, epilog="Example: lowbit audit --after 20261130T100000")
def audit(
    after: Annotated[str, typer.Option(help="From this second on (UTC), such as 20261130T100000.")] = "",
    limit: Annotated[int, typer.Option(help="Actions at most, 1 to 1000.")] = 100,
    as_json: Json = False,
) -> None:
    """Shows what organizers did, the oldest first."""
    from lowbit_ray.report.people import actions_table

    with the_service() as service:
        actions = service.audit(after=after, limit=str(limit))
    if as_json:
        print_json(json.dumps(actions, indent=1, ensure_ascii=False))
    else:
        out.print(actions_table(actions))


def _number(option: str, text: str) -> int | None:
    """None for the general number."""
    if text == DEFAULT:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        raise ConfigError("no quota", where=option, found=text, expected=f"a number from 0, or {DEFAULT}")
    return int(text)
