"""What becomes of what humans say and are asked: no word is ignored, an open request is listed and can be answered."""

from collections.abc import Iterable, Mapping, Sequence

from aetheris.gateway.core import requests
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, Settled
from aetheris.protocol.messages.commands import (
    Cancel,
    CancelContract,
    JobCommand,
    JobIndexEntry,
    Pause,
    Resolve,
    Resume,
    Signal,
)
from aetheris.protocol.messages.events import ResolutionVoted
from aetheris.protocol.planning.approvals import request_id
from aetheris.testkit.simulation.checks import Broken
from aetheris.views.standing import job_view

Jobs = Mapping[str, JobState]


def check_words(words: Iterable[JobCommand], passed_over: Iterable[CancelContract], jobs: Jobs) -> None:
    """In the end each has done what it asked for, or its job has ended, or another word was there before.

    A cancel that a ledger has done with holds its call back, or is on record beside it.
    """
    for cancel in passed_over:
        state = _of(jobs[cancel.job_id], cancel.execution_id)
        if state is not None and state.outcome is not Settled.REJECTED and not state.cancel_requested:
            raise Broken("a_cancel_leaves_its_mark", f"{cancel.job_id}: {state.node_id} went on as if nothing was said")
    for command in words:
        job = jobs.get(command.job_id)
        if job is not None and job.terminal is None and _is_ignored(command, job):
            raise Broken("a_word_is_heard", f"{job.job_id}: {type(command).__name__} by {command.by}")


def check_listed(jobs: Jobs, index: Mapping[str, JobIndexEntry]) -> bool:
    """Every open request lies in the list, in the job's view, and can be answered; whether there is any."""
    found = False
    for job in jobs.values():
        steps = {step["node_id"]: step.get("request_id") for step in job_view(job, "")["steps"]}
        listed = {one.id for one in index[job.job_id].requests}
        for key, state in job.keys.items():
            if not is_asked(job, state):
                continue
            found, request = True, request_id(job.job_id, state.node_id, key, state.asks)
            if state.is_waiting and state.waits_for is not None:
                request = state.waits_for.correlation_key or ""
            if request not in listed or steps[state.node_id] != request or requests.find(job, request) is None:
                raise Broken("requests_are_listed", f"{job.job_id} {state.node_id}: {request}")
    return found


def is_asked(job: JobState, state: KeyState) -> bool:
    """Whether a human is asked for an approval, or to fill a form, and may still answer."""
    is_form = state.is_waiting and state.waits_for is not None and state.waits_for.wait_type == "human"
    return job.terminal is None and job.stopping is None and (state.is_asking or is_form)


def _is_ignored(command: JobCommand, job: JobState) -> bool:
    match command:
        case Cancel():
            return job.cancel is None
        case Pause():
            return command.number > job.pauses and job.cancel is None
        case Resume():
            return job.paused is not None and job.pauses == command.number
        case Signal():
            unsaid = command.correlation_key not in job.signals and not _has_voted(command.by, job.acceptances)
            return unsaid and _waits_for(job, command.correlation_key)
        case CancelContract():
            return is_unheard(command, job)
        case Resolve():
            state = _of(job, command.execution_id)
            return (
                state is not None
                and state.status is KeyStatus.PARKED
                and not _has_voted(command.by, [vote for _, vote in state.resolutions])
            )
        case _:
            return False


def _has_voted(by: str, votes: Sequence[ResolutionVoted]) -> bool:
    return any(vote.by == by for vote in votes)


def is_unheard(cancel: CancelContract, job: JobState) -> bool:
    """Whether a step's cancel still has something to hold back, and the log says nothing of it."""
    state = _of(job, cancel.execution_id)
    if state is None or job.terminal is not None or state.cancel_requested:
        return False
    asked_for = state.status is not KeyStatus.NONE or state.requested is not None or state.is_waiting
    return state.status is not KeyStatus.SETTLED and asked_for


def _waits_for(job: JobState, name: str) -> bool:
    """Whether the plan, or a question to a human, knows a signal of that name."""
    entries = [job.entry(node_id) for node_id in job.entries] if job.stopping is None else []
    keys = [entry.node.wait.key for entry in entries if entry is not None and entry.node.wait is not None]
    return name in keys or any(one.correlation_key == name for one in job.open_waits.values())


def _of(job: JobState, execution: str) -> KeyState | None:
    found = (state for key, state in job.keys.items() if execution_id(job.job_id, state.node_id, key) == execution)
    return next(found, None)
