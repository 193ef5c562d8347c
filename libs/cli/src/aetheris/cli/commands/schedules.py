"""`aetheris schedules`: what starts jobs by itself, when next, and what came of it last."""

from collections.abc import Mapping
from typing import Any

import typer

from aetheris.cli import local
from aetheris.cli.console import Json, errors_as_exits, print_json, table
from aetheris.cli.gateway import connected


def schedules(*, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Show what starts your tenant's jobs: by the time, by messages, by webhooks; and what it started last."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.schedules()
        if as_json:
            print_json(found)
            return
        told = found["schedulers"]
        rows = [_row(one, start) for one in told for start in one["starts"]]
        table(("scheduler", "starts by", "name", "when", "next", "last", "job", "refused last", "waits"), rows)
        for one in told:
            if one.get("fault") is not None:
                typer.echo(f"{one['scheduler']}: its file can't be used: {one['fault']}", err=True)
            elif not one["is_heard"]:
                typer.echo(f"{one['scheduler']}: has told nothing since {one['at']}", err=True)
            if one.get("left_out"):
                typer.echo(f"{one['scheduler']}: {one['left_out']} others are not told", err=True)


def _row(scheduler: Mapping[str, Any], start: Mapping[str, Any]) -> tuple[Any, ...]:
    last, refused = start.get("last") or {}, start.get("refused") or {}
    job = " ".join(filter(None, (last.get("job_id"), last.get("status"))))
    told = " ".join(filter(None, (refused.get("code"), refused.get("at"))))
    named = (scheduler["scheduler"], start["kind"], start["name"], start["when"], start.get("next_at"))
    return (*named, last.get("at"), job, told, start.get("waits"))
