"""The duplicate guard beyond a job: what a session or a tenant has done, for as long as the tool says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aetheris.ledger.core.decisions import DuplicateLine, Emit, Facts, Grant, Now
from aetheris.ledger.core.duplicate_index import DuplicateIndex, claim, duplicate, released, settled
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.partition import Partition
from aetheris.protocol.base.keys import content_key, external_key
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, KeyState, Settled, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ContentRecord, Respond, ToolGrant, ToolRequest
from aetheris.protocol.messages.event_values import DuplicateOf, RejectReason
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.approvals import request_id
from aetheris.protocol.planning.policy import parse
from aetheris.views.standing import job_view
from tests.testkit.histories import SEAL, TENANT, about, created, finished, graph, key_of, planned, started
from tests.testkit.ledgers import limits
from tests.testkit.principals import said_by

WINDOW_S = 60.0
START = datetime(2030, 1, 1, tzinfo=UTC)


def now(after_s: float = 0.0) -> Now:
    return Now(after_s, START + timedelta(seconds=after_s))


def job(
    name: str,
    scope: str,
    session: str | None = "s1",
    tenant: str = TENANT,
    window_s: float = WINDOW_S,
    **node: Any,
) -> JobState:
    """A job whose only call is irreversible, just planned."""
    pin = {"irreversible": True, "duplicate_scope": scope, "duplicate_window_s": window_s}
    state = create_job(created().model_copy(update={"job_id": name, "session": session, "tenant": tenant}), 0)
    apply(state, planned(graph({"id": "a"} | node, act=pin)).model_copy(update={"job_id": name}), 1)
    return state


def act(state: JobState, duplicates: DuplicateIndex, after_s: float = 0.0) -> ContentRecord | None:
    """Its call succeeds; the line that says so."""
    allowed = about(ev.PolicyAllowed, "a", args_hash=started("a", "n").args_hash, tool_version="1", rule="r")
    begun = started("a", "n1")
    begun = begun.model_copy(update={"external_key": external_key(state.job_id, "a", 0)})
    ran = (allowed, begun, finished("a", "n1"))
    for offset, event in enumerate(ran, start=2):
        apply(state, event.model_copy(update={"job_id": state.job_id}), offset)
    line = settled(state, key_of("a"), duplicates, now(after_s))
    if line is not None:
        duplicates.take(line)
    return line


def guard(state: JobState, duplicates: DuplicateIndex, after_s: float = 0.0) -> DuplicateOf | None:
    entry = state.entry("a")
    assert entry is not None
    return duplicate(state, entry, content_key(state.created.tenant, "act", None), duplicates, now(after_s))


@pytest.mark.parametrize("said", [1e12, 1e300, -1.0, 0.0])
def test_what_a_pin_says_beyond_all_bounds_ends_no_ledger(said: float) -> None:
    """As a line of the registry may, that no SDK has looked at."""
    line = act(job("j1", "tenant", window_s=said), DuplicateIndex())
    assert line is not None
    assert line.until is not None
    assert datetime.fromisoformat(line.until) == START + timedelta(days=30)


@pytest.mark.parametrize(
    ("scope", "other", "is_refused"),
    [
        ("job", {}, False),
        ("session", {}, True),
        ("session", {"session": "s2"}, False),
        ("session", {"session": None}, False),
        ("session", {"tenant": "other"}, False),
        ("session", {"occurrence": 2}, False),
        ("tenant", {"session": "s2"}, True),
        ("tenant", {"session": None}, True),
        ("tenant", {"tenant": "other"}, False),
    ],
)
def test_a_call_is_guarded_in_its_scope(scope: str, other: dict[str, Any], is_refused: bool) -> None:
    duplicates = DuplicateIndex()
    act(job("one", scope), duplicates)
    found = guard(job("two", scope, **other), duplicates)
    assert (found.job_id if found is not None else None) == ("one" if is_refused else None)


def test_a_window_ends() -> None:
    duplicates = DuplicateIndex()
    assert act(job("one", "tenant"), duplicates) is not None
    assert guard(job("two", "tenant"), duplicates, WINDOW_S - 1) is not None
    assert guard(job("two", "tenant"), duplicates, WINDOW_S) is None
    line = act(job("two", "tenant"), duplicates, WINDOW_S)
    assert line is not None
    assert guard(job("three", "tenant"), duplicates, WINDOW_S + 1) == DuplicateOf.model_validate(
        {"job_id": "two", "node_id": "a", "execution_id": line.execution_id}
    )


def test_a_job_is_no_duplicate_of_itself_and_what_failed_is_none() -> None:
    duplicates = DuplicateIndex()
    first = job("one", "tenant")
    assert act(first, duplicates) is not None
    assert guard(first, duplicates) is None
    assert settled(first, key_of("a"), duplicates, now()) is None

    failed = job("two", "tenant")
    apply(failed, about(ev.InvocationRejected, "a", reason=RejectReason.POLICY).model_copy(update={"job_id": "two"}), 2)
    assert settled(failed, key_of("a"), DuplicateIndex(), now()) is None


def test_a_line_that_was_not_read_back_ends_with_its_call_too() -> None:
    """Else whatever means the same waits for it for ever: its job may be sealed before the line is read."""
    rejected = about(ev.InvocationRejected, "a", reason=RejectReason.CANCELLED).model_copy(update={"job_id": "one"})
    for ends_by_job in (True, False):
        duplicates, one = DuplicateIndex(), job("one", "tenant")
        line = claim(one, "a", key_of("a"), "scope", duplicates)
        assert line is not None
        assert duplicates.line("one", line.execution_id) is None, "it orders nothing before it is read back"
        if ends_by_job:
            (over,) = released(one, duplicates)
        else:
            apply(one, rejected, 2)
            over = settled(one, key_of("a"), duplicates, now())
        assert over is not None
        assert (over.execution_id, over.scope_key, over.state) == (line.execution_id, "scope", "void")
        duplicates.take(over)
        assert released(one, duplicates) == []


# two ledgers on one table


ALLOW = '[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"\n'
ASK = '[[rules]]\nname = "ask"\ntools = ["*"]\neffect = "approval"\n'


class Table:
    """One topic and its readers: each process has lines of its own, all in one order."""

    def __init__(self) -> None:
        self.lines: list[ContentRecord] = []
        self.sides: list[Side] = []

    def deliver(self) -> None:
        """What was written is read, by everybody, until nobody writes more."""
        while any(side.read < len(self.lines) for side in self.sides):
            for side in self.sides:
                side.catch_up()
            for side in self.sides:
                side.settle()


class Side:
    """A partition of its own process, with one job whose call is irreversible in its session."""

    def __init__(self, table: Table, name: str, policy: str = ALLOW, log: list[Event] | None = None) -> None:
        pin = {"irreversible": True, "duplicate_scope": "session", "duplicate_window_s": WINDOW_S}
        was_created = created().model_copy(update={"job_id": name, "session": "s1"})
        plan = planned(graph({"id": "a"}, act=pin)).model_copy(update={"job_id": name})
        self.name, self.table, self.log, self.folded, self.read = name, table, log or [was_created, plan], 0, 0
        self.grants: list[ToolGrant] = []
        self.contents, self.policy = DuplicateIndex(), policy
        ids = (lambda: "id", lambda: 1.0)
        self.core = Partition(DecisionContext(parse(policy), limits(), *ids, duplicates=self.contents), {})
        table.sides.append(self)
        while self.read < len(table.lines):
            line = table.lines[self.read]
            self.contents.take(line)
            if line.job_id == name:
                self.core.line_read(line)
            self.read += 1
        self._fold()
        self.core.restored(now())
        self.settle()

    def catch_up(self) -> None:
        while self.read < len(self.table.lines):
            line = self.table.lines[self.read]
            self.contents.take(line)
            self.core.contents_changed(line.scope_key, now())
            if line.job_id == self.name:
                self.core.line_read(line)
            self.read += 1

    def _fold(self) -> None:
        for event in self.log[self.folded :]:
            self.core.evolve(event, self.folded, now())
            self.folded += 1

    def settle(self) -> None:
        for _ in range(20):
            self._fold()
            self.core.to_fetch(now())
            decided = self.core.decide(Facts(), now())
            for failure in self.core.unjudged.take():
                raise failure.error
            for one in decided:
                if isinstance(one, Emit):
                    self.log += [written.event for written in one.events]
                elif isinstance(one, Grant):
                    self.grants.append(one.message)
                elif isinstance(one, DuplicateLine):
                    self.table.lines.append(one.record)
            if not decided:
                return
        raise AssertionError("it never comes to rest")

    def request(self) -> None:
        state = self.core.jobs[self.name].state
        asked = {
            "job_id": self.name,
            "birth": 0,
            "as_of": 1,
            "revision": 0,
            "plan_hash": state.plan_hash,
            "nodes": ["a"],
        }
        self.core.request(ToolRequest.model_validate(asked), 0)
        self.settle()

    def add(self, *events: Event) -> None:
        self.log += [event.model_copy(update={"job_id": self.name}) for event in events]
        self.settle()
        self.table.deliver()

    def _about_key(self) -> dict[str, Any]:
        return {"idempotency_key": self.key, "external_key": external_key(self.name, "a", 0)}

    @property
    def key(self) -> str:
        return next(iter(self.core.jobs[self.name].state.keys))

    def start(self) -> None:
        content = content_key(TENANT, "act", None)
        self.add(started("a", "n1").model_copy(update={**self._about_key(), "content_key": content}))

    def finish(self, outcome: str = "success", via: str = "executor") -> None:
        self.add(finished("a", "n1", outcome, via=via).model_copy(update={"idempotency_key": self.key}))

    def respond(self) -> None:
        state = self.core.jobs[self.name].state
        body = {"job_id": self.name, **said_by("bob"), "tenant": TENANT, "action": "approve", "as_of": -1}
        asked = request_id(self.name, "a", self.key)
        self.core.hear(Respond.model_validate(body | {"request_id": asked}), "cmd", 1)
        self.settle()
        assert state.keys[self.key].decision is not None

    @property
    def state(self) -> KeyState:
        return self.core.jobs[self.name].state.keys[self.key]

    @property
    def why(self) -> str | None:
        return job_view(self.core.jobs[self.name].state, "").get("why")


def pair(policy: str = ALLOW) -> tuple[Side, Side]:
    """Two jobs of a session that ask for the same; the first is under way."""
    table = Table()
    one, two = Side(table, "one", policy), Side(table, "two", policy)
    one.request()
    table.deliver()
    return one, two


def ask_too(one: Side, two: Side) -> None:
    one.start()
    two.request()
    two.table.deliver()
    assert (len(one.grants), two.grants) == (1, [])
    assert two.why == "a waits for an equal call that is under way: one/a"


def test_a_call_waits_for_an_equal_one_that_is_under_way_and_is_refused_when_that_succeeds() -> None:
    one, two = pair()
    ask_too(one, two)
    one.finish()
    assert (two.grants, two.state.outcome, two.state.reason) == ([], Settled.REJECTED, "duplicate_of")
    assert two.state.duplicate_of is not None
    assert (two.state.duplicate_of.job_id, two.state.sure) == ("one", True)
    assert two.core.jobs["two"].state.open_waits == {}


def test_it_goes_on_when_the_other_certainly_failed() -> None:
    one, two = pair()
    ask_too(one, two)
    one.finish("permanent_failure")
    assert len(two.grants) == 1
    assert two.core.jobs["two"].state.open_waits == {}


def test_it_is_refused_when_nobody_will_know_of_the_other() -> None:
    one, two = pair()
    ask_too(one, two)
    one.add(
        about(ev.InvocationParked, "a", invocation_id="n1", reason="x").model_copy(update={"idempotency_key": one.key})
    )
    assert two.grants == [], "it is parked: a human decides first"
    one.finish("permanent_failure", via="human")
    assert (two.grants, two.state.outcome, two.state.reason) == ([], Settled.REJECTED, "duplicate_of")


def test_of_two_that_ask_at_once_the_one_whose_line_came_first_goes_on() -> None:
    table = Table()
    one, two = Side(table, "one"), Side(table, "two")
    two.request()
    one.request()
    assert (one.grants, two.grants) == ([], []), "neither has read its line back"
    table.deliver()
    assert (len(one.grants), len(two.grants)) == (0, 1)
    two.start()
    two.finish("permanent_failure")
    assert len(one.grants) == 1


def test_a_form_shows_what_is_under_way_and_a_yes_does_not_start_it() -> None:
    one, two = pair(ASK)
    two.request()
    two.table.deliver()
    assert two.state.requested is not None
    assert two.state.requested.form["context"]["duplicates"] == [{"job_id": "one", "node_id": "a", "state": "open"}]
    two.respond()
    two.table.deliver()
    assert (two.grants, two.why) == ([], "a waits for an equal call that is under way: one/a")
    one.respond()
    assert len(one.grants) == 1
    one.start()
    one.finish()
    assert (two.grants, two.state.reason) == ([], "duplicate_of")


def test_a_call_of_a_job_that_ended_before_it_started_keeps_nobody() -> None:
    one, two = pair()
    two.request()
    two.table.deliver()
    one.add(ev.JobCancelled(job_id="one", by="ann"))
    assert len(two.grants) == 1


def test_a_ledger_that_starts_anew_keeps_its_place() -> None:
    one, two = pair()
    ask_too(one, two)
    lines = len(two.table.lines)
    again = Side(two.table, "two", log=two.log)
    two.table.sides.remove(two)
    again.request()
    two.table.deliver()
    assert (again.grants, len(two.table.lines)) == ([], lines)
    one.finish("permanent_failure")
    assert len(again.grants) == 1


def lost_line(one: Side) -> ContentRecord:
    """What a ledger that had the partition before says of a call, and only now lands."""
    return next(line for line in one.table.lines if line.job_id == one.name and line.state == "open")


def seal(side: Side) -> None:
    side.add(ev.JobCancelled(job_id=side.name, by="ann"))
    side.add(SEAL)
    assert side.name not in side.core.jobs


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_line_that_lands_behind_the_end_of_its_job_keeps_nobody(is_sealed: bool) -> None:
    one, two = pair()
    line = lost_line(one)
    if is_sealed:
        seal(one)
    else:
        one.add(ev.JobCancelled(job_id="one", by="ann"))
    one.table.lines.append(line)
    one.table.deliver()
    two.request()
    two.table.deliver()
    assert len(two.grants) == 1
    assert one.table.lines[-1].state == "open", "the line of the call that goes on is the last"


@pytest.mark.parametrize(("outcome", "state"), [("permanent_failure", "void"), ("success", "succeeded")])
def test_a_line_that_lands_behind_the_end_of_its_call_hides_nothing(outcome: str, state: str) -> None:
    one, two = pair()
    ask_too(one, two)
    one.finish(outcome)
    one.table.lines.append(lost_line(one))
    one.table.deliver()
    assert bool(two.grants) == (state == "void")
    assert [line for line in one.table.lines if line.job_id == "one"][-1].state == state


def test_a_ledger_that_does_not_know_the_job_any_more_ends_its_line() -> None:
    one, two = pair()
    ask_too(one, two)
    one.table.sides.remove(one)
    again = Side(one.table, "one", log=[created().model_copy(update={"job_id": "another"})])
    assert "one" not in again.core.jobs
    two.table.deliver()
    assert len(two.grants) == 1


def test_a_line_of_a_job_that_is_not_read_yet_waits_for_its_creation() -> None:
    duplicates = DuplicateIndex()
    ids = (lambda: "id", lambda: 1.0)
    core = Partition(DecisionContext(parse(ALLOW), limits(), *ids, duplicates=duplicates), {})
    core.restored(now())
    birth = created().model_copy(update={"job_id": "one"})
    line = claim(create_job(birth, 5), "a", key_of("a"), "scope", duplicates)
    assert line is not None
    duplicates.take(line)
    assert not core.line_read(line)
    core.pass_over(4)
    assert core.decide(Facts(), now()) == []
    core.evolve(birth, 5, now())
    assert core.decide(Facts(), now()) == []
    assert duplicates.open_lines() == [line]
