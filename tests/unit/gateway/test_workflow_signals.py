"""Signals to a job with a workflow: its code may ask for them later."""

import pytest

from aetheris.gateway.core.answers import signal_received
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem
from aetheris.protocol.base.child_ids import NOTHING_RECORDED
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from tests.testkit.body_histories import FLOW, body, fold_bodies, over
from tests.testkit.histories import JOB
from tests.testkit.principals import person


def sent(job: JobState, name: str) -> ev.SignalReceived | None:
    return signal_received(job, name, 1, person("ann"))


def received(name: str) -> ev.SignalReceived:
    return ev.SignalReceived(job_id=JOB, correlation_key=name, payload=1, command_id=f"c-{name}")


def test_what_nothing_waits_for_yet_may_be_sent_until_the_workflow_has_ended() -> None:
    assert sent(fold_bodies(FLOW), "paid") is None
    assert sent(fold_bodies(FLOW, body("b1")), "paid") is None
    with pytest.raises(BadRequestProblem):
        sent(fold_bodies(FLOW, body("b1"), over("b1", said=NOTHING_RECORDED)), "paid")


def test_said_again_it_is_the_same_and_there_is_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aetheris.protocol.fold.bodies.MAX_SIGNALS", 1)
    job = fold_bodies(FLOW, received("paid"))
    assert sent(job, "paid") == received("paid")
    with pytest.raises(ConflictProblem) as refused:
        sent(job, "sent")
    assert refused.value.code == "too_many_signals"
