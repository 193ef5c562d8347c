"""`aetheris audit`: who came, what he was shown and what he was refused; and whether the records are whole."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import Exit, Json, end, errors_as_exits, print_json, progress, table
from aetheris.cli.gateway import connected
from aetheris.cli.since import since_time
from aetheris.protocol.messages.accesses import AccessChains
from aetheris.sdk.client import Client


def audit(
    *,
    since: Annotated[
        str | None, typer.Option(help="Only from then on, by gateways' clocks: such as 2h or 30d ago, or RFC 3339.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only what this tenant's principals did, or others in it.")] = None,
    principal: Annotated[str | None, typer.Option(help="Only what he did.")] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show who logged in, was refused, read, took evidence away, saw requests, answered; 1 if records were changed."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            chains, found = _read(client, since_time(since))
        rows = [one for one in found if _is_wanted(one, tenant, principal)]
        if as_json:
            print_json({"records": rows, "checked": chains.count, "faults": chains.faults})
        else:
            table(("at", "action", "who", "kind", "tenant", "from", "what", "status", "why"), list(map(_row, rows)))
            for fault in chains.faults:
                progress("changed", fault)
            progress("checked", f"{chains.count} records of {chains.gateways} gateways: {len(chains.faults)} faults")
        if chains.faults:
            end(Exit.FAILED)


def _read(client: Client, since: str | None) -> tuple[AccessChains, list[Mapping[str, Any]]]:
    """The records in the order of the log, each once, and what their chains say of them."""
    chains, found, cursor = AccessChains(), list[Mapping[str, Any]](), None
    while True:
        page = client.audit(since=since, cursor=cursor)
        if cursor is None:
            chains.whole = page["whole"]
        found += [one for one in page["records"] if chains.see(one)]
        cursor = page["cursor"]
        if cursor is None:
            return chains, found


def _is_wanted(one: Mapping[str, Any], tenant: str | None, principal: str | None) -> bool:
    said = one.get("principal") or {}
    tenants = (None, one.get("tenant"), one.get("other_tenant"))
    return not one.get("hidden") and tenant in tenants and principal in (None, said.get("id"))


def _row(one: Mapping[str, Any]) -> list[Any]:
    said, what = one.get("principal") or {}, " ".join(_what(one))
    who = (said.get("id"), said.get("kind"), one.get("tenant"), one.get("address"))
    return [one.get("at"), one.get("action"), *who, what, one.get("status"), one.get("reason")]


def _what(one: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(one[name]) for name in ("route", "subject") if one.get(name))
    if one.get("other_tenant"):
        yield f"of tenant {one['other_tenant']}"
    if one.get("count", 1) != 1:
        yield f"{one['count']} times"
