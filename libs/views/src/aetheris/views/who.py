"""Who is behind an event: the service that wrote it, or the human whose word it is."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from aetheris.protocol.fold.job_log import LoggedEvent, text_of
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Via


def decided_by(logged: LoggedEvent) -> tuple[str | None, str | None]:
    """(executor, ledger, planner, verifier or human; the human's name, where it was recorded)."""
    name = _human(logged.event)
    if name is not None:
        return "human", name or None
    source = text_of(logged.record.header("ce_source"))
    return source.removeprefix("aetheris/").removeprefix("tool_") or None, None


def _human(reported: object) -> str | None:
    """The name of the human whose word it is; empty where it was not recorded, None where it is no human's."""
    match reported:
        case ev.ToolInvocationFinished() if reported.via is Via.HUMAN:
            return reported.by or ""
        case ev.ApprovalDecided() | ev.ApprovalVoted():
            return reported.approver
        case ev.ResolutionVoted():
            return reported.by
        case ev.InvocationReopened() if reported.by == "human":
            told = (one for one in reported.evidence if isinstance(one, Mapping))
            return next((str(one["by"]) for one in cast("Iterable[Mapping[str, Any]]", told) if "by" in one), "")
        case ev.CancelRequested() | ev.InvocationCancelRequested() | ev.JobCancelled():
            return reported.by
        case ev.JobPaused() | ev.JobResumed() | ev.JobFrozen() | ev.JobUnfrozen():
            return reported.by
        case ev.InvocationRejected() | ev.WaitCompleted():
            return reported.by
        case _:
            return None
