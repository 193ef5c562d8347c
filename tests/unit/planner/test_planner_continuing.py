"""A submission that continues a job is taken up only as that job's own stream bears it out, whoever wrote it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aetheris.planner.core.behind import Behinds
from aetheris.planner.core.decisions import Append, Look, RefusedSubmission
from aetheris.planner.core.partition import Partition
from aetheris.planner.handlers import PlannerHandler
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.adoption import Continues, Given, Use
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.event_values import BlobRef
from aetheris.protocol.planning.continuation import EndedJob, continues
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.process.withheld import Withheld
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.memory import MemoryLog
from tests.testkit import histories as h

Change = Callable[[Continues], Continues]


def failed(*, sure: bool = True, end: ev.Event | None = None) -> JobState:
    """A job of which a succeeded, and b did not."""
    nodes = ({"id": "a", "tool": "pay", "args": {"n": 1}}, {"id": "b"})
    paid: dict[str, Any] = {"args": {"n": 1}, "tool": "pay"}
    allowed = h.about(ev.PolicyAllowed, "a", args=paid["args"], tool="pay", args_hash="x", tool_version="1", rule="r")
    return h.fold(
        h.planned(h.graph(*nodes, act={}, pay={"irreversible": True})),
        allowed,
        h.started("a", "n-a", **paid),
        h.finished("a", "n-a", result={"x": 7}, **paid),
        h.started("b", "n-b"),
        h.finished("b", "n-b", "permanent_failure", via="executor" if sure else "ledger"),
        end or ev.JobFailed(job_id=h.JOB, error="b failed", node_id="b"),
    )


def submission(continues: Continues, *nodes: dict[str, Any], tenant: str = h.TENANT) -> Submit:
    planned = nodes or ({"id": "b", "args": {"n": 7}},)
    plan = h.graph(*planned, act={}, pay={"irreversible": True})
    used = continues.model_copy(update={"uses": (Use(node_id="b", at="/args/n", ref="a#/x"),)} if not nodes else {})
    return Submit(job_id="job-2", by="bob", tenant=tenant, request_hash="q", plan=plan, continues=used)


def taken(command: Submit, ended: EndedJob | None) -> ev.Event:
    """The last event of the birth."""
    core = Partition(lambda _job_id: None)
    assert core.submit(command, "cmd", 0) == Look(h.JOB)
    assert core.submit(command, "cmd", 0) is None, "the same request, which is being looked up"
    group = core.looked_up(command, "cmd", 0, ended)
    assert isinstance(group, Append)
    assert isinstance(group.facts[0].event, ev.JobCreated)
    return group.facts[-1].event


def test_what_its_stream_bears_out_is_taken_up() -> None:
    ended = EndedJob(failed(), h.SEAL)
    assert isinstance(taken(submission(continues(ended)), ended), ev.PlanGenerated)


def first(continues: Continues, **changed: Any) -> Continues:
    one, *rest = continues.adopted
    return continues.model_copy(update={"adopted": (one.model_copy(update=changed), *rest)})


FORGED: dict[str, Change] = {
    "a result": lambda continuation: first(continuation, result_hash="0"),
    "a key": lambda continuation: first(continuation, idempotency_key="0"),
    "a step that failed": lambda continuation: first(continuation, node_id="b"),
    "a meaning": lambda continuation: first(continuation, content_key=None),
    "nothing adopted": lambda continuation: continuation.model_copy(update={"adopted": ()}),
    "more adopted": lambda continuation: continuation.model_copy(
        update={"adopted": (*continuation.adopted, continuation.adopted[0].model_copy(update={"node_id": "z"}))}
    ),
    "another seal": lambda continuation: continuation.model_copy(
        update={"seal": continuation.seal.model_copy(update={"root": "0"})}
    ),
    "a place of the result": lambda continuation: first(continuation, result_ref=BlobRef(sha256="0", size=1)),
    "a result for references": lambda continuation: continuation.model_copy(
        update={"given": (Given(name=f"{h.JOB}/a", result={"x": 8}),)}
    ),
    "a result of nothing": lambda continuation: continuation.model_copy(
        update={"given": (Given(name="z/a", result={"x": 7}),)}
    ),
    "another depth": lambda continuation: continuation.model_copy(update={"depth": 2}),
}


@pytest.mark.parametrize("forged", FORGED)
def test_what_a_forged_submission_says_never_runs(forged: str) -> None:
    ended = EndedJob(failed(), h.SEAL)
    end = taken(submission(FORGED[forged](continues(ended))), ended)
    assert isinstance(end, ev.JobFailed)
    assert (end.unfounded, end.error.startswith("continues: ")) == (True, True)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({"id": "a", "tool": "pay", "args": {"n": 2}}, "in its plan again"),
        ({"id": "z", "tool": "pay", "args": {"n": 1}}, "say its occurrence"),
    ],
)
def test_what_was_paid_is_not_paid_again_by_a_forged_plan(nodes: dict[str, Any], reason: str) -> None:
    ended = EndedJob(failed(), h.SEAL)
    end = taken(submission(continues(ended), nodes), ended)
    assert isinstance(end, ev.JobFailed)
    assert reason in end.error


def test_values_that_stand_for_results_are_those_results() -> None:
    ended = EndedJob(failed(), h.SEAL)
    command = submission(continues(ended), {"id": "b", "args": {"n": 8}})
    assert command.continues is not None
    for use in (("b", "/args/n", "a#/x"), ("b", "/args/m", "a#/x"), ("z", "/args/n", "a#/x"), ("b", "/args/n", "b")):
        reported = Use(node_id=use[0], at=use[1], ref=use[2])
        forged = command.model_copy(update={"continues": command.continues.model_copy(update={"uses": (reported,)})})
        assert isinstance(taken(forged, ended), ev.JobFailed)


def test_a_job_that_there_is_not_runs_or_is_anothers_is_not_continued() -> None:
    continuation = continues(EndedJob(failed(), h.SEAL))
    completed = failed(end=ev.JobCompleted(job_id=h.JOB))
    unfounded = failed(end=ev.JobFailed(job_id=h.JOB, error="continues: no", unfounded=True))
    for ended in (
        None,
        EndedJob(failed(), None),
        EndedJob(failed(sure=False), h.SEAL),
        EndedJob(completed, h.SEAL),
        EndedJob(unfounded, h.SEAL),
    ):
        assert isinstance(taken(submission(continuation), ended), ev.JobFailed)
    end = taken(submission(continuation, tenant="umbrella"), EndedJob(failed(), h.SEAL))
    assert isinstance(end, ev.JobFailed)
    assert end.error == "continues: there is no such job", "nobody learns what others have"


@pytest.mark.parametrize("is_read", [True, False])
def test_what_was_created_while_it_was_looked_up_is_not_created_again(*, is_read: bool) -> None:
    """By a planner that was thought dead, in whatever version: the submission comes twice, and is created once."""
    core, ended = Partition(lambda _job_id: None), EndedJob(failed(), h.SEAL)
    command = submission(continues(ended))
    assert core.submit(command, "cmd", 0) == Look(h.JOB)
    if is_read:
        stands = ev.JobCreated(job_id="job-2", tenant=h.TENANT, submitted_by="bob", request_hash="q")
        made = draft(Topic.JOBS_EVENTS, stands, key="job-2", id="e", source="test", time="2030-01-01T00:00:00Z")
        found = decode_event(Record(str(Topic.JOBS_EVENTS), 0, 7, 0, b"job-2", made.headers, made.value))
        assert isinstance(found, Envelope)
        core.evolve(found)
    else:
        core.needs_upgrade("job-2", 7)
    assert core.submit(command, "cmd", 1) is None
    assert core.looked_up(command, "cmd", 0, ended) is None
    assert (dict(core.live()), core.low_water()) == ({"job-2": 7}, None)


def test_a_plan_that_is_none_is_refused_as_ever() -> None:
    core, ended = Partition(lambda _job_id: None), EndedJob(failed(), h.SEAL)
    command = submission(continues(ended)).model_copy(update={"plan": {"nodes": [{"id": 7}]}})
    core.submit(command, "cmd", 0)
    assert isinstance(core.looked_up(command, "cmd", 0, ended), RefusedSubmission)


async def test_it_waits_for_the_log_and_holds_its_place(tmp_path: Path) -> None:
    log, clock, ended = MemoryLog(partitions=1), VirtualClock(), EndedJob(failed(), h.SEAL)
    appender, asked = log.appender(), list[str]()
    await appender.start()

    async def look_up(job_id: str) -> EndedJob | None:
        asked.append(job_id)
        if len(asked) == 1:
            raise LogUnreachable
        return ended

    handler = PlannerHandler(
        partition=0,
        taken=lambda: -1,
        appender=appender,
        withheld=Withheld(appender, clock, Metrics("planner")),
        indexed=lambda _job_id: None,
        behind=Behinds(),
        quarantine=lambda _record, reason: pytest.fail(reason),
        traffic=BlobTraffic(FolderBlobs(tmp_path), clock),
        telemetry=Telemetry("planner", 0),
        metrics=Metrics("planner"),
        clock=clock,
        again=lambda _start, _end: pytest.fail("nothing waits"),
        look_up=look_up,
        call_at=list[float]().append,
    )
    command = submission(continues(ended))
    await appender.append([(draft(Topic.JOBS_COMMANDS, command, key="job-2", id="1", source="test", time=""),)])
    await handler.restored()
    await handler.handle({Topic.JOBS_COMMANDS: log.records(Topic.JOBS_COMMANDS)})
    await clock.advance(0.5)
    await handler.tick()
    assert (log.records(Topic.JOBS_EVENTS), handler.low_water(Topic.JOBS_COMMANDS)) == ([], 0)
    await clock.advance(1.0)
    await handler.tick()
    assert [record.header("ce_type") for record in log.records(Topic.JOBS_EVENTS)] == [
        b"io.aetheris.job_created.v1",
        b"io.aetheris.plan_generated.v1",
    ]
    assert (asked, handler.low_water(Topic.JOBS_COMMANDS)) == ([h.JOB, h.JOB], 0), "until its birth is read back"
    await handler.handle({Topic.JOBS_EVENTS: log.records(Topic.JOBS_EVENTS)})
    assert handler.low_water(Topic.JOBS_COMMANDS) is None
