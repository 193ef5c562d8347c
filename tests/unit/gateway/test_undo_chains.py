"""What undoes and what continues jobs that stand behind each other, and what a refused undo leaves behind."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from aetheris.gateway.core.decisions import JobSnapshot
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem, TooLarge, TooMany, Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.hidden_submissions import HiddenSubmissions
from aetheris.gateway.intake import Intake
from aetheris.gateway.undos import UndoQuery, Undos
from aetheris.gateway.views import Page, Row
from aetheris.planner.core.creations import creation_group
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, Submit
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.planning.continuation import ended
from aetheris.runtime.log.interface import LogError
from tests.testkit import histories as h

BOB = Principal("bob", h.TENANT, PrincipalKind.PERSON, frozenset(Role))
REGISTRY = {
    name: RegistryEntry(
        name=name, version="1", schema={"type": "object"}, schema_hash="s", effect_class=EffectClass.OPAQUE
    )
    for name in ("act", "pay", "back")
}
NODES = (
    {"id": "a", "compensate_with": {"tool": "back"}},
    {"id": "p", "tool": "pay", "compensate_with": {"tool": "back"}},
    {"id": "z"},
)


class Counted(Deadlines):
    """How many there were."""

    entered = 0

    @asynccontextmanager
    async def deadline(self) -> AsyncGenerator[None]:
        self.entered += 1
        async with super().deadline():
            yield


class World:
    """All that a gateway asks: a log, its lists, its limits."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.logs: dict[str, list[Record]] = {}
        self.claims: dict[str, str] = {}
        self.sent: list[Submit] = []
        self.submissions = 0
        """That were counted."""
        self.refusals: list[Exception] = []
        """Of the limits, for each job that is asked for next."""
        self.faults: list[Exception] = []
        """Of the log, for each command that is sent next."""
        self.now_s = 0.0
        self.read: Callable[[], None] = lambda: None
        same = cast("Any", self)
        self.deadlines = deadlines = Counted(same, 20.0)
        self.intake = Intake(
            reads=same,
            reader=same,
            writer=same,
            waits=same,
            limits=same,
            feed=same,
            index=same,
            views=same,
            rows=same,
            registry=same,
            deadlines=deadlines,
            clock=same,
            hidden=HiddenSubmissions(None),
        )
        self.undos = Undos(
            reader=same,
            rows=same,
            views=same,
            intake=self.intake,
            registry=same,
            blobs=same,
            deadlines=deadlines,
            clock=same,
            listed_for_s=60.0,
        )

    def is_written(self, job_id: str, status: str, *events: ev.Event) -> str:
        """A job of these events; sealed, where it has ended."""
        said = [*events, *([h.sealed(job_id)] if status in ("failed", "completed") else [])]
        made = [
            draft(Topic.JOBS_EVENTS, one, key=job_id, id=f"{job_id}-{at}", source="s", time="t")
            for at, one in enumerate(said)
        ]
        self.logs[job_id] = [
            Record(one.topic, 0, at, 1_000, one.key, one.headers, one.value) for at, one in enumerate(made)
        ]
        given = self.rows.get(job_id)
        self.rows[job_id] = Row(
            job_id, h.TENANT, status, given.request_hash if given is not None else "h", "ann", "t", birth=0
        )
        return job_id

    def fails(self, job_id: str) -> str:
        """The job of the last command begins, and fails before it does anything."""
        command = next(one for one in self.sent if one.job_id == job_id)
        born = [fact.event for fact in creation_group(command, "cmd").facts]
        return self.is_written(job_id, "failed", *born, ev.JobFailed(job_id=job_id, error="no"))

    async def is_continued(self, job_id: str) -> str:
        return (await self.intake.continue_job(BOB, job_id, b"{}")).job_id

    async def is_undone(self, job_id: str, **body: str) -> str:
        return (await self.undos.undo(BOB, job_id, json.dumps(body).encode())).job_id

    async def row(self, _caller: Principal, job_id: str) -> Row:
        return self.rows[job_id]

    async def listed(self, job_id: str) -> Row | None:
        return self.rows.get(job_id)

    async def end(self, job_id: str) -> int:
        return len(self.logs.get(job_id, ()))

    async def records(self, row: Row, _end: int) -> list[Record]:
        self.read()
        return self.logs.get(row.job_id, [])

    async def fold(self, row: Row) -> JobSnapshot:
        found = ended(await self.records(row, 0))
        return JobSnapshot(row.job_id, None if found is None else found.job, 0)

    async def page(self, *_: object) -> Page:
        return Page(tuple(self.rows.values()), None)

    def cursor_behind(self, row: Row, _query: object) -> str:
        return f"behind {row.job_id}"

    async def claim(self, job_id: str, request_hash: str) -> str | None:
        held = self.claims.get(job_id)
        self.claims.setdefault(job_id, request_hash)
        return held

    async def release(self, job_id: str, request_hash: str) -> None:
        if self.claims.get(job_id) == request_hash:
            del self.claims[job_id]

    def take_submission(self, _tenant: str, _who: str) -> None:
        self.submissions += 1

    async def take_room(self, _tenant: str) -> None:
        if self.refusals:
            raise self.refusals.pop()

    async def send(self, command: Submit, *_: object) -> str:
        if self.faults:
            raise self.faults.pop()
        self.sent.append(command)
        return "c"

    async def announce(self, row: Row) -> None:
        self.rows[row.job_id] = row

    def place_of(self, _job_id: str) -> tuple[tuple[str, int], int]:
        return (Topic.JOBS_EVENTS, 0), 0

    def newest(self) -> dict[str, RegistryEntry]:
        return REGISTRY

    def models(self) -> dict[str, Any]:
        return {}

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def world() -> World:
    """A job that has two effects, and has failed."""
    world = World()
    plan = h.planned(h.graph(*NODES, act={}, pay={}, back={}))
    did: list[ev.Event] = []
    for node, tool in (("a", "act"), ("p", "pay")):
        did += [h.started(node, f"n-{node}", tool=tool), h.finished(node, f"n-{node}", tool=tool)]
    world.is_written(h.JOB, "failed", h.created(), plan, *did, ev.JobFailed(job_id=h.JOB, error="z failed"))
    return world


async def code_of(asked: Any) -> tuple[str, str | None]:
    with pytest.raises(ConflictProblem) as refused:
        await asked
    return refused.value.code, refused.value.details.get("job_id")


async def test_what_an_earlier_job_did_and_was_undone_is_not_adopted_through_the_one_between(world: World) -> None:
    between = world.fails(await world.is_continued(h.JOB))
    undo = await world.is_undone(h.JOB)
    assert await code_of(world.is_continued(between)) == ("undone", undo)
    assert [one.job_id for one in world.sent] == [between, undo]


async def test_what_a_job_adopts_through_others_is_not_undone_while_that_lives(world: World) -> None:
    first = world.fails(await world.is_continued(h.JOB))
    second = world.fails(await world.is_continued(first))
    living = await world.is_continued(second)
    for job_id in (h.JOB, first, second):
        assert (await code_of(world.is_undone(job_id)))[0] == "not_undoable"
    (told, *_) = (await world.undos.preview(BOB, UndoQuery(), None)).jobs
    assert living in str(told.why)
    world.fails(living)
    await world.is_undone(h.JOB)


async def test_jobs_that_never_began_are_passed_by_up_to_a_number(world: World) -> None:
    taken = await world.is_continued(h.JOB)
    never = ev.JobFailed(job_id=taken, error="not so", unfounded=True)
    born = [fact.event for fact in creation_group(world.sent[0], "cmd").facts]
    world.is_written(taken, "failed", *born, never)
    second = await world.is_continued(h.JOB)
    assert second != taken
    found = await world.intake.living_continuation(h.TENANT, h.JOB)
    assert found is not None
    assert found.job_id == second
    log = world.logs[taken]
    real = World.listed

    async def every(job_id: str) -> Row | None:
        found = await real(world, job_id)
        if found is not None and found.status == "failed":
            return found
        world.logs[job_id] = log
        return Row(job_id, h.TENANT, "failed", "h", "ann", "t", birth=0)

    world.listed = every
    assert (await code_of(world.is_continued(h.JOB)))[0] == "not_continuable"
    with pytest.raises(ConflictProblem):
        await world.intake.living_continuation(h.TENANT, h.JOB)


async def test_who_is_refused_by_a_limit_is_in_nobody_s_way(world: World) -> None:
    world.refusals.append(TooMany("jobs_per_s", "later"))
    with pytest.raises(TooMany):
        await world.is_undone(h.JOB, tool="pay")
    assert await world.is_undone(h.JOB) == world.sent[0].job_id


@pytest.mark.parametrize("fault", [TooLarge(), Unavailable("log_unreachable", "no")])
async def test_what_was_surely_not_sent_is_in_nobody_s_way(world: World, fault: Exception) -> None:
    world.faults.append(fault)
    with pytest.raises(Exception, match=r"larger|no"):
        await world.is_undone(h.JOB, tool="pay")
    assert await world.is_undone(h.JOB) == world.sent[0].job_id


async def test_what_may_have_been_sent_keeps_its_id_for_the_same_effects_however_they_are_asked_for(
    world: World,
) -> None:
    world.faults.append(LogError())
    with pytest.raises(Unavailable):
        await world.is_undone(h.JOB, since="1970-01-01T00:00:00Z")
    assert (await code_of(world.is_undone(h.JOB, tool="pay")))[0] == "undoing"
    undo = await world.is_undone(h.JOB, since="1970-01-01T00:00:01Z")
    assert await world.is_undone(h.JOB) == undo
    assert await code_of(world.is_undone(h.JOB, tool="pay")) == ("undoing", undo)
    command = world.sent[0]
    world.is_written(undo, "running", *(fact.event for fact in creation_group(command, "cmd").facts))
    assert await world.is_undone(h.JOB) == undo
    assert await code_of(world.is_undone(h.JOB, tool="act")) == ("undoing", undo)
    assert len(world.sent) == 1


async def test_a_claim_that_another_made_is_not_released(world: World) -> None:
    world.faults.append(LogError())
    with pytest.raises(Unavailable):
        await world.is_undone(h.JOB)
    world.faults.append(Unavailable("log_unreachable", "no"))
    with pytest.raises(Unavailable):
        await world.is_undone(h.JOB)
    assert (await code_of(world.is_undone(h.JOB, tool="pay")))[0] == "undoing"


async def test_a_preview_leads_on_when_its_time_is_half_over(world: World) -> None:
    born = [h.created().model_copy(update={"job_id": "job-2"}), ev.JobFailed(job_id="job-2", error="no")]
    world.is_written("job-2", "failed", *born)

    def read() -> None:
        world.now_s += 11.0

    assert (await world.undos.preview(BOB, UndoQuery(), None)).cursor is None
    world.read = read
    page = await world.undos.preview(BOB, UndoQuery(), None)
    assert ([one.job_id for one in page.jobs], page.cursor) == ([h.JOB], f"behind {h.JOB}")


async def test_a_preview_has_one_deadline(world: World) -> None:
    """However many logs it reads, each quick enough for itself."""
    await world.undos.preview(BOB, UndoQuery(), None)
    assert world.deadlines.entered == 1
