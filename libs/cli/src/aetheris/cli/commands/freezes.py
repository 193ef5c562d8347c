"""`aetheris freeze | unfreeze | freezes`: nothing starts of an agent, a tenant or a tool (docs/freeze.md)."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, shown, table
from aetheris.cli.gateway import connected
from aetheris.sdk.client import Client

Agent = Annotated[str | None, typer.Option(help="The principal whose jobs' calls are meant.")]
Tenant = Annotated[str | None, typer.Option(help="All its jobs' calls; or those of --agent or --tool there.")]
Tool = Annotated[str | None, typer.Option(help="The tool whose calls are meant, in your tenant.")]
Everywhere = Annotated[bool, typer.Option("--everywhere", help="With --tool: in all tenants; for administrators.")]
Reason = Annotated[str | None, typer.Option(help="Why; it is recorded with your name.")]

_SHOWN = ("by", "at", "reason")


def _order(name: str, give: Callable[..., dict[str, Any]], says: str) -> Callable[..., None]:
    """A command that orders something of an agent, a tenant or a tool."""

    def order(
        *,
        agent: Agent = None,
        tenant: Tenant = None,
        tool: Tool = None,
        everywhere: Everywhere = False,
        reason: Reason = None,
        who: local.As = None,
        data: local.Data = local.DEFAULT_DATA,
        as_json: Json = False,
    ) -> None:
        with errors_as_exits(as_json=as_json):
            _check(agent, tenant, tool)
            with connected(data, who) as client:
                answer = give(client, agent=agent, tenant=tenant, tool=tool, everywhere=everywhere, reason=reason)
            _print(answer, as_json=as_json)

    order.__name__, order.__doc__ = name, says
    return order


freeze = _order(
    "freeze",
    Client.freeze,
    "Let nothing start of an agent, a tenant or a tool until it is unfrozen; says what had started before.",
)
unfreeze = _order("unfreeze", Client.unfreeze, "Let go on what is frozen.")


def freezes(*, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """List what is frozen: by whom, since when, why, and how many calls had started before."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.freezes()
        if as_json:
            print_json(found)
            return
        columns = ("frozen", "by", "since", "reason", "answered", "may still act")
        table(
            columns,
            [[_named(one), one["by"], one["at"], one.get("reason"), _share(one), _acting(one)] for one in found],
        )


def _check(agent: str | None, tenant: str | None, tool: str | None) -> None:
    if agent is None and tenant is None and tool is None:
        rule = "say --agent, --tool or --tenant"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--agent")


def _print(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    word = "frozen" if answer["frozen"] else "unfrozen"
    if answer["answered"] < answer["partitions"]:
        typer.echo(f"taken; {_share(answer)} partitions have answered yet")
    else:
        typer.echo(f"{_named(answer)}: {word} by {shown(answer['by'])} at {answer['at']}")
    for call in answer.get("acting", ()) if answer["frozen"] else ():
        typer.echo(f"  may still act: {shown(call['job_id'])} {shown(call['node_id'])} ({shown(call['tool'])})")
    if answer["frozen"] and answer.get("more"):
        typer.echo(f"  and {answer['more']} more")


def _named(freeze: dict[str, Any]) -> str:
    kinds = [kind for kind in ("agent", "tool", "tenant") if freeze.get(kind) is not None]
    return " of ".join(f"{kind} {shown(freeze[kind])}" for kind in kinds)


def _share(freeze: dict[str, Any]) -> str:
    return f"{freeze['answered']} of {freeze['partitions']}"


def _acting(freeze: dict[str, Any]) -> int:
    return len(freeze.get("acting", ())) + freeze.get("more", 0)
