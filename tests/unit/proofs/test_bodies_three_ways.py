"""Calls that bodies plan, stated three times: the services' fold, the proofs' predicates and the script of bundles.

They share no code. What the model's invariants say of a history is counted in it without any of them.
"""

from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from aetheris.proofs import verify
from aetheris.proofs.history import History
from aetheris.proofs.records import RawRecord, read
from aetheris.proofs.replay import look_up, scan
from aetheris.proofs.validity import Validity
from aetheris.protocol.base.child_ids import NOTHING_RECORDED
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.fold.state import JobState, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.event_values import Decision, RejectReason
from tests.testkit.body_histories import (
    FLOW,
    GRAPH,
    PARENT,
    accepted,
    asked,
    body,
    call,
    ended,
    first,
    given,
    named,
    over,
    parked,
    reopened,
    result_of,
    stopping,
    take,
    worded,
)
from tests.testkit.histories import JOB, about, adopts, created, key_of
from tests.testkit.standalone import assert_agrees
from tests.testkit.tries import try_of

HISTORIES = 400
ARGS = ({"n": 1}, {"n": 2})
TOOLS = ("act", "act", "pay", "read")
CODES = ("old", "new")


def birth() -> ev.JobCreated:
    return created().model_copy(update={"plan": GRAPH})


def raw(events: list[ev.Event]) -> list[RawRecord]:
    records: list[RawRecord] = []
    for offset, event in enumerate(events):
        made = draft("t", event, key=JOB, id=f"e{offset}", source="test", time="")
        records.append(RawRecord(10 * offset, made.key, made.headers, made.value))
    return records


def resolved(args: dict[str, Any]) -> dict[str, Any]:
    """What references stand for: whatever succeeds here has returned {"n": 1}."""
    return {name: 1 if isinstance(value, dict) else value for name, value in args.items()}


class BodiesWorld:
    """Bodies that come and go, ask for anything, and whose records anybody writes late, twice, or otherwise."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.job: JobState = create_job(birth(), 0)
        self.events: list[ev.Event] = [birth()]
        self.bodies = 0
        self.begun: list[str] = []
        self.tries = 0
        self.say(FLOW)
        self.begins()
        for _ in range(random.randint(5, 60)):
            self.step()

    def say(self, event: ev.Event) -> bool:
        event = worded(self.job, event)
        self.events.append(event)
        return take(self.job, event, len(self.events) - 1)

    def step(self) -> None:
        self.random.choice(
            [
                *([self.plans] * 3 + [self.starts] * 4 + [self.ends] * 3),
                *(self.handed_on, self.handed_on, self.over, self.other, self.again),
            ]
        )()

    @property
    def body(self) -> str:
        """Mostly the one that began last."""
        return self.random.choice([*self.begun[-1:] * 4, *self.begun, f"b{self.bodies}"])

    def state(self) -> Any:
        return self.job.keys.get(key_of(PARENT, tool="flow"))

    def frontier(self) -> str | None:
        of = self.job.bodies.of[PARENT] if self.job.bodies is not None else None
        right = f"{of.expected % 2**256:064x}" if of is not None else None
        return self.random.choice([*[right] * 6, NOTHING_RECORDED, None, asked(named(ARGS[0]))])

    def begins(self) -> None:
        state = self.state()
        token, attempt = (state.fencing_token, state.external_attempt - 1) if state is not None else (1, 0)
        self.bodies += 1
        if self.say(body(f"b{self.bodies}", token, attempt=attempt, code=self.random.choice(CODES))):
            self.begun.append(f"b{self.bodies}")

    def chosen(self) -> tuple[dict[str, Any], str, int, str | None]:
        random = self.random
        return random.choice(ARGS), random.choice(TOOLS), random.choice([1, 1, 2]), random.choice([None, None, "p.x"])

    def plans(self) -> None:
        args, tool, occurrence, node = self.chosen()
        more: dict[str, Any] = {} if self.random.random() < 0.9 else {"irreversible": True}
        if self.random.random() < 0.3:
            used = self.random.choice([*self.job.entries, "nobody", PARENT])
            args = {"n": given(self.random.choice(["/n", "/n", "/n", "/x"]), used)}
            more["made"] = self.random.choice([*[resolved(args)] * 5, ARGS[1], None])
        self.say(call(self.body, args, tool, occurrence=occurrence, node=node, said=self.frontier(), **more))

    def starts(self) -> None:
        """Of what a body has planned, or has said that it plans."""
        said = [one for one in self.events if isinstance(one, ev.CallPlanned)]
        new = [one for one in said if one.node_id not in self.job.node_keys]
        if not said:
            return
        one = self.random.choice([*new[-3:] * 2, *said])
        known = self.job.entries.get(one.node_id)
        node, name = (known[-1].node if known is not None else one.node), one.node_id
        planned = resolved(node.args)
        state = self.job.keys.get(key_of(name, planned, node.tool_name))
        token, attempt = (state.fencing_token, state.external_attempt - 1) if state is not None else (1, 0)
        if node.tool == "pay" or node.irreversible:
            self.allowed(name, planned, node.tool_name)
        self.tries += 1
        made = known[-1].call if known is not None else None
        by = self.random.choice([*[made.invocation_id if made is not None else one.invocation_id] * 5, self.body, None])
        args = planned if self.random.random() < 0.9 else self.random.choice(ARGS)
        times = {"token": token, "attempt": attempt, "occurrence": node.occurrence}
        self.say(first(by, f"t{self.tries}", args, node.tool_name, node=name, **times))

    def allowed(self, name: str, args: dict[str, Any], tool: str) -> None:
        said: dict[str, Any] = {"args_hash": args_hash(args), "tool_version": "1", "rule": "r"}
        repeats = self.random.choice([None, "allow"])
        self.say(about(ev.PolicyAllowed, name, args=args, tool=tool, repeats=repeats, **said))

    def ends(self) -> None:
        for event in self.settling():
            self.say(event)

    def settling(self) -> Iterator[ev.Event]:
        tries = [
            (key, one) for key, state in self.job.keys.items() for one in state.invocations if state.node_id != PARENT
        ]
        if not tries:
            return
        key, one = self.random.choice(tries)
        state = self.job.keys[key]
        outcome, via = self.random.choice(
            [
                *(("success", "executor"), ("success", "late"), ("permanent_failure", "executor")),
                *(("permanent_failure", "ledger"), ("retryable_failure", "executor")),
            ]
        )
        if state.started is None:
            return
        end = ended(one, None, state.started.tool_name, node=state.node_id, outcome=outcome, via=via, result={"n": 1})
        yield end.model_copy(update={"idempotency_key": key})

    def handed_on(self) -> None:
        state = self.state()
        if state is None or state.current_invocation is None:
            return
        name = self.begun[-1]
        by = "human" if state.status == "parked" else self.random.choice(["policy", "policy", "human"])
        choices: list[ev.Event] = [*[reopened(name, by=by)] * 4, parked(name)]
        choices.append(over(name, "retryable_failure", until=["x"]))
        waives = self.random.sample(list(self.job.entries), 1)
        choices.append(accepted(name, self.random.choice(CODES), *waives))
        self.say(self.random.choice(choices))
        if self.random.random() < 0.8:
            self.begins()

    def over(self) -> None:
        if self.random.random() < 0.3:
            outcome = self.random.choice(["success", "permanent_failure"])
            via = self.random.choice(["executor", "executor", "late", "catch_up", "human", "ledger"])
            self.say(over(self.body, outcome, said=self.frontier(), via=via))

    def other(self) -> None:
        args, tool, occurrence, node = self.chosen()
        name = node or named(args, tool, occurrence)
        decided = {"args_hash": args_hash(args), "tool_version": "1", "rule": "r", "approver": "eve"}
        decision = self.random.choice([*Decision])
        data = self.random.choice(ARGS) if decision is Decision.EDIT else None
        reason = self.random.choice([*RejectReason])
        choices: list[ev.Event] = [
            about(ev.ApprovalDecided, name, args=args, tool=tool, decision=decision, data=data, **decided),
            about(ev.InvocationRejected, name, args=args, tool=tool, reason=reason),
            about(ev.InvocationRejected, PARENT, tool="flow", reason=RejectReason.CANCELLED),
        ]
        if self.random.random() < 0.1:
            choices.append(stopping())
        self.say(self.random.choice(choices))

    def again(self) -> None:
        self.say(self.random.choice(self.events[1:]))


def agree(events: list[ev.Event], born: ev.JobCreated | None = None) -> Validity:
    job = create_job(born or birth(), 0)
    counted: dict[int, bool] = {}
    for offset, event in enumerate(events[1:], 1):
        counted[offset] = take(job, event, offset)
    records = raw(events)
    validity = Validity(History(read(record, at)[0] for at, record in enumerate(records)))
    starts = {at: counted[at] for at, event in enumerate(events) if isinstance(event, ev.ToolInvocationStarted)}
    assert {start.at: validity.is_valid(start) for start in validity.history.starts} == starts
    for key, state in job.keys.items():
        settled = validity.final(key)
        if state.invocations:
            assert validity.phase(key, len(events)).value == state.status.value, key
        if settled is not None and state.invocations:
            assert state.outcome is not None
            assert (settled.outcome, settled.sure) == (state.outcome.value, state.sure)
    assert scan(validity) == look_up(validity)
    assert_agrees(verify(records), records)
    return validity


def test_fold_proofs_and_script_agree() -> None:
    begun = planned = 0
    for number in range(HISTORIES):
        world = BodiesWorld(Random(number))  # noqa: S311  a test's histories
        validity = agree(world.events)
        of = world.job.bodies.of[PARENT] if world.job.bodies is not None else None
        planned += of.children if of is not None else 0
        begun += sum(start.node != PARENT for starts in validity.valid.values() for start in starts)
    assert begun > HISTORIES / 2, "hardly anything started"
    assert planned > begun / 2


def told(*events: ev.Event, born: ev.JobCreated | None = None) -> list[ev.Event]:
    """With the words that bodies have."""
    first_event = born or birth()
    job = create_job(first_event, 0)
    said: list[ev.Event] = [first_event]
    for event in events:
        said.append(worded(job, event))
        take(job, said[-1], len(said) - 1)
    return said


ONE, TWO = ARGS
DONE = [body("b1", code="old"), call("b1", ONE), first("b1", "t1", ONE), ended("t1", ONE, result={"n": 1})]
NEXT = [reopened("b1"), body("b2", 2, code="new")]
SECOND = first("b2", "t2", TWO)
LET = [parked("b2"), accepted("b2", "new", named(ONE)), reopened("b2", by="human")]
SAID = call("b2", TWO, said=asked(named(ONE)))


def frozen(tool: str) -> ev.JobFrozen:
    return ev.JobFrozen(job_id=JOB, scope=FreezeScope(tool=tool), number=1, by="ann", at="2026-01-01T00:00:00Z")


def thawed(tool: str) -> ev.JobUnfrozen:
    return ev.JobUnfrozen(job_id=JOB, scope=FreezeScope(tool=tool), number=1, by="ann", at="2026-01-01T00:00:00Z")


WAIT = call("b2", tool=None, kind="wait", node="p.w", wait={"key": "go"}, said=asked(named(ONE)))
PERSONAL = call(
    "b2",
    tool=None,
    kind="wait",
    node="p.w",
    wait={"key": "go", "personal": {"/name": "/id"}},
    said=asked(named(ONE)),
)
THIRD = [call("b3", TWO), first("b3", "t3", TWO)]
USES = {"n": given("/n", named(ONE))}


def uses(
    args: dict[str, Any] = USES, by: str = "b1", name: str = "t2", **fields: Any
) -> tuple[ev.CallPlanned, ev.Event]:
    """A call is planned that is given the result of the first, and it starts."""
    more: dict[str, Any] = {"said": None, "made": ONE} | fields
    plan = call(by, args, **more)
    start = first(by, name, more["made"], plan.node.tool_name, node=plan.node_id)
    return plan, start


FAILED = [*DONE[:3], ended("t1", ONE, outcome="permanent_failure")]


@pytest.mark.parametrize(
    ("events", "starts"),
    [
        ([*DONE, *NEXT, call("b2", TWO, said=asked(named(ONE))), SECOND], True),
        ([*DONE, *NEXT, call("b2", TWO), SECOND], False),
        ([*DONE, *NEXT, call("b2", TWO, said=None), SECOND], False),
        ([*DONE, *NEXT, call("b2", TWO, said=asked(named(ONE))).model_copy(update={"word": "0" * 64}), SECOND], False),
        ([*DONE, *NEXT, call("b2", TWO, said=asked(named(ONE)), after=[result_of("t1", {"n": 1})]), SECOND], True),
        ([*DONE, *NEXT, call("b2", TWO, said=asked(named(ONE)), after=[result_of("t1", {"n": 2})]), SECOND], False),
        ([*DONE, *NEXT, SAID, frozen("flow"), SECOND], False),
        ([*DONE, *NEXT, SAID, frozen("act"), SECOND], False),
        ([*DONE, *NEXT, SAID, frozen("read"), SECOND], True),
        ([*DONE, *NEXT, SAID, frozen("flow"), thawed("flow"), SECOND], True),
        ([*DONE, *NEXT, frozen("flow"), SAID, thawed("flow"), SECOND], True),
        ([*DONE, *NEXT, WAIT, call("b2", TWO, said=None), SECOND], True),
        ([*DONE, *NEXT, PERSONAL, call("b2", TWO, said=None), SECOND], False),
        ([*DONE, *NEXT, *LET, body("b3", 3, code="new"), *THIRD], True),
        ([*DONE, *NEXT, *LET, body("b3", 3, code="old"), *THIRD], False),
        ([*DONE, *NEXT, *LET[:1], *LET[2:], body("b3", 3, code="new"), *THIRD], False),
        ([*DONE, *NEXT, *LET[1:], body("b3", 3, code="new"), *THIRD], False),
        ([*DONE, *NEXT, stopping(), call("b2", TWO, said=asked(named(ONE))), SECOND], False),
        ([*DONE, *uses()], True),
        ([*DONE, *uses(node="p.x")], True),
        ([*DONE, *NEXT, *uses(by="b2", said=asked(named(ONE)))], True),
        ([*DONE[:3], *uses()], False),
        ([*DONE[:1], *uses()], False),
        ([*FAILED, *uses()], False),
        ([*DONE, *uses({"n": given("/n", PARENT)})], False),
        ([*DONE, *uses({"n": given("/n", "q")})], False),
        ([*DONE, *uses({"n": given("/n", "job-0/q")})], False),
        ([*DONE, *uses({"n": [given("/n", named(ONE)), given("", "nobody")]})], False),
        ([*DONE, *uses(made=None)], False),
        ([*DONE, call("b1", TWO, said=None, made=TWO), first("b1", "t2", TWO)], False),
        ([*DONE, *uses(node="p.x", tool=None, kind="human", form={"title": "?"})], False),
        ([*DONE, uses()[0], first("b1", "t2", TWO, node=uses()[0].node_id)], False),
    ],
)
def test_they_agree_on_what_lets_a_call_start(events: list[ev.Event], *, starts: bool) -> None:
    validity = agree(told(FLOW, *events))
    last = validity.history.starts[-1]
    assert validity.is_valid(last) == starts, validity.void_reasons(last)


@pytest.mark.parametrize(
    ("fields", "starts"),
    [
        ({}, True),
        ({"args": {"n": [given("/n", "job-0/a"), given("/n", named(ONE))]}, "made": {"n": [1, 1]}}, True),
        ({"args": {"n": given("/n", "job-0/b")}}, False),
        ({"args": {"n": given("/n", "job-2/a")}}, False),
        ({"made": None}, False),
        ({"node": "p.x", "tool": None, "kind": "human", "form": {"title": "?"}}, False),
    ],
)
def test_they_agree_on_what_an_adopted_result_lets_start(fields: dict[str, Any], *, starts: bool) -> None:
    """A call of a body may be given what its job has adopted of an earlier one, and nothing else of any other job."""
    born = adopts("a", {}, result={"n": 1}).model_copy(update={"plan": GRAPH})
    more: dict[str, Any] = {"args": {"n": given("/n", "job-0/a")}, "made": ONE} | fields
    args = more.pop("args")
    events = told(FLOW, *DONE, *uses(args, **more), born=born)
    validity = agree(events, born)
    assert validity.is_valid(validity.history.starts[-1]) == starts
    if "made" not in fields and starts:
        lied = told(FLOW, *DONE, *uses(args, made=TWO), born=born)
        report = verify(raw(lied))
        assert {"args_differ", "key_differs"} & {one.rule for one in report.violations}
        assert_agrees(report, raw(lied))


def test_what_the_model_promises_holds_whatever_comes() -> None:
    """Once, OneArgs, NotLate and NotAfter, NoneLeft: counted in the log, by who was the body at each place."""
    for number in range(HISTORIES):
        world = BodiesWorld(Random(number))  # noqa: S311  a test's histories
        _promises(world.events)


def _promises(events: list[ev.Event]) -> None:
    job = create_job(birth(), 0)
    args_of: defaultdict[str, set[str]] = defaultdict(set)
    open_calls: set[str] = set()
    in_charge: str | None = None
    for offset, event in enumerate(events[1:], 1):
        before = {key: state.status for key, state in job.keys.items()}
        if not take(job, event, offset):
            continue
        if isinstance(event, ev.ToolInvocationStarted) and event.node_id == PARENT:
            in_charge = event.invocation_id
        elif isinstance(event, ev.ToolInvocationStarted):
            args_of[event.node_id].add(event.args_hash)
            is_first = before.get(event.idempotency_key, "none") == "none"
            assert not is_first or event.parent_invocation == in_charge, "a superseded body starts something"
            assert not is_first or before[key_of(PARENT, tool="flow")] in ("started", "reopened")
            open_calls.add(event.idempotency_key)
        open_calls = {key for key in open_calls if job.keys[key].status != "settled"}
        parent = job.keys.get(key_of(PARENT, tool="flow"))
        if parent is not None and parent.status == "settled" and before.get(key_of(PARENT, tool="flow")) != "settled":
            assert not open_calls, "a body ends over open calls"
    for node, hashes in args_of.items():
        live = [key for key in job.node_keys[node] if job.keys[key].invocations]
        lasting = [key for key in live if not (job.keys[key].outcome == "rejected" and job.keys[key].sure)]
        assert len(lasting) <= 1 or len(hashes) == 1, "two sets of arguments of one call"


def test_a_call_that_is_altered_afterwards_is_found() -> None:
    """A plan is taken out, or gets other arguments; a first start is moved to another body."""
    plan = call("b1", ARGS[0])
    start, end = first("b1", "t1", ARGS[0]), ended("t1", ARGS[0], result={"n": 1})
    events: list[ev.Event] = [birth(), FLOW, body("b1"), plan, start, end, reopened("b1"), body("b2", 2)]
    said = told(*events[1:])
    clean = {one.rule for one in verify(raw(said)).violations}
    assert "success_without_valid_start" not in clean
    without = said[:3] + said[4:]
    other = [*said[:3], said[3].model_copy(update={"entry": plan.entry | {"args": ARGS[1]}}), *said[4:]]
    moved = [*said[:4], said[4].model_copy(update={"parent_invocation": try_of("b2")}), *said[5:]]
    late = [*said[:3], *said[6:], *said[3:6]]
    for forged in (without, other, moved, late):
        records = raw(forged)
        report = verify(records)
        assert "success_without_valid_start" in {one.rule for one in report.violations}
        assert_agrees(report, records)


def test_a_call_that_is_given_another_result_than_was_recorded_is_found() -> None:
    """Whoever plans it says with which arguments it is made: they are held against the results in the log."""
    honest = told(FLOW, *DONE, *uses(), ended("t2", ONE, node=uses()[0].node_id, result={"n": 1}))
    lied = told(FLOW, *DONE, *uses(made=TWO), ended("t2", TWO, node=uses()[0].node_id, result={"n": 1}))
    astray = told(FLOW, *DONE, *uses({"n": given("/x", named(ONE))}))
    rules = [{one.rule for one in verify(raw(events)).violations} for events in (honest, lied, astray)]
    assert [bool(found & {"args_differ", "key_differs"}) for found in rules] == [False, True, True]
    for events in (honest, lied, astray):
        assert_agrees(verify(raw(events)), raw(events))


def test_the_result_that_a_call_was_given_can_t_be_exchanged_afterwards() -> None:
    events = told(FLOW, *DONE, *uses(), ended("t2", ONE, node=uses()[0].node_id, result={"n": 1}))
    at = next(at for at, event in enumerate(events) if isinstance(event, ev.ToolInvocationFinished))
    other = ended("t1", ONE, result={"n": 2})
    forged = [*events[:at], other.model_copy(update={"word": getattr(events[at], "word", None)}), *events[at + 1 :]]
    report = verify(raw(forged))
    assert {"args_differ", "key_differs"} & {one.rule for one in report.violations}
    assert_agrees(report, raw(forged))
