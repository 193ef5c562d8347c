"""A human's retry of a call that may have acted: it needs a yes of its own, to this very try."""

from typing import Any

import pytest

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import LoggedEvent
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import KeyState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import CancelContract, Resolve, Respond
from aetheris.protocol.messages.event_values import Via
from aetheris.protocol.planning.approvals import request_id
from aetheris.protocol.planning.policy import parse
from aetheris.views.contracts import Contracts
from aetheris.views.standing import job_status, job_view
from tests.testkit.histories import JOB, TENANT, about, graph, key_of, started
from tests.testkit.ledgers import Ledger, Surroundings
from tests.testkit.principals import said_by
from tests.unit.ledger import test_approvals as approvals

PAID = {"to": "bob"}
KEY = key_of("a", PAID, "pay")
ASK = '[[rules]]\nname = "pay"\ntools = ["pay"]\neffect = "approval"\napprovers = ["bob", "carol"]\n'
ALLOW = '[[rules]]\nname = "free"\ntools = ["pay"]\neffect = "allow"\n'
DENY = '[[rules]]\nname = "never"\ntools = ["pay"]\neffect = "deny"\n'


def paying(policy: str, *, irreversible: bool = True) -> Surroundings:
    plan = graph({"id": "a", "tool": "pay", "args": PAID}, pay={"irreversible": irreversible})
    return Surroundings(plan, parse(policy))


def state(ledger: Ledger) -> KeyState:
    return ledger.job.keys[KEY]


def start(ledger: Ledger, number: int) -> ev.ToolInvocationStarted:
    rule = ledger.grants[-1].rules[0] if ledger.grants else None
    invocation = started("a", f"n{number}", args=PAID, tool="pay", token=number)
    return invocation.model_copy(update={"rule": rule})


def respond(ledger: Ledger, action: str = "approve", token: int = 1, by: str = "bob", **more: Any) -> None:
    name = f"answer-{token}-{action}-{by}"
    asked = request_id(JOB, "a", KEY, token)
    body = {"job_id": JOB, **said_by(by), "tenant": TENANT, "request_id": asked, "action": action, "as_of": -1}
    ledger.core.hear(Respond.model_validate(body | more), name, 7)
    ledger.settle()


def resolve(
    ledger: Ledger, verdict: str = "retry", by: str = "carol", name: str = "resolve", as_of: int | None = None
) -> None:
    contract = execution_id(JOB, "a", KEY)
    body: dict[str, Any] = {"execution_id": contract, "verdict": verdict, "evidence": "their log is empty"}
    body["as_of"] = ledger.job.last_offset if as_of is None else as_of
    ledger.core.hear(Resolve.model_validate({"job_id": JOB, **said_by(by), "tenant": TENANT, **body}), name, 8)
    ledger.settle()


def parked(policy: str = ASK, *, irreversible: bool = True) -> Ledger:
    """A call that was let run, and of which nobody knows what became."""
    ledger = paying(policy, irreversible=irreversible).ledger()
    ledger.request("a")
    if policy == ASK:
        respond(ledger)
    ledger.add(start(ledger, 1))
    ledger.lease_lapses()
    assert state(ledger).status is KeyStatus.PARKED
    return ledger


@pytest.mark.parametrize(("policy", "irreversible"), [(ASK, True), (ASK, False), (ALLOW, True)])
def test_each_retry_needs_an_approval_of_its_own(policy: str, irreversible: bool) -> None:
    ledger = parked(policy, irreversible=irreversible)
    for number in (2, 3, 4):
        resolve(ledger, name=f"resolve-{number}")
        assert (state(ledger).status, state(ledger).is_asking) == (KeyStatus.REOPENED, True)
        assert len(ledger.grants) == number - 1
        assert start_is_void(ledger.job, start(ledger, number)) == "retried by hand, and not approved anew"
        respond(ledger, token=number - 1)
        assert len(ledger.grants) == number - 1, "a yes to an earlier try is none"
        respond(ledger, token=number)
        assert len(ledger.grants) == number
        ledger.add(start(ledger, number))
        assert state(ledger).status is KeyStatus.STARTED
        ledger.lease_lapses()
    reported = [event for event in ledger.surroundings.log if isinstance(event, ev.ApprovalDecided)]
    assert [one.generation for one in reported] == [*([1] if policy == ASK else []), 2, 3, 4]
    assert len({id_ for id_ in ledger.surroundings.ids if id_}) == len([id_ for id_ in ledger.surroundings.ids if id_])


@pytest.mark.parametrize("verdict", ["retry", "happened", "not_executed"])
def test_what_was_said_of_an_earlier_try_is_not_said_of_this_one(verdict: str) -> None:
    """The same command once more, byte for byte, after the call was tried again and parked again."""
    ledger = parked()
    said_at = ledger.job.last_offset
    resolve(ledger)
    respond(ledger, token=2)
    ledger.add(start(ledger, 2))
    ledger.lease_lapses()
    assert state(ledger).status is KeyStatus.PARKED
    for as_of in (said_at, ledger.job.last_offset - 1):
        resolve(ledger, verdict, name="resolve", as_of=as_of)
        assert state(ledger).status is KeyStatus.PARKED
    resolve(ledger, verdict, name="now")
    assert state(ledger).status is not KeyStatus.PARKED


def test_who_edited_a_call_does_not_approve_another_try_of_it_either() -> None:
    pin = {"effect_class": "opaque", "irreversible": True, "schema_hash": "pay-1"}
    ledger = approvals.world(plan=graph({"id": "a", "tool": "pay", "args": approvals.PAID}, pay=pin)).ledger()
    ledger.request("a")
    approvals.respond(ledger, "edit", data={"amount": 400})
    less = approvals.PAID | {"amount": 400}
    approvals.respond(ledger, "approve", by="carol", args=less, name="yes")
    key = approvals.key(less)
    for number in (1, 2, 3):
        ledger.add(started("a", f"n{number}", args=less, tool="pay", token=number))
        ledger.lease_lapses()
        body: dict[str, Any] = {"execution_id": execution_id(JOB, "a", key), "verdict": "retry", "evidence": "none"}
        body |= {"as_of": ledger.job.last_offset}
        ledger.core.hear(
            Resolve.model_validate({"job_id": JOB, **said_by("bob"), "tenant": TENANT, **body}), f"r{number}", 8
        )
        ledger.settle()
        again = request_id(JOB, "a", key, number + 1)
        for by, granted in (("bob", number), ("carol", number + 1)):
            approvals.respond(ledger, "approve", by=by, args=less, name=f"{by}-{number}", request_id=again)
            assert len(ledger.grants) == granted


def test_what_can_be_undone_and_was_never_asked_about_is_retried_as_before() -> None:
    ledger = parked(ALLOW, irreversible=False)
    resolve(ledger)
    assert len(ledger.grants) == 2
    assert not any(isinstance(event, ev.ApprovalRequested) for event in ledger.surroundings.log)


def test_the_request_says_that_it_is_a_second_try_and_can_only_be_taken_as_it_is() -> None:
    ledger = parked()
    resolve(ledger)
    requested = state(ledger).requested
    assert requested is not None
    assert (requested.generation, requested.form["id"]) == (2, request_id(JOB, "a", KEY, 2))
    assert "may have acted already" in requested.form["description"]
    assert (requested.form["fields"], set(requested.form["actions"])) == ([], {"approve", "reject"})
    respond(ledger, "edit", token=2, data={"to": "eve"})
    assert state(ledger).is_asking
    assert len(ledger.grants) == 1


@pytest.mark.parametrize("by", ["ann", "eve"])
def test_the_rules_approvers_decide_anew_and_nobody_else(by: str) -> None:
    ledger = parked()
    resolve(ledger, by=by)
    assert state(ledger).status is KeyStatus.PARKED
    resolve(ledger)
    respond(ledger, token=2, by=by)
    assert state(ledger).is_asking


def test_a_no_ends_it_and_it_is_not_sure() -> None:
    ledger = parked()
    resolve(ledger)
    respond(ledger, "reject", token=2)
    assert (state(ledger).outcome, state(ledger).sure, state(ledger).reason) == (Settled.REJECTED, False, "approval")
    assert len(ledger.grants) == 1
    assert start_is_void(ledger.job, start(ledger, 2)) is not None


def test_nobody_answers_in_time() -> None:
    surroundings = paying(f"{ASK}expires_s = 60\n")
    ledger = surroundings.ledger()
    ledger.request("a")
    respond(ledger)
    ledger.add(start(ledger, 1))
    ledger.lease_lapses()
    resolve(ledger)
    again = surroundings.ledger()
    again.sleep(61)
    assert (state(again).outcome, state(again).sure, state(again).reason) == (Settled.REJECTED, False, "expired")


def test_a_policy_that_denies_by_now_ends_it() -> None:
    surroundings = parked().surroundings
    surroundings.policy = parse(DENY)
    ledger = surroundings.ledger()
    resolve(ledger)
    assert (state(ledger).outcome, state(ledger).sure, state(ledger).via) == (Settled.FAILED, False, Via.LEDGER)
    assert state(ledger).reason == "policy: never"


def test_the_policys_own_word_is_not_enough() -> None:
    """Neither one that allows by now, nor one that a ledger far behind still writes."""
    surroundings = parked().surroundings
    surroundings.policy = parse(ALLOW)
    ledger = surroundings.ledger()
    resolve(ledger)
    assert state(ledger).is_asking
    ledger.add(about(ev.PolicyAllowed, "a", args=PAID, tool="pay", args_hash="h", tool_version="1", rule="free"))
    assert state(ledger).allowed == ()
    assert start_is_void(ledger.job, start(ledger, 2)) == "retried by hand, and not approved anew"


def test_the_question_outlives_the_ledger_and_is_put_once() -> None:
    ledger = parked()
    resolve(ledger)
    again = ledger.surroundings.ledger()
    again.settle()
    assert again.written().count("approval_requested") == 2
    respond(again, token=2)
    assert len(again.grants) == 1


def test_a_step_that_asks_anew_waits_is_listed_and_can_be_cancelled() -> None:
    ledger = parked()
    resolve(ledger)
    (step,) = job_view(ledger.job, "")["steps"]
    assert (step["state"], step["request_id"]) == ("waiting", request_id(JOB, "a", KEY, 2))
    assert job_status(ledger.job) == "waiting"
    contracts = Contracts()
    for offset, event in enumerate(ledger.surroundings.log):
        contracts.take(LoggedEvent(offset, Record("", 0, offset, 0, None, (), b""), event))
    assert contracts.status(KEY) == "waiting"
    contract = execution_id(JOB, "a", KEY)
    settlement = {"job_id": JOB, "by": "ann", "tenant": TENANT, "execution_id": contract, "as_of": -1}
    ledger.core.hear(CancelContract.model_validate(settlement), "cancel", 9)
    ledger.settle()
    assert (state(ledger).status, state(ledger).reason, state(ledger).sure) == (KeyStatus.SETTLED, "cancelled", False)


def test_a_retry_that_is_refused_gives_no_budget_back() -> None:
    """The first try may have acted."""
    ledger = parked()
    rule = ledger.surroundings.policy.rules[0]
    account = ledger.core.jobs[JOB].account(rule.name)
    account.take(rule, KEY, 1.0, 0.0)
    resolve(ledger)
    respond(ledger, "reject", token=2)
    assert KEY in account.taken
