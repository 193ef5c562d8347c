"""`aetheris limits`, `aetheris quotas`: what you and your tenant, or every tenant, may ask for; what of it is left."""

import typer

from aetheris.cli import local
from aetheris.cli.console import Json, errors_as_exits, print_json, table
from aetheris.cli.gateway import connected


def limits(*, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Show your limits and your tenant's, and how many of its jobs have not ended."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.limits()
        if as_json:
            print_json(found)
            return
        rows = [(one["name"], _shown(one["limit"]), _shown(one["left"])) for one in found["limits"]]
        table(("limit", f"of {found['tenant']}", "left"), rows)
        table(("open jobs", "count"), list(found["open_jobs"].items()))


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def quotas(*, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Show every tenant's limits, what of them is left, and its jobs that have not ended; for who administers."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.quotas()
        if as_json:
            print_json(found)
            return
        for one in found["tenants"]:
            rows = [(limit["name"], _shown(limit["limit"]), limit["left"]) for limit in one["limits"]]
            rows.append(("open jobs", str(sum(one["open_jobs"].values())), ""))
            table(("limit", f"of {one['tenant']}", "left"), rows)
        if found["left_out"]:
            typer.echo(f"and {found['left_out']} other tenants", err=True)
