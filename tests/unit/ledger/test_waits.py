"""Nodes that wait: what ledger and planner write of them, and what no restart or repeat changes."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aetheris.ledger.core.decisions import Emit, Facts, Now
from aetheris.ledger.core.limits import LedgerLimits, QuarantineLimits
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.partition import Partition as LedgerCore
from aetheris.planner.core.decisions import Append, NodesRequest
from aetheris.planner.core.partition import Partition as PlannerCore
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, Signal
from aetheris.protocol.messages.envelope import Envelope
from aetheris.protocol.messages.event_values import RejectReason
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import InvalidPlan, TaskGraph, check_graph
from aetheris.runtime.process.policy_file import load
from tests.testkit.histories import JOB, TENANT, created, finished, planned, started

START = datetime(2030, 1, 1, tzinfo=UTC)
LIMITS = LedgerLimits(
    lease_ttl_s=5,
    end_wait_s=10,
    probe_wait_s=30,
    probe_backoff_s=1,
    probe_tries=3,
    max_tries=4,
    on_in_doubt="park",
    runs=True,
    quarantine=QuarantineLimits(0, 1, 1.0, 1.0),
)


@dataclass
class PlannerAndLedger:
    """A planner and a ledger on one log; either may be started again at any time."""

    plan: dict[str, Any]
    log: list[Event] = field(default_factory=list[Event])
    ids: list[str] = field(default_factory=list[str])
    requests: list[NodesRequest] = field(default_factory=list[NodesRequest])
    now_s: float = 1000.0
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        self.log = [created(), planned(self.plan)]
        self.ids = ["", ""]
        self.restart()

    def restart(self) -> None:
        """Both processes end; the monotonic clock of the next ones is another."""
        self.now_s += 12_345.0
        self.planner = PlannerCore(lambda _job: None)
        self.ledger = LedgerCore(DecisionContext(load(None), LIMITS, lambda: "id", lambda: 1.0), {})
        self.read = {"planner": 0, "ledger": 0}
        self._fold()
        self.ledger.restored(self.now())
        self._append(self.planner.recover())
        self.settle()

    def now(self) -> Now:
        return Now(self.now_s, START + timedelta(seconds=self.wall_s))

    def settle(self) -> None:
        for _ in range(30):
            before = len(self.log)
            self._fold()
            self._append(self.planner.decide())
            self._rounds()
            if len(self.log) == before:
                return
        raise AssertionError("it never comes to rest")

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_s += seconds
        self.settle()

    def happens(self, *events: Event) -> None:
        for event in events:
            self._write(event, "")
        self.settle()

    def signal(self, key: str, payload: Any, command_id: str = "cmd-1", as_of: int = -1) -> None:
        command = Signal(job_id=JOB, by="ann", tenant=TENANT, correlation_key=key, payload=payload, as_of=as_of)
        self.ledger.hear(command, command_id, 7)
        self.settle()

    def cancel(self) -> None:
        cancelled = self.planner.cancel(Cancel(job_id=JOB, by="bob", tenant=TENANT), "cmd-c", 9)
        self._append([cancelled] if cancelled is not None else [])
        self.settle()

    def types(self, *names: str) -> list[Event]:
        return [event for event in self.log if event.event_type in names]

    def one(self, kind: type[Event]) -> Any:
        (found,) = [event for event in self.log if isinstance(event, kind)]
        return found

    @property
    def state(self) -> JobState:
        return self.ledger.jobs[JOB].state

    def _fold(self) -> None:
        for offset in range(self.read["planner"], len(self.log)):
            record = Record("t", 0, offset, 0, JOB.encode(), (("ce_time", b"2030-01-01T00:00:00Z"),), b"")
            self.planner.evolve(Envelope(self.ids[offset], self.log[offset], record))
        for offset in range(self.read["ledger"], len(self.log)):
            self.ledger.evolve(self.log[offset], offset, self.now())
        self.read = {"planner": len(self.log), "ledger": len(self.log)}

    def _append(self, outputs: Any) -> None:
        for output in outputs:
            if isinstance(output, Append):
                for one in output.facts:
                    self._write(one.event, event_id(JOB, one.event.event_type, *one.cause))
            elif isinstance(output, NodesRequest):
                self.requests.append(output)
                self.ledger.request(output.body, len(self.requests))

    def _rounds(self) -> None:
        self.ledger.to_fetch(self.now())
        for decision in self.ledger.decide(Facts(), self.now()):
            if isinstance(decision, Emit):
                for written in decision.events:
                    self._write(written.event, written.id)

    def _write(self, event: Event, id_: str) -> None:
        self.log.append(event)
        self.ids.append(id_)


def plan(*nodes: dict[str, Any]) -> dict[str, Any]:
    pin = {"version": "1", "schema_hash": "s", "effect_class": "idempotent"}
    return {"tools": {"act": pin}, "nodes": list(nodes)}


WAIT = {"id": "w", "kind": "wait", "wait": {"key": "paid"}}
AFTER = {"id": "b", "tool": "act", "args": {"amount": {"$ref": "w#/amount"}}}


def timer(**wait: Any) -> dict[str, Any]:
    return plan({"id": "t", "kind": "timer", "wait": wait})


def test_a_signal_ends_a_wait_and_its_payload_is_the_result() -> None:
    system = PlannerAndLedger(plan(WAIT, AFTER))
    waiting = system.one(ev.JobWaiting)
    assert (waiting.wait_type, waiting.node_id, waiting.correlation_key) == ("signal", "w", "paid")
    assert waiting.due_at is None
    system.signal("paid", {"amount": 7})
    assert system.one(ev.SignalReceived).payload == {"amount": 7}
    done = system.one(ev.WaitCompleted)
    assert (done.payload, done.command_id, done.output_hash) == ({"amount": 7}, "cmd-1", digest({"amount": 7}))
    node = system.one(ev.NodeFinished)
    assert (node.node_id, node.result_type, node.output_hash) == ("w", "success", digest({"amount": 7}))
    assert system.requests[-1].body.nodes == ("b",)
    assert system.requests[-1].body.args == {"amount": 7}


def test_an_early_signal_is_kept_until_its_node_waits() -> None:
    system = PlannerAndLedger(plan({"id": "a", "tool": "act"}, WAIT | {"depends_on": ["a"]}))
    system.signal("paid", 1)
    assert system.one(ev.SignalReceived).command_id == "cmd-1"
    assert system.types("wait_completed") == []
    system.restart()
    system.happens(started("a", "n1"), finished("a", "n1"))
    assert system.one(ev.WaitCompleted).payload == 1
    assert system.one(ev.JobCompleted).result == {"w": 1}


def test_a_signal_and_its_wait_that_meet_unfolded_still_find_each_other() -> None:
    """Both were decided before either was in the log."""
    system = PlannerAndLedger(plan({"id": "a", "tool": "act"}, WAIT | {"depends_on": ["a"]}))
    key = "k-w"
    system.happens(
        ev.SignalReceived(job_id=JOB, correlation_key="paid", payload=3, command_id="cmd-9"),
        ev.JobWaiting(job_id=JOB, wait_type="signal", node_id="w", idempotency_key=key, correlation_key="paid"),
    )
    assert (system.one(ev.WaitCompleted).payload, system.one(ev.WaitCompleted).command_id) == (3, "cmd-9")


def test_only_the_first_signal_of_a_key_counts_and_undeclared_ones_are_none() -> None:
    system = PlannerAndLedger(plan(WAIT))
    system.signal("other", 1, "cmd-0")
    assert system.types("signal_received") == []
    system.signal("paid", 1, "cmd-1")
    system.signal("paid", 2, "cmd-2")
    assert system.one(ev.WaitCompleted).payload == 1
    assert len(system.types("signal_received")) == 1


def test_a_signal_waits_for_the_fold_of_the_one_who_sent_it() -> None:
    system = PlannerAndLedger(plan(WAIT))
    system.signal("paid", 1, as_of=len(system.log))
    assert system.types("signal_received") == []
    assert (system.ledger.waits_for_fold, system.ledger.open_command()) == (True, 7)
    system.happens(ev.StateCheckpointed(job_id=JOB, state_hash="h", as_of=1))
    assert system.one(ev.WaitCompleted).payload == 1
    assert system.ledger.open_command() is None


def test_a_wait_is_asked_for_and_written_once() -> None:
    system = PlannerAndLedger(plan(WAIT, AFTER))
    system.restart()
    system.sleep(1000)
    assert len(system.requests) == 1
    assert system.requests[0].body.nodes == ("w",)
    assert len(system.types("job_waiting")) == 1
    assert system.ledger.open_request() is None
    assert system.ledger.next_due() is None


def test_a_timer_ends_at_the_time_that_its_event_names_whatever_restarts() -> None:
    system = PlannerAndLedger(timer(for_s=60))
    assert system.one(ev.JobWaiting).due_at == (START + timedelta(seconds=60)).isoformat()
    system.sleep(59)
    system.restart()
    assert system.types("wait_completed") == []
    system.sleep(1)
    assert system.one(ev.WaitCompleted).payload is None
    assert system.one(ev.JobCompleted).result == {"t": None}


def test_a_timer_that_came_due_while_nobody_lived_ends_at_once() -> None:
    system = PlannerAndLedger(timer(until="2030-01-01T00:00:30+00:00"))
    system.wall_s += 3600
    system.restart()
    assert len(system.types("wait_completed", "job_completed")) == 2


def test_a_timeout_fails_the_node_and_the_job() -> None:
    system = PlannerAndLedger(plan(WAIT | {"wait": {"key": "paid", "timeout_s": 10}}))
    system.sleep(10)
    rejected = system.one(ev.InvocationRejected)
    assert (rejected.node_id, rejected.reason) == ("w", "expired")
    assert system.one(ev.NodeFinished).reason == "expired"
    assert system.one(ev.JobFailed).node_id == "w"
    system.signal("paid", 1)
    assert system.types("signal_received", "wait_completed") == []


def test_the_first_end_of_a_wait_counts() -> None:
    system = PlannerAndLedger(plan(WAIT | {"wait": {"key": "paid", "timeout_s": 10}}))
    system.signal("paid", 1)
    key = system.one(ev.JobWaiting).idempotency_key
    late = ev.InvocationRejected(job_id=JOB, node_id="w", idempotency_key=key, reason=RejectReason.EXPIRED)
    system.happens(late)
    assert system.one(ev.JobCompleted).result == {"w": 1}
    assert not system.state.open_waits


def test_a_cancel_ends_what_waits_before_the_job_ends() -> None:
    system = PlannerAndLedger(plan(WAIT, {"id": "t", "kind": "timer", "wait": {"for_s": 5}}))
    system.cancel()
    rejected = system.types("invocation_rejected")
    assert [(event.node_id, event.reason) for event in rejected if isinstance(event, ev.InvocationRejected)] == [
        ("w", "cancelled"),
        ("t", "cancelled"),
    ]
    assert system.log.index(system.one(ev.JobCancelled)) > system.log.index(rejected[-1])


def test_no_wait_begins_after_a_stop() -> None:
    system = PlannerAndLedger(plan({"id": "a", "tool": "act"}, WAIT | {"depends_on": ["a"]}))
    system.happens(ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0))
    late = ev.JobWaiting(job_id=JOB, wait_type="signal", node_id="w", idempotency_key="k", correlation_key="paid")
    system.happens(late)
    assert not system.state.open_waits


@pytest.mark.parametrize(
    ("node", "at"),
    [
        ({"kind": "wait"}, "wait.key"),
        ({"kind": "wait", "wait": {"for_s": 1, "key": "k"}}, "wait"),
        ({"kind": "wait", "wait": {"key": "k"}, "args": {"a": 1}}, "args"),
        ({"kind": "timer"}, "wait"),
        ({"kind": "timer", "wait": {"for_s": 1, "until": "2030-01-01T00:00:00Z"}}, "wait"),
        ({"kind": "timer", "wait": {"until": "2030-01-01T00:00:00"}}, "wait.until"),
        ({"kind": "timer", "wait": {"for_s": 1, "timeout_s": 1}}, "wait.timeout_s"),
        ({"kind": "tool", "tool": "act", "wait": {"key": "k"}}, "wait"),
        ({"kind": "human", "wait": {"key": "k"}}, "wait.key"),
    ],
)
def test_a_wait_that_says_nothing_is_refused(node: dict[str, Any], at: str) -> None:
    graph = TaskGraph.model_validate({"nodes": [{"id": "x"} | node]})
    with pytest.raises(InvalidPlan) as refused:
        check_graph(graph.nodes)
    assert refused.value.field == f"nodes[0].{at}"


def test_two_nodes_can_not_wait_for_one_key() -> None:
    graph = TaskGraph.model_validate({"nodes": [WAIT, WAIT | {"id": "v"}]})
    with pytest.raises(InvalidPlan, match="another node waits for this key"):
        check_graph(graph.nodes)


def test_a_signal_whose_personal_values_stand_in_the_clear_tells_nobody_anything() -> None:
    wait = {"key": "p", "personal": {"/iban": "/customer"}}
    system = PlannerAndLedger({"nodes": [{"id": "w", "kind": "wait", "wait": wait}]})
    system.signal("p", {"customer": "c-17", "iban": "DE02"})
    assert system.types("signal_received", "wait_completed") == []
    hidden = {"$hidden": {"c": "0" * 64, "d": "1" * 64, "k": "2" * 32}}
    system.signal("p", {"customer": "c-17", "iban": hidden}, "cmd-2")
    assert system.one(ev.WaitCompleted).payload == {"customer": "c-17", "iban": hidden}
