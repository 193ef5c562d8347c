"""Each condition of what the ledger lets through, alone (docs/mutants.md)."""

from types import SimpleNamespace
from typing import Any

import pytest

from aetheris.ledger.core import adjudication
from aetheris.ledger.core.adjudication import Hurdle, adjudicate, again, wait_goes_on
from aetheris.ledger.core.decisions import Confirm, Emit, Facts, Grant, Now
from aetheris.ledger.core.live_jobs import DecisionContext, LiveJob, Pending, Reopened, Resumed, TimedDecision, Waiting
from aetheris.ledger.core.settlement import JobKey
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import BlobRef, Decision, RejectReason
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.budgets import Account, Charge
from aetheris.protocol.planning.invocation import Invocation, invocation
from aetheris.protocol.planning.policy import Policy, parse
from aetheris.runtime.process.policy_file import load
from tests.testkit.histories import JOB, about, finished, fold, graph, key_of, planned, started
from tests.testkit.ledgers import START, limits

NOW = Now(100.0, START)
OTHER = {"x": 1}
PLAN = planned(graph({"id": "a"}, {"id": "b"}))
PLAN_1 = planned(graph({"id": "a", "args": OTHER}), 1)
IRREVERSIBLE = planned(graph({"id": "a"}, {"id": "b"}, act={"irreversible": True}))
WAITS = planned(graph({"id": "w", "kind": "wait", "tool": None, "wait": {"key": "go"}}))
STARTED = started("a", "n1")
FREE = about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="policy")
BY_HAND = (
    IRREVERSIBLE,
    about(ev.PolicyAllowed, "a", args_hash=args_hash(None), tool_version="1", rule="old"),
    STARTED.model_copy(update={"rule": "old"}),
    about(ev.InvocationParked, "a", invocation_id="n1", reason="r"),
    about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="human"),
)
REF = BlobRef(sha256="s", size=9)
LARGE = finished("b", "n9").model_copy(update={"result_ref": REF, "result": None})
USES_LARGE = planned(graph({"id": "a", "args": {"v": {"$ref": "b#/v"}}}, {"id": "b"}))


def context_of(policy: Policy | None = None) -> DecisionContext:
    return DecisionContext(policy or load(None), limits(), lambda: "id", lambda: 1.0)


def key(job: JobState, args: dict[str, Any] | None = None, node: str = "a") -> JobKey:
    return JobKey(job, key_of(node, args), job.key(key_of(node, args), node))


def call(job: JobState) -> Invocation:
    entry = job.entry("a")
    assert entry is not None
    return invocation(job, entry, {})


def hurdle(job_key: JobKey, content_key: str = "c") -> Hurdle | None:
    entry = job_key.job.entry("a")
    assert entry is not None
    return adjudication._hurdle(job_key, entry, content_key)


def decided(decision: str, args: dict[str, Any] | None = None, token: int | None = None) -> Any:
    body: dict[str, Any] = {"args_hash": args_hash(args), "tool_version": "1", "rule": "new", "approver": "eve"}
    return about(ev.ApprovalDecided, "a", args=args, decision=Decision(decision), token=token, **body)


def asked(token: int | None = None, rule: str = "new") -> Any:
    body: dict[str, Any] = {"args_hash": args_hash(None), "tool_version": "1", "rule": rule, "form": {}}
    return about(ev.ApprovalRequested, "a", token=token, **body)


def rejected(args: dict[str, Any] | None = None) -> Any:
    return about(ev.InvocationRejected, "a", args=args, reason=RejectReason.POLICY)


def requested(job: JobState, node: str = "a", policy: Policy | None = None, **facts: Any) -> TimedDecision:
    pending = Pending((node,), 0, None, 0.0)
    return adjudicate(LiveJob(job), node, pending, context=context_of(policy), facts=Facts(**facts), now=NOW)


def tried_again(job: JobState, free: Reopened | None = None, **facts: Any) -> TimedDecision:
    return again(
        LiveJob(job), key(job), free or Reopened(0.0, False), context=context_of(), facts=Facts(**facts), now=NOW
    )


def said(step: TimedDecision) -> list[Event]:
    return [written.event for one in step.decisions if isinstance(one, Emit) for written in one.events]


def granted(step: TimedDecision) -> tuple[str | None, ...]:
    (grant,) = step.decisions
    assert isinstance(grant, Grant)
    return grant.message.rules


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        ("edit", RejectReason.EDITED, "a human edited the call"),
        ("reject", RejectReason.APPROVAL, "a human said no"),
    ],
)
def test_a_human_s_no_is_told_from_an_edit(answer: str, reason: RejectReason, detail: str) -> None:
    assert hurdle(key(fold(PLAN, decided(answer)))) == Hurdle(reason, detail)


def test_another_call_of_the_node_is_final_when_it_is_over() -> None:
    def other(*history: Event) -> Hurdle | None:
        return hurdle(key(fold(PLAN, *history), OTHER))

    unsure = finished("a", "n1", "permanent_failure", via="ledger")
    assert other(STARTED) == Hurdle(RejectReason.CANCELLED, "another call of the node stands", final=False)
    assert other(STARTED, finished("a", "n1")) == Hurdle(RejectReason.CANCELLED, "another call of the node stands")
    assert other(STARTED, unsure) == Hurdle(RejectReason.CANCELLED, "another call of the node stands")
    assert other(rejected()) is None


def test_only_a_yes_that_still_stands_means_another_call() -> None:
    def otherwise(*history: Event) -> str | None:
        job = fold(PLAN, *history)
        return adjudication._approved_otherwise(key(job), call(job))

    assert otherwise(decided("approve", OTHER)) == "other arguments were approved"
    assert otherwise(decided("approve", OTHER), decided("approve")) is None
    assert otherwise(decided("approve", OTHER), rejected(OTHER)) is None
    assert otherwise(decided("reject", OTHER)) is None
    allowed = about(ev.PolicyAllowed, "a", args=OTHER, args_hash="h", tool_version="1", rule="r")
    assert otherwise(allowed) is None


def test_what_is_in_no_plan_is_closed() -> None:
    assert adjudication.is_closed(fold(PLAN), None)
    with pytest.raises(LookupError):
        adjudication._entry(JobKey(fold(), key_of("a"), fold(PLAN).key(key_of("a"), "a")))


def test_a_call_whose_plan_has_changed_is_not_tried_again() -> None:
    changed = fold(PLAN, STARTED, FREE, PLAN_1)
    assert adjudication.stopped(key(changed)) == Hurdle(RejectReason.CANCELLED, "the plan has changed")
    assert adjudication.stopped(key(fold(PLAN, STARTED, FREE))) is None


@pytest.mark.parametrize("history", [(STARTED,), (STARTED, finished("a", "n1"))])
def test_nothing_is_said_of_a_node_whose_earlier_call_runs_or_is_done(history: tuple[Event, ...]) -> None:
    assert requested(fold(PLAN, *history, PLAN_1)) == TimedDecision()


def test_a_call_that_was_rejected_once_is_not_asked_for_again() -> None:
    back = planned(graph({"id": "a"}), 2)
    pending = about(ev.PolicyAllowed, "a", args=OTHER, args_hash="h", tool_version="1", rule="r")
    assert requested(fold(PLAN, rejected(), PLAN_1, pending, back)) == TimedDecision()


def test_a_wait_begins_once() -> None:
    begun = said(requested(fold(WAITS), "w"))
    assert [event.event_type for event in begun] == ["job_waiting"]
    assert requested(fold(WAITS, *begun), "w") == TimedDecision()


def test_a_large_result_is_waited_for() -> None:
    job = fold(USES_LARGE, started("b", "n9"), LARGE)
    assert requested(job) == TimedDecision((), 105.0)
    assert len(granted(requested(job, blobs={"s": {"v": 7}}))) == 1


def test_a_large_result_is_waited_for_before_a_human_is_asked_for_another_try() -> None:
    irreversible = planned(graph({"id": "a", "args": {"v": {"$ref": "b#/v"}}, "irreversible": True}, {"id": "b"}))
    args = {"v": 7}
    allowed = about(ev.PolicyAllowed, "a", args=args, args_hash=args_hash(args), tool_version="1", rule="r")
    parked = about(ev.InvocationParked, "a", args=args, invocation_id="n1", reason="r")
    by_hand = about(ev.InvocationReopened, "a", args=args, invocation_id="n1", next_token=2, by="human")
    invocation = started("a", "n1", args=args)
    job = fold(irreversible, started("b", "n9"), LARGE, allowed, invocation, parked, by_hand)
    job_key = key(job, args)
    free = Reopened(0.0, after_proof=False)
    asked_for = again(LiveJob(job), job_key, free, context=context_of(), facts=Facts(), now=NOW)
    assert asked_for == TimedDecision((), 105.0)
    loaded = again(LiveJob(job), job_key, free, context=context_of(), facts=Facts(blobs={"s": {"v": 7}}), now=NOW)
    assert said(loaded)[0].event_type == "approval_requested"


def test_a_human_s_no_to_another_try_ends_the_call() -> None:
    (failed,) = said(tried_again(fold(*BY_HAND, asked(2), decided("reject", token=2))))
    assert isinstance(failed, ev.ToolInvocationFinished)
    assert failed.error == "a human said no"


def test_another_try_goes_by_the_rule_that_was_asked_about_it() -> None:
    assert granted(tried_again(fold(*BY_HAND, asked(2), decided("approve", token=2)))) == ("new",)
    assert granted(tried_again(fold(*BY_HAND, decided("approve", token=2)))) == ("old",)
    first = (PLAN, asked(rule="asked"), decided("approve"), STARTED.model_copy(update={"rule": "old"}), FREE)
    assert granted(tried_again(fold(*first))) == ("old",)


def test_a_pause_is_written_once_and_only_proven_tries_have_the_plan_s_limit() -> None:
    job = fold(planned(graph({"id": "a", "retry": {"max_attempts": 1}})), STARTED, FREE)
    paced = Reopened(0.0, after_proof=False, paced=True)
    assert [event.event_type for event in said(tried_again(job, paced))] == ["retry_scheduled"]
    assert tried_again(job, paced) == TimedDecision()
    (failed,) = said(tried_again(job, Reopened(0.0, after_proof=True)))
    assert failed.event_type == "tool_invocation_finished"


def test_a_wait_of_an_ended_job_is_left_as_it_is() -> None:
    (begun,) = said(requested(fold(WAITS), "w"))
    assert isinstance(begun, ev.JobWaiting)
    assert begun.idempotency_key is not None
    job = fold(WAITS, begun, ev.JobCancelled(job_id=JOB, by="ann"))
    job_key = JobKey(job, begun.idempotency_key, job.keys[begun.idempotency_key])
    assert wait_goes_on(job_key, Waiting(begun, 0.0), context_of(), NOW) == TimedDecision()


def test_what_a_human_approved_needs_no_word_of_the_policy() -> None:
    step = requested(fold(IRREVERSIBLE, asked(), decided("approve")))
    assert len(granted(step)) == 1


def test_only_a_limited_rule_counts() -> None:
    policy = parse('[[rules]]\nname = "any"\ntools = ["*"]\neffect = "approval"')
    request = said(requested(fold(PLAN), policy=policy))[0]
    assert isinstance(request, ev.ApprovalRequested)
    assert request.cost is None


@pytest.mark.parametrize(
    ("charges", "outcome"),
    [({}, "grant"), ({key_of("a"): Charge(1.0, 0.0, is_within=False)}, "invocation_rejected")],
)
def test_what_a_human_was_asked_was_charged_then(charges: dict[str, Charge], outcome: str) -> None:
    policy = parse('[[rules]]\nname = "few"\ntools = ["*"]\neffect = "approval"\nbudget = {calls = 1}')
    job = LiveJob(fold(PLAN, asked(rule="few"), decided("approve")), accounts={"few": Account(charges, spent=1.0)})
    step = adjudicate(job, "a", Pending(("a",), 0, None, 0.0), context=context_of(policy), facts=Facts(), now=NOW)
    assert ([event.event_type for event in said(step)] or ["grant"]) == [outcome]


def test_a_call_is_not_tried_again_before_what_it_builds_on_is_confirmed() -> None:
    plan = planned(graph({"id": "b"}, {"id": "a", "depends_on": ["b"]}))
    job = fold(plan, started("b", "n9"), finished("b", "n9"), STARTED, FREE)
    live = LiveJob(job, resumed=Resumed(5, {key_of("b")}))
    step = again(live, key(job), Reopened(0.0, after_proof=False), context=context_of(), facts=Facts(), now=NOW)
    assert [type(one) for one in step.decisions] == [Confirm]


def test_arguments_without_the_amount_are_told_from_a_spent_budget() -> None:
    def detail(amount: str, most: int) -> str | None:
        budget = f'budget = {{amount = "{amount}", most = {most}}}'
        policy = parse(f'[[rules]]\nname = "few"\ntools = ["*"]\neffect = "allow"\n{budget}')
        (refused,) = said(requested(fold(planned(graph({"id": "a", "args": {"n": 5}}))), policy=policy))
        assert isinstance(refused, ev.InvocationRejected)
        return refused.detail

    assert (detail("n", 4), detail("m", 4)) == ("few", "few: no such amount in the arguments")


def test_a_run_ends_before_what_is_no_call_or_was_touched() -> None:
    nodes = ({"id": "a"}, {"id": "b"}, {"id": "w", "kind": "wait", "tool": None, "wait": {"key": "go"}})
    job = fold(planned(graph(*nodes)), about(ev.PolicyAllowed, "b", args_hash="h", tool_version="1", rule="r"))
    follows = [adjudication._rule_to_follow(job, node, context_of()) is not None for node in ("a", "b", "w", "z")]
    assert follows == [True, False, False, False]


def test_a_call_that_waits_for_another_says_so_once() -> None:
    ahead: Any = SimpleNamespace(job_id="job-2", node_id="z")
    contents = SimpleNamespace(ahead=lambda *_: ahead)
    pending = Pending(("a",), 0, None, 0.0, scope="s")
    named: Any = SimpleNamespace(duplicates=contents)
    job = fold(PLAN)
    begun = adjudication._wait_for_another(key(job), "a", pending, named)
    assert begun is not None
    event = begun[0].events[0].event
    assert event.event_type == "job_waiting"
    assert adjudication._wait_for_another(key(fold(PLAN, event)), "a", pending, named) == ()
