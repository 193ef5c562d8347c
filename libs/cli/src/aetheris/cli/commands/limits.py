"""`aetheris limits`: what you and your tenant may ask for, and what of it is left."""

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
