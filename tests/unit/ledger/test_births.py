"""Births that a service can't read, or that come again: who holds its mark at them, and who forgets."""

from collections.abc import Iterable
from typing import Protocol

import pytest

from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.partition import Partition as Ledger
from aetheris.planner.core.decisions import Append
from aetheris.planner.core.partition import Partition as Planner
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, decode_event, draft
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind
from aetheris.runtime.process.policy_file import load
from aetheris.tool_executor.core.partition import Partition as Executor
from aetheris.tool_executor.core.tries import Worker
from aetheris.verifier.core.partition import Partition as Verifier
from tests.testkit.histories import JOB, created, graph, planned, started
from tests.unit.ledger.test_waits import LIMITS, START

SEALED = ev.JobSealed(
    job_id=JOB,
    tenant="acme",
    event_count=1,
    root="",
    chain=2,
    tree="",
    execution_hash="",
    outcome_hash="",
    sealed_at="",
    signature="",
    key_id="",
)


class Service(Protocol):
    """A partition that reads the log."""

    def live(self) -> Iterable[tuple[str, int]]: ...


class Reader:
    """One of the four services that have a mark."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.index: dict[str, JobIndexEntry] = {}
        self.core: Service
        match name:
            case "ledger":
                self.core = Ledger(DecisionContext(load(None), LIMITS, lambda: "id", lambda: 1.0), {})
            case "executor":
                self.core = Executor(
                    Worker("w", "i1"), lambda _call: None, lambda _call: EffectKind(started("a", "n").kind)
                )
            case "planner":
                self.core = Planner(self.index.get)
            case _:
                self.core = Verifier()

    def read(self, event: Event, offset: int, version: bytes = b"1") -> None:
        made = draft("t", event, key=JOB, id=f"e-{offset}", source="test", time="2030-01-01T00:00:00Z")
        headers = tuple((name, value.replace(b".v1", b".v" + version)) for name, value in made.headers)
        record = Record("t", 0, offset, 0, JOB.encode(), headers, made.value)
        found = decode_event(record)
        match self.core:
            case Verifier():
                self.core.evolve(record, event.event_type)
            case Ledger() | Executor() if isinstance(found, NeedsUpgrade):
                self.core.needs_upgrade(found.job_id, offset, is_birth=found.is_creation)
            case Planner() if isinstance(found, NeedsUpgrade):
                self.core.needs_upgrade(found.job_id, offset)
            case Ledger() if isinstance(found, Envelope):
                self.core.evolve(found.body, offset, Now(0.0, START))
            case Executor() if isinstance(found, Envelope):
                self.core.evolve(found.body, offset)
            case Planner() if isinstance(found, Envelope):
                self.core.evolve(found)
            case _:
                raise AssertionError(found)


def mark_of(core: Service) -> int | None:
    """The lowest offset that it needs."""
    return min((creation_offset for _, creation_offset in core.live()), default=None)


SERVICES = ("planner", "ledger", "executor", "verifier")


@pytest.mark.parametrize("name", SERVICES)
def test_a_birth_of_a_later_version_holds_the_mark(name: str) -> None:
    reader = Reader(name)
    reader.read(created(), 5, b"2")
    reader.read(planned(graph({"id": "a"})), 6)
    assert mark_of(reader.core) == 5
    reader.read(SEALED, 7)
    assert mark_of(reader.core) is None


@pytest.mark.parametrize("name", SERVICES)
def test_a_birth_under_later_rules_holds_the_mark_and_nothing_is_judged_by_it(name: str) -> None:
    reader = Reader(name)
    reader.read(created().model_copy(update={"rules": 2}), 5)
    reader.read(planned(graph({"id": "a"})), 6)
    assert mark_of(reader.core) == 5
    if name != "verifier":
        assert not list(getattr(reader.core, "jobs"))  # noqa: B009  the protocol names what all have
    reader.read(SEALED, 7)
    assert mark_of(reader.core) is None


@pytest.mark.parametrize("name", ["ledger", "executor"])
def test_what_was_born_of_a_later_version_is_not_born_again(name: str) -> None:
    reader = Reader(name)
    reader.read(created(), 5, b"2")
    reader.read(created(), 6)
    assert (mark_of(reader.core), list(getattr(reader.core, "jobs", {}))) == (5, [])


@pytest.mark.parametrize("name", ["ledger", "executor", "verifier"])
def test_a_record_of_a_later_version_of_a_job_that_is_forgotten_holds_nothing(name: str) -> None:
    reader = Reader(name)
    reader.read(planned(graph({"id": "a"})), 5, b"3")
    assert mark_of(reader.core) is None


@pytest.mark.parametrize("name", ["ledger", "executor", "verifier"])
def test_a_birth_that_comes_again_after_a_restart_is_forgotten_once_the_planner_has_seen_it(name: str) -> None:
    reader = Reader(name)  # started behind the seal: it knows the name no more
    reader.read(created(), 50)
    assert mark_of(reader.core) == 50
    reader.read(ev.BirthRepeated(job_id=JOB, birth=50), 51)
    assert mark_of(reader.core) == 50
    reader.read(ev.BirthRepeated(job_id=JOB, birth=3), 52)
    assert mark_of(reader.core) is None


def test_the_planner_says_once_that_a_birth_came_again() -> None:
    reader = Reader("planner")
    reader.index[JOB] = JobIndexEntry(
        job_id=JOB, birth=3, tenant="acme", submitted_by="ann", request_hash="r", status="completed", created_at=""
    )
    reader.read(created(), 50)
    core = reader.core
    assert isinstance(core, Planner)
    (reported,) = core.decide()
    assert isinstance(reported, Append)
    assert [one.event for one in reported.facts] == [ev.BirthRepeated(job_id=JOB, birth=3)]
    assert (core.decide(), mark_of(core)) == ([], None)
    again = Reader("planner")
    again.index = reader.index
    again.core = Planner(again.index.get)
    again.read(created(), 50)
    again.read(ev.BirthRepeated(job_id=JOB, birth=3), 51)
    assert again.core.recover() == []
