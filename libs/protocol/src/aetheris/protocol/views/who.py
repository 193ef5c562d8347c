"""Who is behind an event: the service that wrote it, or the human whose word it is."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from aetheris.protocol.fold.job_log import Told, text_of
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Via


def decided_by(told: Told) -> tuple[str | None, str | None]:
    """(executor, ledger, planner, verifier or human; the human's name, where it was recorded)."""
    name = _human(told.said)
    if name is not None:
        return "human", name or None
    source = text_of(told.record.header("ce_source"))
    return source.removeprefix("aetheris/").removeprefix("tool_") or None, None


def _human(said: object) -> str | None:
    """The name of the human whose word it is; empty where it was not recorded, None where it is no human's."""
    match said:
        case ev.ToolInvocationFinished() if said.via is Via.HUMAN:
            return said.by or ""
        case ev.ApprovalDecided():
            return said.approver
        case ev.InvocationReopened() if said.by == "human":
            told = (one for one in said.evidence if isinstance(one, Mapping))
            return next((str(one["by"]) for one in cast("Iterable[Mapping[str, Any]]", told) if "by" in one), "")
        case ev.CancelRequested() | ev.InvocationCancelRequested() | ev.JobCancelled():
            return said.by
        case ev.JobPaused() | ev.JobResumed():
            return said.by
        case ev.InvocationRejected() | ev.WaitCompleted():
            return said.by
        case _:
            return None
