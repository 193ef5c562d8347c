"""`aetheris health`, `aetheris stalled`: how the system's parts stand, and which jobs stand still."""

from typing import Any

import typer

from aetheris.cli import local
from aetheris.cli.console import Json, errors_as_exits, print_json, table
from aetheris.cli.gateway import connected


def health(*, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Show who is there of each service, what waits in topics, where the log was cut, dead letters, who serves what."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.health()
        if as_json:
            print_json(found)
            return
        table(("service", "processes"), [(one["service"], _there(one)) for one in found["services"]])
        waits = [(one["service"], one["topic"], one["records"], _means(one)) for one in found["backlogs"]]
        table(("service", "topic", "records", ""), waits)
        cut = [(one["topic"], one["partition"], one["service"], one["why"]) for one in found["log_cut"]]
        table(("cut", "partition", "had been read by", "why"), cut)
        table(("dead letters", "records"), [(one["topic"], one["records"]) for one in found["dead_letters"]])
        lives = [(one["worker_id"], one.get("pool"), _serves(one)) for one in found["executors"]]
        table(("executor", "pool", "serves"), lives)


def stalled(*, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Show your tenant's open jobs that stand still, and why."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.stalled()
        if as_json:
            print_json(found)
            return
        rows = [(one["job_id"], one["status"], one["in_doubt"], one["parked"], one["why"]) for one in found["jobs"]]
        table(("job", "status", "in doubt", "parked", "why"), rows)
        if not found["is_whole"]:
            typer.echo("there are more open jobs than were looked at: of each status the newest", err=True)


def _there(one: dict[str, Any]) -> str:
    if one.get("unknown") is not None:
        return one["unknown"]
    named = (" ".join(filter(None, (process["name"], process.get("version")))) for process in one["processes"])
    return ", ".join(named) or "nobody is there"


def _means(one: dict[str, Any]) -> str:
    return "kept for open jobs" if one["is_kept"] else "wait"


def _serves(one: dict[str, Any]) -> str:
    return ", ".join(one.get("serves", ())) if one["is_live"] else "nobody lives under this name"
