"""`aetheris reconcile`: what a job did, compared with what the external system shows now."""

import json
import time
from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.commands.jobs import JobId
from aetheris.cli.console import (
    CommandError,
    Exit,
    Json,
    end,
    errors_as_exits,
    fields,
    print_json,
    table,
)
from aetheris.cli.job_ids import of_job
from aetheris.protocol.planning.confirmation import verdict
from aetheris.sdk.client import Client, JobEvent, Reconciled

_LOOK_AGAIN_S = 0.5
_NOBODY_ASKED = {
    "not_asked": "nobody was asked: nothing is known of what the external system shows",
    "nothing_to_compare": "the job changed nothing that could be compared",
}
_ANSWERS = frozenset({"effect_confirmed", "confirmation_failed"})


def reconcile(
    job_id: JobId,
    *,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait for the external system's answers.")
    ] = 60.0,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Compare what a job did with the external system; 1 if something is otherwise, or can't be told."""
    with errors_as_exits(as_json=as_json):
        with of_job(job_id, data) as (client, job):
            found = _completed(client, client.reconcile(job), time.monotonic() + wait_s)
        if as_json:
            print_json(found.model_dump(mode="json"))
        else:
            _print(found)
        if not found.complete:
            missing = found.asked - found.confirmed - found.failed
            raise CommandError(Exit.FAILED, "not_answered", f"{missing} of {found.asked} effects were not answered for")
    end(Exit.HOLDS if found.ok else Exit.FAILED)


def _completed(client: Client, found: Reconciled, until_s: float) -> Reconciled:
    """The answers that came later than the gateway waits are read from the job's events."""
    while not found.complete and time.monotonic() < until_s:
        time.sleep(_LOOK_AGAIN_S)
        reported = [one for one in client.events(found.job_id) if _answers(one, found.command_id)]
        confirmed = sum(one.type == "effect_confirmed" for one in reported)
        failed = len(reported) - confirmed
        word = verdict(found.asked, confirmed, failed, found.unverifiable)
        counts = {"confirmed": confirmed, "failed": failed, "verdict": word, "ok": word == "confirmed"}
        found = found.model_copy(update={**counts, "effects": tuple(_effect(one) for one in reported)})
    return found


def _answers(event: JobEvent, command_id: str) -> bool:
    if event.void or event.type not in _ANSWERS or not isinstance(event.data, dict):
        return False
    return event.data.get("caused_by") == command_id


def _effect(event: JobEvent) -> dict[str, Any]:
    named = ("node_id", "idempotency_key", "resource", "reason", "detail", "evidence")
    return {"id": event.id, "event": event.type, **{name: event.data[name] for name in named if event.data.get(name)}}


def _print(found: Reconciled) -> None:
    if found.asked == 0:
        fields((("verdict", _NOBODY_ASKED[found.verdict]),))
    fields((("asked", found.asked), ("confirmed", found.confirmed), ("failed", found.failed)))
    if found.unverifiable:
        fields((("not asked", f"{found.unverifiable} effects: no verifier, or no change recorded"),))
    table(("step", "resource", "id", "now", "difference"), [_row(one) for one in found.effects])


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    resource, detail = one["resource"], one.get("detail")
    now = one.get("reason") or "confirmed"
    shown = detail if detail is None or isinstance(detail, str) else json.dumps(detail, ensure_ascii=False)
    return (one["node_id"], resource["resource_type"], resource["resource_id"], now, shown)
