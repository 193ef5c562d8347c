"""`aetheris budgets`: what the newest jobs spent of their rules' budgets and of their models' limits."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import Json, errors_as_exits, print_json, table
from aetheris.cli.gateway import connected
from aetheris.cli.since import since_time

Row = tuple[str, str, str, Any]


def budgets(
    *,
    since: Annotated[str | None, typer.Option(help="Of jobs created since then: a time, or 30m, 12h, 7d ago.")] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show what jobs spent, each beside its limit; and what agents, and the tenant, spent together."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.budgets(since=since_time(since))
        if as_json:
            print_json(found)
            return
        table(("job", "agent", "of", "spent"), [row for job in found["jobs"] for row in _rows(job["job_id"], job)])
        table(("agent", "", "of", "spent"), [row for one in found["agents"] for row in _rows(one["name"], one)])
        table(("tenant", "", "of", "spent"), list(_rows(found["tenant"]["name"], found["tenant"])))
        if not found["is_whole"]:
            typer.echo(f"of the {found['looked_at']} newest jobs; there are others", err=True)


def _rows(name: str, spent: Mapping[str, Any]) -> Iterator[Row]:
    agent = spent.get("agent", "")
    for one in spent["rules"]:
        unit = f" {one['counts']}" if one.get("counts") is not None else ""
        yield name, agent, f"{one['rule']}{unit}", _of(one["spent"], one.get("limit"))
    answers = spent.get("answers")
    if answers is not None:
        yield name, agent, "tokens", _of(answers["tokens"], answers.get("tokens_limit"))
        yield name, agent, "USD for answers", _of(answers["cost_usd"], answers.get("cost_usd_limit"))


def _of(spent: float | None, limit: float | None) -> str:
    known = "not known" if spent is None else f"{spent:g}"
    return known if limit is None else f"{known} of {limit:g}"
