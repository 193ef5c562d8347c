"""A stop lands anywhere between what the ledger writes: every call that was asked for, waits or is parked ends."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, Respond, Signal
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.approvals import request_id
from aetheris.runtime.process.policy_file import load
from tests.testkit.histories import JOB, TENANT, graph, key_of, started
from tests.testkit.ledgers import TTL_S, Behind, Surroundings
from tests.testkit.principals import said_by

PLAN = graph(
    {"id": "ask", "irreversible": True, "args": {"n": 1}},
    {"id": "wait", "kind": "wait", "tool": None, "wait": {"key": "go"}},
    {"id": "park"},
    {"id": "timer", "kind": "timer", "tool": None, "wait": {"for_s": 10}},
)
SCHEMA = {"type": "object", "properties": {"n": {"type": "number"}}}
ENTRY = {"name": "act", "version": "1", "schema": SCHEMA, "schema_hash": "s", "effect_class": "opaque"}
STOP: Sequence[Event] = (
    ev.CancelRequested(job_id=JOB, by="ann", reason="enough"),
    ev.JobStopping(job_id=JOB, by="ann", reason="enough", up_to_revision=0),
)
WORDS = {
    action: Respond(
        job_id=JOB,
        **said_by("ben"),
        tenant=TENANT,
        as_of=-1,
        request_id=request_id(JOB, "ask", key_of("ask", {"n": 1})),
        action=action,
        data={"n": 2} if action == "edit" else {},
    )
    for action in ("approve", "reject", "edit")
}


class StoppedJob:
    """A job that is stopped somewhere in it."""

    def __init__(self) -> None:
        tools = {"act": RegistryEntry.model_validate(ENTRY)}
        self.surroundings = Surroundings(PLAN, load(None), tools=tools)
        self.ledger = Behind(self.surroundings)
        assert self.ledger.job.revision == 0
        self.stop = list(STOP)

    def act(self, name: str) -> None:
        match name:
            case "restart":
                meanwhile, self.ledger = self.ledger.meanwhile, Behind(self.surroundings)
                self.ledger.meanwhile = meanwhile
            case "stop":
                self.ledger.add(*self._take(1))
            case "stop behind":
                self.ledger.meanwhile = [*self.ledger.meanwhile, *self._take(2)]
            case "start":
                self.ledger.add(started("park", "n1"))
            case "sleep":
                self.ledger.lease_lapses()
            case "go":
                command = {"job_id": JOB, "by": "ben", "tenant": TENANT, "as_of": -1, "correlation_key": "go"}
                self.ledger.core.hear(Signal.model_validate(command), "cmd-go", 8)
                self.ledger.settle()
            case "approve" | "reject" | "edit":
                self.ledger.core.hear(WORDS[name], f"cmd-{name}", 9)
                self.ledger.settle()
            case _:
                self.ledger.request(name)

    def end(self) -> None:
        """What is under way arrives, and all time passes that anything waits for."""
        left = [*self.ledger.meanwhile, *self.stop]
        self.ledger.meanwhile = ()
        self.ledger.add(*left)
        self.ledger.sleep(10 * TTL_S)
        self.surroundings.held.clear()
        self.ledger.sleep(10 * TTL_S)

    def _take(self, count: int) -> Sequence[Event]:
        taken, self.stop = self.stop[:count], self.stop[count:]
        return taken


ACTIONS = ("ask", "wait", "park", "timer", "start", "approve", "reject", "edit", "go", "sleep", "stop", "restart")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from((*ACTIONS, "stop behind")), max_size=14))
def test_nothing_of_a_stopped_job_is_left_open(actions: list[str]) -> None:
    stopped = StoppedJob()
    for action in actions:
        stopped.act(action)
    stopped.end()
    left: dict[str, Any] = {
        state.node_id: state.status
        for state in stopped.ledger.job.keys.values()
        if state.status in (KeyStatus.STARTED, KeyStatus.PARKED, KeyStatus.REOPENED)
        or state.is_asking
        or state.is_waiting
    }
    assert left == {}


@pytest.mark.parametrize("then", ["sleep", "restart", "approve", "edit"])
def test_an_approval_that_is_asked_for_behind_a_stop_ends(then: str) -> None:
    stopped = StoppedJob()
    for action in ("stop behind", "ask", then):
        stopped.act(action)
    assert stopped.ledger.written() == ["approval_requested", "job_waiting", "invocation_rejected"]
    (state,) = stopped.ledger.job.keys.values()
    assert (state.status, state.reason) == (KeyStatus.SETTLED, "cancelled")


def test_what_an_undo_could_not_confirm_is_accepted_behind_the_stop() -> None:
    stopped = StoppedJob()
    stopped.ledger.add(ev.JobWaiting(job_id=JOB, wait_type="confirmation", correlation_key="confirm-7"), *STOP)
    body = {"job_id": JOB, "by": "ben", "tenant": TENANT, "as_of": -1}
    stopped.ledger.core.hear(Signal.model_validate(body | {"correlation_key": "go"}), "cmd-1", 8)
    stopped.ledger.core.hear(Signal.model_validate(body | {"correlation_key": "confirm-7"}), "cmd-2", 9)
    stopped.ledger.settle()
    assert [event.correlation_key for event in stopped.surroundings.log if isinstance(event, ev.WaitCompleted)] == [
        "confirm-7"
    ]
