"""What people ask of a contract, at the ledger: it decides by its own fold, whatever the gateway knew."""

from typing import Any

import pytest

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import CancelContract, Resolve, Respond
from aetheris.protocol.messages.event_values import RejectReason, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.approvals import request_id
from aetheris.protocol.planning.policy import parse
from tests.testkit.histories import JOB, TENANT, about, finished, graph, key_of, started
from tests.testkit.ledgers import Ledger, Surroundings
from tests.testkit.principals import said_by
from tests.unit.views.test_contracts import PARKED, YES, failed, rejected

ASK = '[[rules]]\nname = "r"\ntools = ["*"]\neffect = "approval"\n'
ASKED = about(ev.ApprovalRequested, "a", args_hash="h", tool_version="1", rule="r", form={"title": "a"})
REQUEST = request_id(JOB, "a", key_of("a"))
CONTRACT = execution_id(JOB, "a", key_of("a"))

STATES: dict[str, tuple[Event, ...]] = {
    "pending": (),
    "running": (started("a", "n1"),),
    "waiting, asked": (ASKED,),
    "waiting, parked": (started("a", "n1"), PARKED),
    "completed": (ASKED, YES, started("a", "n1"), finished("a", "n1")),
    "failed": (started("a", "n1"), failed(Via.EXECUTOR)),
    "rejected": (ASKED, rejected(RejectReason.APPROVAL)),
    "cancelled": (ASKED, rejected(RejectReason.CANCELLED)),
    "cancelled, expired": (ASKED, rejected(RejectReason.EXPIRED)),
    "cancelled, in doubt": (started("a", "n1"), PARKED, failed(Via.HUMAN, "cancelled")),
}
LEGAL = {
    "running": {"cancel"},
    "waiting, asked": {"approve", "reject", "cancel"},
    "waiting, parked": {"cancel", "happened", "not_executed", "retry"},
}


def commands(as_of: int = -1) -> dict[str, Any]:
    who: dict[str, Any] = {"job_id": JOB, **said_by("bob"), "tenant": TENANT, "as_of": as_of}
    reported = {"execution_id": CONTRACT, "evidence": "seen"}
    return {
        **{action: Respond(request_id=REQUEST, action=action, **who) for action in ("approve", "reject")},
        **{
            verdict: Resolve.model_validate(who | reported | {"verdict": verdict})
            for verdict in ("happened", "not_executed", "retry")
        },
        "cancel": CancelContract(execution_id=CONTRACT, **who),
    }


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("asked", commands())
def test_only_what_its_state_allows_is_written(state: str, asked: str) -> None:
    ledger: Ledger = Surroundings(graph({"id": "a"}), parse(ASK)).ledger()
    ledger.add(*STATES[state])
    before = list(ledger.surroundings.log)
    ledger.core.hear(commands(ledger.job.last_offset)[asked], "cmd-1", 7)
    ledger.settle()
    caused = [event for event in ledger.surroundings.log[len(before) :] if getattr(event, "caused_by", None) == "cmd-1"]
    assert bool(caused) is (asked in LEGAL.get(state, ()))
    if not caused:
        assert ledger.surroundings.log == before
