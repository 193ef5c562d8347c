"""Where a rule asks for several to say yes: who counts, when it is decided, and that it is decided once."""

from typing import Any

import pytest

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.principals import PrincipalKind, RecordedPrincipal, Role
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Resolve, Respond
from aetheris.protocol.planning.approvals import request_id
from tests.testkit.histories import JOB, TENANT, about, started
from tests.testkit.ledgers import Ledger
from tests.testkit.principals import said_by
from tests.unit.ledger.test_approvals import PAID, PAY, asked, key, respond, state, world

TWO = PAY + "approvals = 2\n"


def votes_of(ledger: Ledger, args: dict[str, Any] = PAID) -> list[str]:
    return [vote.approver for vote in state(ledger, args).votes]


def test_two_of_two_different_persons_make_one_decision_that_names_them() -> None:
    ledger = asked(TWO)
    respond(ledger, "approve", by="bob", name="v-1")
    assert (ledger.written()[-1], ledger.grants, state(ledger).decision) == ("approval_voted", [], None)
    respond(ledger, "approve", by="bob", name="v-2")
    assert votes_of(ledger) == ["bob"]
    assert ledger.core.ignored[-1].why == "who has approved this already is counted once: 2 different ones must"
    respond(ledger, "approve", by="carol", name="v-3", comment="fine")
    decided = state(ledger).decision
    assert decided is not None
    assert (decided.votes, decided.approver, decided.comment) == (("bob", "carol"), "carol", "fine")
    assert len(ledger.grants) == 1
    respond(ledger, "approve", by="dan", name="v-4")
    assert ledger.written().count("approval_voted") == 2


@pytest.mark.parametrize("by", ["ann", "robot", "eve"])
def test_who_may_not_say_yes_is_no_second_one(by: str) -> None:
    ledger = asked(TWO)
    lies: dict[str, dict[str, Any]] = {
        "robot": {"principal": RecordedPrincipal(id="robot", kind=PrincipalKind.AGENT, roles=tuple(Role))},
        "eve": {"tenant": "other"},
    }
    respond(ledger, "approve", by="bob", name="v-1")
    respond(ledger, "approve", by=by, name="v-2", **lies.get(by, {}))
    assert (votes_of(ledger), ledger.grants, state(ledger).decision) == (["bob"], [], None)


def test_one_no_decides_whoever_said_yes() -> None:
    ledger = asked(TWO)
    respond(ledger, "approve", by="bob", name="v-1")
    respond(ledger, "reject", by="carol", name="v-2")
    respond(ledger, "approve", by="dan", name="v-3")
    assert (state(ledger).reason, ledger.grants) == ("approval", [])


def test_an_edit_has_no_votes_and_its_editor_none_there() -> None:
    ledger, less = asked(TWO), PAID | {"amount": 400}
    respond(ledger, "approve", by="bob", name="v-1")
    respond(ledger, "edit", by="carol", name="v-2", data={"amount": 400})
    assert votes_of(ledger, less) == []
    respond(ledger, "approve", by="carol", args=less, name="v-3")
    respond(ledger, "approve", by="bob", args=less, name="v-4")
    assert (votes_of(ledger, less), ledger.grants) == (["bob"], [])
    respond(ledger, "approve", by="dan", args=less, name="v-5")
    assert [grant.idempotency_key for grant in ledger.grants] == [key(less)]


def at_once(ledger: Ledger) -> None:
    """Two say yes before the ledger has folded the word of either."""
    for by in ("bob", "carol"):
        fields = {"request_id": request_id(JOB, "a", key()), "action": "approve", "as_of": -1}
        command = Respond.model_validate({"job_id": JOB, **said_by(by), "tenant": TENANT} | fields)
        ledger.core.hear(command, f"v-{by}", 7)


def test_of_two_at_once_neither_was_the_last_and_it_is_decided_all_the_same() -> None:
    ledger = asked(TWO)
    at_once(ledger)
    ledger.settle()
    decided = state(ledger).decision
    assert decided is not None
    assert (decided.votes, len(ledger.grants)) == (("bob", "carol"), 1)


def test_votes_outlive_the_ledger_and_what_they_come_to_is_decided_by_the_next() -> None:
    ledger = asked(TWO)
    respond(ledger, "approve", by="bob", name="v-1")
    respond(ledger.surroundings.ledger(), "approve", by="carol", name="v-2")
    log = [event for event in ledger.surroundings.log if not isinstance(event, ev.ApprovalDecided)]
    fresh = world(TWO)
    fresh.log, fresh.ids = log, [""] * len(log)
    decided = state(fresh.ledger()).decision
    assert decided is not None
    assert decided.votes == ("bob", "carol")


def test_votes_for_an_earlier_try_are_none_for_a_later_one() -> None:
    ledger = asked(TWO)
    for by in ("bob", "carol"):
        respond(ledger, "approve", by=by, name=f"v-{by}")
    ledger.add(started("a", "n1", args=PAID, tool="pay"))
    ledger.add(about(ev.InvocationParked, "a", args=PAID, tool="pay", invocation_id="n1", reason="?"))
    resolved: dict[str, Any] = {"execution_id": execution_id(JOB, "a", key()), "verdict": "retry", "evidence": "lost"}
    resolved["as_of"] = ledger.job.last_offset
    ledger.core.hear(Resolve.model_validate({"job_id": JOB, **said_by("bob"), "tenant": TENANT} | resolved), "r", 8)
    ledger.settle()
    assert votes_of(ledger) == []
    again = request_id(JOB, "a", key(), 2)
    respond(ledger, "approve", by="bob", name="again", request_id=again)
    assert len(ledger.grants) == 1
    respond(ledger, "approve", by="carol", name="too", request_id=again)
    assert len(ledger.grants) == 2


@pytest.mark.parametrize(
    ("rule", "kinds"),
    [
        ("", ("person",)),
        ("persons = false\n", None),
        ('approver_kinds = ["person", "service"]\n', ("person", "service")),
    ],
)
def test_what_cant_be_undone_is_a_persons_to_decide_where_the_rule_doesnt_say(rule: str, kinds: Any) -> None:
    requested = state(asked(PAY + rule)).requested
    assert requested is not None
    assert requested.approver_kinds == kinds


def test_roles_that_a_rule_asks_for_are_recorded_and_needed() -> None:
    ledger = asked(PAY + 'approver_roles = ["audit"]\n')
    few = RecordedPrincipal(id="bob", kind=PrincipalKind.PERSON, roles=(Role.APPROVE,))
    respond(ledger, "approve", by="bob", name="v-1", principal=few)
    assert ledger.core.ignored[-1].why == "the role audit is needed to approve this by rule pay"
    respond(ledger, "approve", by="carol", name="v-2")
    assert len(ledger.grants) == 1


def test_in_an_emergency_one_decides_alone_and_an_operator_hears_of_it() -> None:
    ledger = asked(TWO + 'approvers = ["carol"]\n')
    emergency = {"id": "bob", "kind": "person", "roles": ["break_glass"], "breaks_glass": True}
    respond(ledger, "approve", name="v-1", principal=emergency | {"roles": ["approve"]})
    assert (ledger.grants, ledger.core.emergencies) == ([], [])
    respond(ledger, "approve", name="v-2", principal=emergency, comment="the bank closes")
    decided = state(ledger).decision
    assert decided is not None
    assert (decided.votes, decided.approver, len(ledger.grants)) == (None, "bob", 1)
    assert [event.event_type for event in ledger.core.emergencies] == ["approval_decided"]
    assert decided.principal is not None
    assert decided.principal.breaks_glass
