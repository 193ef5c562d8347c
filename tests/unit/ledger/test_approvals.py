"""Approvals in the ledger's core: what a yes holds for, who may say it, and that it is said once."""

from typing import Any

import pytest

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.keys import args_hash, idempotency_key
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import KeyState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, Respond
from aetheris.protocol.messages.event_values import Decision, DuplicateOf
from aetheris.protocol.planning.approvals import request_id
from aetheris.protocol.planning.policy import Policy, parse
from tests.testkit.histories import JOB, TENANT, about, adopts, graph, key_of, planned, started
from tests.testkit.ledgers import Ledger, Surroundings
from tests.testkit.principals import said_by

SCHEMA = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "amount": {"type": "integer", "minimum": 1, "maximum": 100_000},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["to", "amount"],
    "additionalProperties": False,
}
PAID = {"to": "bob", "amount": 5000}
PAY = '[[rules]]\nname = "pay"\ntools = ["pay"]\neffect = "approval"\n'


def pay(*more: dict[str, Any], args: dict[str, Any] = PAID) -> dict[str, Any]:
    pin = {"effect_class": "probeable", "irreversible": True, "schema_hash": "pay-1"}
    return graph({"id": "a", "tool": "pay", "args": args}, *more, pay=pin)


def world(policy: str = PAY, plan: dict[str, Any] | None = None) -> Surroundings:
    made = Surroundings(plan or pay(), parse(policy))
    made.tools["pay"] = RegistryEntry.model_validate(
        {"name": "pay", "version": "1", "schema": SCHEMA, "schema_hash": "pay-1", "effect_class": "probeable"}
    )
    return made


def asked(policy: str = PAY) -> Ledger:
    """A ledger that waits for an answer about a payment."""
    ledger = world(policy).ledger()
    ledger.request("a", offset=1)
    assert ledger.written() == ["approval_requested", "job_waiting"]
    return ledger


def key(args: dict[str, Any] = PAID) -> str:
    return key_of("a", args, "pay")


def state(ledger: Ledger, args: dict[str, Any] = PAID) -> KeyState:
    return ledger.job.keys[key(args)]


def respond(
    ledger: Ledger, action: str, by: str = "bob", args: dict[str, Any] = PAID, name: str = "cmd-1", **fields: Any
) -> None:
    command = Respond.model_validate(
        {
            "job_id": JOB,
            **said_by(by),
            "tenant": TENANT,
            "request_id": request_id(JOB, "a", key(args)),
            "action": action,
            "as_of": -1,
        }
        | fields
    )
    ledger.core.hear(command, name, 7)
    ledger.settle()


def test_arguments_of_any_size_are_asked_about_and_what_cant_be_shown_cant_be_edited() -> None:
    large = PAID | {"to": "x" * 600_000}
    ledger = world(plan=pay(args=large)).ledger()
    ledger.request("a", offset=1)
    assert ledger.written() == ["approval_requested", "job_waiting"]
    requested = state(ledger, large).requested
    assert requested is not None
    assert requested.args_hash == args_hash(large)
    assert len(requested.model_dump_json()) < 20_000
    assert requested.form["context"]["arguments"]["to"]["begins"] == "x" * 900
    assert "edit" not in requested.form["actions"]
    respond(ledger, "edit", args=large, data={"amount": 1})
    assert state(ledger, large).decision is None
    respond(ledger, "approve", args=large, name="cmd-2")
    assert len(ledger.grants) == 1


def test_the_request_shows_the_call_and_binds_the_answer_to_it() -> None:
    requested = state(asked()).requested
    assert requested is not None
    assert (requested.args_hash, requested.tool_version, requested.rule) == (args_hash(PAID), "1", "pay")
    assert requested.form["id"] == request_id(JOB, "a", key())
    assert requested.form["context"]["arguments"] == PAID
    fields = {field["name"]: field for field in requested.form["fields"]}
    assert set(fields) == {"to", "amount"}
    assert (fields["amount"]["type"], fields["amount"]["default"], fields["amount"]["max"]) == ("number", 5000, 100_000)


def test_a_yes_is_recorded_with_its_name_and_grants_the_call_once() -> None:
    ledger = asked()
    respond(ledger, "approve", comment="looks right")
    decided = state(ledger).decision
    assert decided is not None
    assert (decided.approver, decided.comment, decided.caused_by) == ("bob", "looks right", "cmd-1")
    assert [grant.idempotency_key for grant in ledger.grants] == [key()]
    ledger.add(started("a", "n1", args=PAID, tool="pay"))
    assert state(ledger).status is KeyStatus.STARTED
    respond(ledger, "approve", name="cmd-2")
    respond(ledger, "reject", name="cmd-3")
    assert ledger.written().count("approval_decided") == 1
    assert len(ledger.grants) == 1


def test_a_no_rejects_the_call_in_the_same_group() -> None:
    ledger = asked()
    respond(ledger, "reject")
    assert ledger.written()[-2:] == ["approval_decided", "invocation_rejected"]
    assert (state(ledger).outcome, state(ledger).reason, state(ledger).sure) == (Settled.REJECTED, "approval", True)
    assert ledger.grants == []


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"by": "ann"}, ""),
        ({"by": "bob", "tenant": "other"}, ""),
        ({"by": "bob"}, 'approvers = ["carol", "finance-*"]\n'),
        ({"by": "ann"}, 'self_approval = true\napprovers = ["carol"]\n'),
    ],
)
def test_who_may_not_decides_nothing(fields: dict[str, Any], rule: str) -> None:
    ledger = asked(PAY + rule)
    respond(ledger, "approve", **fields)
    assert state(ledger).decision is None
    assert ledger.grants == []
    assert ledger.core.open_command() is None


@pytest.mark.parametrize(
    ("by", "rule"), [("ann", "self_approval = true\n"), ("finance-7", 'approvers = ["carol", "finance-*"]\n')]
)
def test_who_may_decides(by: str, rule: str) -> None:
    ledger = asked(PAY + rule)
    respond(ledger, "approve", by=by)
    assert len(ledger.grants) == 1


def test_of_two_answers_at_once_the_first_decides() -> None:
    ledger = asked()
    for name, action, by in (("cmd-1", "approve", "bob"), ("cmd-2", "reject", "carol")):
        command = Respond.model_validate(
            {
                "job_id": JOB,
                **said_by(by),
                "tenant": TENANT,
                "request_id": request_id(JOB, "a", key()),
                "action": action,
                "as_of": -1,
            }
        )
        ledger.core.hear(command, name, 7)
    ledger.settle()
    decided = state(ledger).decision
    assert decided is not None
    assert decided.approver == "bob"
    assert ledger.written().count("approval_decided") == 1
    assert ledger.written().count("invocation_rejected") == 0


def test_an_edit_is_a_new_call_that_needs_an_approval_of_its_own() -> None:
    ledger = asked()
    respond(ledger, "edit", data={"amount": 400})
    less = PAID | {"amount": 400}
    assert (state(ledger).outcome, state(ledger).reason) == (Settled.REJECTED, "edited")
    requested = state(ledger, less).requested
    assert requested is not None
    assert (requested.args_hash, requested.caused_by) == (args_hash(less), "cmd-1")
    assert ledger.grants == []
    assert ledger.job.settled_key("a") is None
    respond(ledger, "approve", name="cmd-2")
    assert ledger.grants == [], "the earlier request is answered"
    respond(ledger, "approve", args=less, name="cmd-3")
    assert ledger.grants == [], "who edited it does not approve it"
    respond(ledger, "approve", by="carol", args=less, name="cmd-4")
    assert [grant.idempotency_key for grant in ledger.grants] == [key(less)]
    assert start_is_void(ledger.job, started("a", "n0", args=PAID, tool="pay")) is not None
    ledger.add(started("a", "n1", args=less, tool="pay"))
    assert state(ledger, less).status is KeyStatus.STARTED


def test_whom_the_rule_lets_approve_his_own_job_approves_his_own_edit() -> None:
    ledger = asked(PAY + "self_approval = true\n")
    respond(ledger, "edit", by="ann", data={"amount": 400})
    less = PAID | {"amount": 400}
    respond(ledger, "approve", by="ann", args=less, name="cmd-2")
    assert [grant.idempotency_key for grant in ledger.grants] == [key(less)]


def test_who_edited_a_call_may_reject_it_or_edit_it_again() -> None:
    ledger = asked()
    respond(ledger, "edit", data={"amount": 400})
    less = PAID | {"amount": 400}
    respond(ledger, "edit", args=less, name="cmd-2", data={"amount": 300})
    least = PAID | {"amount": 300}
    respond(ledger, "reject", args=least, name="cmd-3")
    assert (state(ledger, least).outcome, state(ledger, least).reason) == (Settled.REJECTED, "approval")


@pytest.mark.parametrize("data", [{"amount": 0}, {"amount": "400"}, {"amount": 5000}, {"nobody": 1}, {"to": None}, {}])
def test_an_edit_that_the_pinned_schema_does_not_take_changes_nothing(data: dict[str, Any]) -> None:
    ledger = asked()
    respond(ledger, "edit", data=data)
    assert ledger.written() == ["approval_requested", "job_waiting"]
    respond(ledger, "approve", name="cmd-2")
    assert len(ledger.grants) == 1


def test_an_edit_back_to_what_was_changed_before_is_refused() -> None:
    ledger = asked()
    respond(ledger, "edit", data={"amount": 400})
    changed = PAID | {"amount": 400}
    respond(ledger, "edit", args=changed, name="cmd-2", data={"amount": 5000})
    assert ledger.written().count("approval_requested") == 2
    (reported,) = ledger.core.ignored
    assert (reported.job_id, reported.command_id) == (JOB, "cmd-2")
    assert reported.why.startswith("the step had these arguments before, and that call was edited")
    respond(ledger, "approve", by="carol", args=changed, name="cmd-3")
    assert len(ledger.grants) == 1


@pytest.mark.parametrize(("occurrence", "may"), [(1, False), (2, True)])
def test_an_edit_to_what_an_earlier_job_did_is_refused(occurrence: int, may: bool) -> None:
    """What the job adopted is not done again; its occurrence says that it is meant twice."""
    paid = PAID | {"amount": 400}
    made = world()
    made.log[0] = adopts("p", paid, "pay", occurrence=occurrence)
    ledger = made.ledger()
    ledger.request("a", offset=1)
    respond(ledger, "edit", data={"amount": 400})
    if may:
        assert state(ledger, paid).is_asking
        return
    (reported,) = ledger.core.ignored
    assert reported.why == "p of job-0, which the job continues, did just that"
    assert state(ledger).is_asking
    assert key(paid) not in ledger.job.keys
    respond(ledger, "edit", name="cmd-2", data={"amount": 300})
    assert state(ledger, PAID | {"amount": 300}).is_asking


@pytest.mark.parametrize("how", ["asked for", "edited and approved"])
def test_what_an_earlier_job_did_never_runs_whoever_asked_for_it(how: str) -> None:
    """A request and a yes that a ledger of before, or a forger, has written: the call is rejected by name."""
    made = world()
    made.log[0] = adopts("p", PAID, "pay")
    if how == "edited and approved":
        body: dict[str, Any] = {
            "args": PAID,
            "tool": "pay",
            "args_hash": args_hash(PAID),
            "tool_version": "1",
            "rule": "pay",
        }
        made.log += [
            about(ev.ApprovalRequested, "a", form={}, edited_by="eve", **body),
            about(ev.ApprovalDecided, "a", decision=Decision.APPROVE, approver="bob", **body),
        ]
        made.ids += ["", ""]
    ledger = made.ledger()
    ledger.request("a", offset=1)
    assert ledger.grants == []
    assert (state(ledger).outcome, state(ledger).reason) == (Settled.REJECTED, "duplicate_of")
    assert state(ledger).duplicate_of == DuplicateOf(
        job_id="job-0", node_id="p", execution_id=execution_id("job-0", "p", idempotency_key("job-0", "p", "pay", PAID))
    )


@pytest.mark.parametrize(
    ("action", "fields", "why"),
    [
        ("approve", {"by": "ann"}, "who submitted the job may not approve this: somebody else must"),
        ("reject", {"tenant": "other"}, "the job is another tenant's"),
        ("edit", {"data": {"amount": 0}}, "the answer does not fit the form"),
    ],
)
def test_of_a_word_that_decides_nothing_an_operator_hears(action: str, fields: dict[str, Any], why: str) -> None:
    ledger = asked()
    respond(ledger, action, **fields)
    assert [reported.why for reported in ledger.core.ignored] == [why]
    respond(ledger, "approve", name="cmd-2")
    respond(ledger, "approve", name="cmd-2")  # as a ledger that is started again reads it
    assert len(ledger.grants) == len(ledger.core.ignored) == 1


def test_a_policy_has_its_say_about_what_an_edit_makes() -> None:
    cap = '[[rules]]\nname = "cap"\ntools = ["pay"]\nwhen = "args.amount > 9000"\neffect = "deny"\n'
    ledger = world(cap + PAY).ledger()
    ledger.request("a")
    respond(ledger, "edit", data={"amount": 9001})
    more = state(ledger, PAID | {"amount": 9001})
    assert (more.outcome, more.reason) == (Settled.REJECTED, "policy")
    final = ledger.job.settled_key("a")
    assert final is not None
    assert ledger.grants == []


def test_nobody_answers_and_the_request_expires_also_across_a_restart() -> None:
    ledger = asked(PAY + "expires_s = 60\n")
    ledger.sleep(30)
    assert state(ledger).status is KeyStatus.NONE
    again = ledger.surroundings.ledger()
    again.sleep(29)
    assert state(again).status is KeyStatus.NONE
    again.sleep(2)
    assert (state(again).outcome, state(again).reason) == (Settled.REJECTED, "expired")
    respond(again, "approve")
    assert again.grants == []


def test_an_answer_that_comes_too_late_finds_the_request_expired() -> None:
    ledger = asked(PAY + "expires_s = 60\n")
    ledger.surroundings.now_s += 61
    respond(ledger, "approve")
    assert state(ledger).reason == "expired"
    assert ledger.grants == []


def test_the_yes_in_the_log_outlives_every_ledger() -> None:
    ledger = asked()
    respond(ledger, "approve")
    again = ledger.surroundings.ledger()
    assert [grant.idempotency_key for grant in again.grants] == [key()]


def test_other_arguments_after_a_yes_do_not_run() -> None:
    """The plan changes between the approval and the start: what was approved is not what would run."""
    ledger = asked()
    respond(ledger, "approve")
    more = PAID | {"amount": 9999}
    changed = pay(args=more)
    ledger.add(planned(changed, revision=1))
    ledger.request("a", offset=2, revision=1, plan_hash=digest(changed))
    assert (state(ledger, more).outcome, state(ledger, more).reason) == (Settled.REJECTED, "approval_mismatch")
    assert start_is_void(ledger.job, started("a", "n1", args=PAID, tool="pay")) is not None
    assert start_is_void(ledger.job, started("a", "n1", args=more, tool="pay", revision=1)) is not None
    assert [grant.idempotency_key for grant in ledger.grants] == [key()]


def test_a_yes_for_other_arguments_under_the_same_key_does_not_count() -> None:
    ledger = asked()
    requested = state(ledger).requested
    assert requested is not None
    forged = ev.ApprovalDecided(
        **requested.model_dump(include={"job_id", "node_id", "idempotency_key", "tool_version", "rule"}),
        args_hash=args_hash(PAID | {"amount": 1}),
        decision=Decision.APPROVE,
        approver="eve",
    )
    ledger.add(forged)
    assert state(ledger).reason == "approval_mismatch"
    assert ledger.grants == []


def test_a_plan_that_changed_makes_an_open_request_void() -> None:
    ledger = asked()
    ledger.add(planned(pay(args=PAID | {"amount": 1}), revision=1))
    respond(ledger, "approve")
    assert state(ledger).reason == "approval_mismatch"
    ledger.request("a")
    assert (ledger.grants, ledger.written().count("approval_requested")) == ([], 1), "the step has ended"


def test_what_nobody_has_to_answer_in_time_is_due_no_more_once_a_new_plan_has_been_looked_at() -> None:
    """A request that never expires kept its ledger at work for ever: due at once, again and again."""
    ledger = asked()
    ledger.add(planned(pay({"id": "b", "tool": "pay", "args": PAID | {"amount": 1}}), revision=1))
    assert (ledger.job.revision, state(ledger).is_asking) == (1, True)
    due_s = ledger.core.next_due()
    assert due_s is None or due_s > ledger.surroundings.now_s
    respond(ledger, "approve")
    assert [grant.idempotency_key for grant in ledger.grants] == [key()]


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "restarted"])
def test_what_another_call_of_the_step_takes_the_place_of_is_asked_no_more(restarted: bool) -> None:
    here, other = world(), PAID | {"amount": 1}
    ledger = here.ledger()
    ledger.request("a", offset=1)
    ledger.add(planned(pay(args=other), revision=1))
    assert state(ledger).is_asking, "until the other call is asked for"
    ledger.request("a", offset=2, revision=1, plan_hash=digest(pay(args=other)))
    if restarted:
        at = next(at for at, event in enumerate(here.log) if isinstance(event, ev.InvocationRejected))
        del here.log[at:], here.ids[at:]
        ledger = here.ledger()
    assert (state(ledger).outcome, state(ledger).reason) == (Settled.REJECTED, "cancelled")
    assert state(ledger, other).is_asking


@pytest.mark.parametrize("first", ["approve the earlier", "reject the edited"])
def test_a_refused_call_in_force_ends_a_step_of_which_an_earlier_plans_call_was_approved(first: str) -> None:
    """A ledger that was behind asked about a call that an edit, which it had not read, had replaced."""
    here, other = world(), PAID | {"amount": 1}
    ledger = here.ledger()
    ledger.request("a", offset=1)
    edited = PAID | {"amount": 2}
    respond(ledger, "edit", data={"amount": 2})
    request = next(event for event in here.log if isinstance(event, ev.ApprovalRequested))
    ledger.add(request.model_copy(update={"idempotency_key": key(other), "args_hash": args_hash(other)}))
    answers = [("approve", other), ("reject", edited)]
    for place, (action, args) in enumerate(answers if first.startswith("approve") else reversed(answers)):
        respond(ledger, action, by="cara", args=args, name=f"cmd-{place + 2}")
    assert state(ledger, edited).reason == ("approval_mismatch" if first.startswith("approve") else "approval")
    assert (state(ledger, other).outcome, state(ledger, other).reason) == (Settled.REJECTED, "cancelled")
    assert ledger.job.settled_key("a") is not None
    assert ledger.grants == []


def test_after_a_stop_no_answer_counts() -> None:
    ledger = asked()
    ledger.add(ev.JobStopping(job_id=JOB, by="ann", reason="enough", up_to_revision=0))
    respond(ledger, "approve")
    assert state(ledger).decision is None
    assert ledger.grants == []


FORM = {"title": "Which way?", "fields": [{"name": "way", "type": "select", "label": "Way", "required": True,
        "options": [{"value": "left", "label": "Left"}, {"value": "right", "label": "Right"}]}]}  # fmt: skip


def form_asked(**wait: Any) -> tuple[Ledger, str]:
    node = {"id": "a", "kind": "human", "tool": None, "form": FORM, "args": {"order": "o-1"}}
    plan = graph(node | ({"wait": wait} if wait else {}))
    ledger = Surroundings(plan, Policy([])).ledger()
    ledger.request("a")
    waiting = ledger.surroundings.log[-1]
    assert isinstance(waiting, ev.JobWaiting)
    assert waiting.form is not None
    assert waiting.form["context"]["arguments"] == {"order": "o-1"}
    return ledger, str(waiting.form["id"])


def fill(ledger: Ledger, request: str, action: str, **data: Any) -> None:
    fields: dict[str, Any] = {
        "comment": f"why {action}",
        "job_id": JOB,
        "by": "bob",
        "tenant": TENANT,
        "request_id": request,
        "action": action,
        "data": data,
        "as_of": -1,
    }
    ledger.core.hear(Respond.model_validate(fields), "cmd-1", 7)
    ledger.settle()


def test_a_form_of_the_plan_ends_with_what_the_human_said() -> None:
    ledger, request = form_asked()
    fill(ledger, request, "approve", way="up")
    fill(ledger, request, "approve")
    fill(ledger, request, "edit", way="left")
    assert ledger.written() == ["job_waiting"]
    assert [reported.why for reported in ledger.core.ignored] == ["the answer does not fit the form"] * 3
    fill(ledger, request, "approve", way="left")
    fill(ledger, request, "approve", way="right")
    assert ledger.written() == ["job_waiting", "wait_completed"]
    done = ledger.surroundings.log[-1]
    assert isinstance(done, ev.WaitCompleted)
    assert (done.payload, done.by, done.comment) == ({"way": "left"}, "bob", "why approve")
    ledger.add(ev.JobCompleted(job_id=JOB, result={}))
    assert ledger.written() == ["job_waiting", "wait_completed"], "an answered form is not called off by the job's end"


def test_a_form_may_be_refused_and_may_expire() -> None:
    ledger, request = form_asked()
    fill(ledger, request, "reject")
    refused = ledger.surroundings.log[-1]
    assert isinstance(refused, ev.InvocationRejected)
    assert (refused.by, refused.comment) == ("bob", "why reject")
    late, request = form_asked(timeout_s=10)
    late.sleep(11)
    fill(late, request, "approve", way="left")
    assert late.written() == ["job_waiting", "invocation_rejected"]
