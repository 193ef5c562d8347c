"""The ledger on the word of a human, and on a cancel."""

from typing import Any

import pytest

from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.policy import parse
from aetheris.runtime.process.policy_file import load
from tests.testkit.histories import JOB, about, finished, graph, key_of, planned, started
from tests.testkit.ledgers import ALLOW_ALL, TTL_S, Ledger, Surroundings, one


@pytest.fixture
def parked() -> Ledger:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    return ledger


@pytest.mark.parametrize(
    ("verdict", "outcome", "grants"),
    [("happened", Settled.SUCCESS, 0), ("not_executed", Settled.FAILED, 0), ("retry", None, 1)],
)
def test_a_human_resolves_what_is_parked(parked: Ledger, verdict: str, outcome: Settled | None, grants: int) -> None:
    parked.resolve(verdict, result={"id": 3})
    assert parked.state().outcome is outcome
    assert len(parked.grants) == grants
    words = [event for event in parked.surroundings.log if event.caused_by == "cmd-1"]
    assert words
    assert "bob" in words[0].model_dump_json()
    assert not parked.state().sure or outcome is None


WHOSE = "who submitted the job may not resolve its calls in doubt: somebody else must"


@pytest.mark.parametrize("verdict", ["happened", "not_executed", "retry"])
@pytest.mark.parametrize("settlement", [{"by": "ann"}, {"tenant": "other"}])
def test_who_may_not_resolve_says_nothing(parked: Ledger, verdict: str, settlement: dict[str, str]) -> None:
    log = parked.written()
    parked.resolve(verdict, **settlement)
    assert parked.written() == log
    assert (parked.state().status, parked.core.open_command()) == (KeyStatus.PARKED, None)
    (reported,) = parked.core.ignored
    assert reported.why == ("the job is another tenant's" if "tenant" in settlement else WHOSE)


@pytest.mark.parametrize(
    ("rule", "may"),
    [
        ("", {"ann": False, "bob": True}),
        ("self_approval = true\n", {"ann": True, "bob": True}),
        ('approvers = ["carol"]\n', {"ann": False, "bob": False, "carol": True}),
        ('self_approval = true\napprovers = ["carol"]\n', {"ann": False, "carol": True}),
    ],
)
def test_the_rule_that_let_a_call_run_says_who_resolves_it(rule: str, may: dict[str, bool]) -> None:
    """Whatever is activated while the call is in flight, and whether that names others or has no such rule any more."""
    named = ALLOW_ALL + '\napprovers = ["ann", "eve"]\nself_approval = true'
    for who, allowed in {**may, "eve": may.get("bob", False)}.items():
        for later in (ALLOW_ALL, named, named.replace('"all"', '"renamed"')):
            ledger = Surroundings(one("opaque"), parse(f"{ALLOW_ALL}\n{rule}")).ledger()
            ledger.request("a", offset=1)
            (*_, granted) = ledger.grants
            ledger.add(started("a", "n1").model_copy(update={"rule": granted.rules[0]}))
            ledger.activate(1, later)
            ledger.lease_lapses()
            assert ledger.state().status is KeyStatus.PARKED
            ledger.resolve("not_executed", by=who)
            assert (ledger.state().status is KeyStatus.SETTLED) is allowed, (who, later)


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ("", None),
        ("persons = false\n", None),
        ("expires_s = 60\n", None),
        ('approvers = ["carol"]\n', {"approvers": ["carol"]}),
        ('approver_roles = ["resolve"]\n', {"approver_roles": ["resolve"]}),
        ("persons = true\n", {"approver_kinds": ["person"]}),
        ('approver_kinds = ["agent"]\n', {"approver_kinds": ["agent"]}),
        ("self_approval = true\n", {"self_approval": True}),
    ],
)
def test_a_rule_that_names_somebody_has_that_in_the_log_before_its_call_starts(
    rule: str, word: dict[str, Any] | None
) -> None:
    """And one that names nobody writes nothing."""
    ledger = Surroundings(one("opaque"), parse(f"{ALLOW_ALL}\n{rule}")).ledger()
    ledger.request("a", offset=1)
    said = [event for event in ledger.surroundings.log if isinstance(event, ev.PolicyAllowed)]
    whom = {"approvers", "approver_roles", "approver_kinds", "approvals", "signed", "self_approval"}
    found = [one.model_dump(mode="json", include=whom, exclude_none=True) for one in said]
    assert (found, len(ledger.grants)) == ([word] if word is not None else [], 1)


def test_a_word_on_what_is_not_parked_is_ignored() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.resolve("not_executed")
    assert ledger.core.open_command() is None
    assert ledger.state().status is KeyStatus.STARTED


def test_a_word_waits_for_the_fold_of_the_one_who_sent_it_however_long_that_takes() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.surroundings.held.add(key_of("a"))
    ledger.resolve("happened", result=1, as_of=len(ledger.surroundings.log))
    ledger.sleep(100 * TTL_S)
    assert (ledger.core.open_command(), ledger.core.waits_for_fold) == (7, True)
    ledger.add(about(ev.InvocationParked, "a", invocation_id="n1", reason="x"))
    assert ledger.state().outcome is Settled.SUCCESS
    assert ledger.core.open_command() is None


def cancelled(*, compensate: bool = False) -> tuple[Event, Event]:
    requested = ev.CancelRequested(job_id=JOB, by="bob", caused_by="cmd", compensate=compensate)
    return requested, ev.JobStopping(job_id=JOB, by="bob", reason="cancelled", up_to_revision=0)


def test_a_cancel_settles_what_is_parked_as_failed_and_not_sure() -> None:
    surroundings = Surroundings(one("opaque"))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"), about(ev.InvocationParked, "a", invocation_id="n1", reason="r"))
    ledger.add(*cancelled())
    state = ledger.state()
    assert (state.status, state.outcome, state.sure, state.via) == (
        KeyStatus.SETTLED,
        Settled.FAILED,
        False,
        Via.HUMAN,
    )
    event = surroundings.log[-1]
    assert isinstance(event, ev.ToolInvocationFinished)
    assert (event.by, event.caused_by, event.evidence) == ("bob", "cmd", {"effect": "possible"})


def test_what_is_parked_after_the_cancel_and_before_a_restart_is_settled_too() -> None:
    surroundings = Surroundings(one("opaque"))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"), *cancelled())
    assert ledger.state().status is KeyStatus.STARTED
    surroundings.log.append(about(ev.InvocationParked, "a", invocation_id="n1", reason="r"))
    surroundings.ids.append("")
    assert surroundings.ledger().state().outcome is Settled.FAILED


def test_a_compensation_that_is_parked_waits_for_a_human_also_under_a_cancel() -> None:
    surroundings = Surroundings(one("opaque", compensate_with={"tool": "act"}))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"), finished("a", "n1"), *cancelled(compensate=True))
    ledger.add(planned(graph({"id": "a.undo", "compensates": "a"}), 1))
    ledger.add(started("a.undo", "u1", revision=1))
    ledger.add(about(ev.InvocationParked, "a.undo", invocation_id="u1", reason="r"))
    assert ledger.state("a.undo").status is KeyStatus.PARKED


def test_a_request_that_a_stop_makes_needless_is_closed() -> None:
    surroundings = Surroundings(one("opaque", irreversible=True), policy=load(None))
    ledger = surroundings.ledger()
    ledger.request("a")
    assert ledger.state().requested is not None
    ledger.add(*cancelled())
    assert (ledger.state().outcome, ledger.state().reason) == (Settled.REJECTED, "cancelled")


def test_a_compensation_is_granted_behind_a_stop_and_nothing_else_is() -> None:
    plan = graph({"id": "a", "compensate_with": {"tool": "act"}}, {"id": "b"})
    surroundings = Surroundings(plan, policy=parse(ALLOW_ALL))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"), finished("a", "n1"), *cancelled(compensate=True))
    undo = planned(graph({"id": "a.undo", "compensates": "a"}), 1)
    ledger.add(undo)
    ledger.request("b", revision=1, plan_hash=undo.plan_hash)
    assert ledger.grants == []
    ledger.request("a.undo", offset=1, revision=1, plan_hash=undo.plan_hash)
    assert [grant.nodes for grant in ledger.grants] == [("a.undo",)]
