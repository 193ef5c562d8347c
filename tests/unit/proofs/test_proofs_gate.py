"""The gate as the proofs see it: whose word counted, by the rule that the log has; two verifiers agree."""

import hashlib
from typing import Any

import pytest

from aetheris.protocol.base.keys import args_hash, idempotency_key
from tests.testkit.proof_histories import TENANT, A, Log, node, tool
from tests.testkit.standalone import verified

RULES: list[tuple[dict[str, Any], dict[str, list[str]]]] = [
    ({"rule": "r"}, {"me": ["self_approval"], "ann": []}),
    ({"rule": "r", "self_approval": True}, {"me": [], "ann": []}),
    ({"rule": "r", "approvers": ["fin-*"]}, {"me": ["not_an_approver", "self_approval"], "fin-1": []}),
    (
        {"rule": "r", "approvers": ["fin-*"], "self_approval": True},
        {"me": ["not_an_approver"], "ann": ["not_an_approver"]},
    ),
]
CASES = [(rule, who, broken) for rule, cases in RULES for who, broken in cases.items()]


def rules(log: Log) -> list[str]:
    return sorted(one.rule for one in verified(log.records).violations)


def parked(**rule: Any) -> Log:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.about("policy_allowed", **{"tool_version": "1", "args_hash": A.args_hash, "rule": "r"} | rule)
    log.start("n1")
    log.about("invocation_parked", "n1", reason="nobody knows")
    return log


def retry(log: Log, by: str, invocation_id: str = "n1") -> None:
    log.reopen(invocation_id, "human", evidence=[{"by": by, "evidence": "their list"}])


def approve(log: Log, token: int, who: str = "ann") -> None:
    log.ask(token=token)
    log.decide("approve", token=token, approver=who)


@pytest.mark.parametrize(("rule", "who", "broken"), CASES)
@pytest.mark.parametrize("verdict", ["retry", "happened", "not_executed"])
def test_who_resolves_is_judged_by_the_rule_that_was_recorded(
    verdict: str, rule: dict[str, Any], who: str, broken: list[str]
) -> None:
    log = parked(**rule)
    if verdict == "retry":
        retry(log, who)
    elif verdict == "happened":
        log.finish("n1", via="human", by=who, evidence="seen")
    else:
        log.permanent("n1", "human", by=who, evidence="seen")
    assert rules(log) == broken


def test_whom_the_request_for_its_approval_named_says_it_before_whom_the_policy_named() -> None:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask(approvers=["bob"])
    log.about("policy_allowed", tool_version="1", args_hash=A.args_hash, rule="r", approvers=["ann"])
    log.decide("approve", approver="bob")
    log.start("n1")
    log.about("invocation_parked", "n1", reason="nobody knows")
    retry(log, "ann")
    assert rules(log) == ["not_an_approver"]


PERSON = {"id": "ann", "kind": "person", "roles": [], "tenant": TENANT}


@pytest.mark.parametrize(
    ("by", "principal", "broken"),
    [("me", None, ["self_approval"]), ("ann", None, []), ("ann", PERSON | {"kind": "agent"}, [])],
)
def test_of_a_call_that_was_not_judged_by_itself_anybody_else_says_it(
    by: str, principal: dict[str, Any] | None, broken: list[str]
) -> None:
    log = Log(node("a"), tools={"refund": tool("opaque")})
    log.start("n1", rule="r")
    log.about("invocation_parked", "n1", reason="nobody knows", approvers=["nobody"], approver_kinds=["service"])
    log.permanent("n1", "human", by=by, evidence="seen", principal=principal)
    assert rules(log) == broken


@pytest.mark.parametrize("irreversible", [True, False])
def test_nobody_changes_whom_the_log_names_while_the_call_is_in_flight(irreversible: bool) -> None:
    """Nor by another word of the policy's behind the start, nor by a second one before it."""
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=irreversible)})
    word: dict[str, Any] = {"tool_version": "1", "args_hash": A.args_hash}
    if irreversible:
        log.about("policy_allowed", **word, rule="r", approvers=["bob"])
        log.about("policy_allowed", **word, rule="later", approvers=["ann"])
    log.start("n1")
    log.about("policy_allowed", **word, rule="later", approvers=["carol"])
    log.about("invocation_parked", "n1", reason="nobody knows")
    log.permanent("n1", "human", by="ann", evidence="seen", principal=PERSON)
    assert rules(log) == (["not_an_approver"] if irreversible else [])


def test_anybody_may_cancel_what_waits() -> None:
    log = parked(rule="r")
    log.permanent("n1", "human", by="me", error="cancelled")
    assert rules(log) == []


def test_a_word_that_came_too_late_is_none() -> None:
    log = parked(rule="r")
    log.permanent("n1", "human", by="ann")
    retry(log, "me")
    report = verified(log.records)
    assert ([one.rule for one in report.violations], report.reopened_by_hand) == ([], ())


def test_every_reopening_by_a_person_is_named() -> None:
    log = parked(rule="r")
    for number in (1, 2, 3):
        retry(log, "ann", f"n{number}")
        approve(log, number + 1, "bob")
        log.start(f"n{number + 1}", token=number + 1)
        log.about("invocation_parked", f"n{number + 1}", reason="nobody knows")
    report = verified(log.records)
    assert report.violations == ()
    assert [(one["by"], one["token"], one["evidence"]) for one in report.to_json()["reopened_by_hand"]] == [
        ("ann", token, "their list") for token in (2, 3, 4)
    ]


@pytest.mark.parametrize("yes", [None, {"token": 1}, {"token": 3}, {"approver": "me", "token": 2}])
def test_a_retry_without_an_approval_of_its_own_did_not_start(yes: dict[str, Any] | None) -> None:
    log = parked(rule="r")
    retry(log, "ann")
    if yes is not None:
        log.ask(token=2)
        log.decide("approve", **{"approver": "bob", **yes})
    log.start("n2", token=2)
    log.finish("n2")
    own = yes is not None and yes.get("approver") == "me"
    assert rules(log) == (["self_approval"] if own else ["success_without_valid_start"])


def test_the_policys_word_lets_no_retry_start() -> None:
    log = parked(rule="r")
    retry(log, "ann")
    log.about("policy_allowed", tool_version="1", args_hash=A.args_hash, rule="r")
    log.start("n2", token=2)
    log.finish("n2")
    assert rules(log) == ["success_without_valid_start"]


def edited(approver: str, *, recorded: bool = True, editor: str = "bob", **rule: Any) -> Log:
    """A call whose account somebody changed, and who approved that."""
    changed = {"account": "bob's"}
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask()
    log.decide("edit", approver=editor, data=changed)
    by = {"edited_by": editor} if recorded else {}
    key = idempotency_key(log.job, "a", "refund", changed)
    form = log.form()
    form["context"]["arguments"] = changed
    log.ask(key=key, args_hash=args_hash(changed), form=form, **by, **rule)
    log.about("invocation_rejected", reason="edited")
    log.decide("approve", key=key, args_hash=args_hash(changed), approver=approver)
    return log


@pytest.mark.parametrize("recorded", [True, False])
def test_an_editor_who_approves_his_own_edit_is_found_whether_or_not_it_is_recorded(recorded: bool) -> None:
    assert rules(edited("bob", recorded=recorded)) == ["own_edit"]
    assert rules(edited("ann", recorded=recorded)) == []
    assert rules(edited("bob", recorded=recorded, self_approval=True)) == []


@pytest.mark.parametrize(("rule", "who", "broken"), CASES)
def test_who_accepts_what_could_not_be_confirmed_is_judged_likewise(
    rule: dict[str, Any], who: str, broken: list[str]
) -> None:
    log = Log(node("a"))
    log.add("job_waiting", wait_type="confirmation", correlation_key="confirm-4", **rule)
    log.add("wait_completed", wait_type="confirmation", correlation_key="confirm-4", by=who)
    log.add("wait_completed", wait_type="confirmation", correlation_key="confirm-4", by="me")
    assert rules(log) == broken


WHO: dict[str, Any] = {"kind": "person", "roles": ["approve"], "tenant": TENANT}
BOUND = {"args_hash": A.args_hash, "tool_version": "1", "rule": "r"}
ASKS_PERSONS = {"approver_kinds": ["person"]}
ASKS_ROLE = {"approver_roles": ["approve", "audit"]}


@pytest.mark.parametrize(
    ("rule", "said", "is_fine"),
    [
        (ASKS_PERSONS, {"id": "ann", **WHO}, True),
        (ASKS_PERSONS, {"id": "ann", **WHO, "kind": "agent"}, False),
        (ASKS_PERSONS, None, False),
        (ASKS_ROLE, {"id": "ann", **WHO}, True),
        (ASKS_ROLE, {"id": "ann", **WHO, "roles": ["submit"]}, False),
        (ASKS_ROLE, None, False),
        ({}, None, True),
        ({}, {"id": "bob", **WHO}, False),
        ({}, {"id": "ann", **WHO, "tenant": "other"}, False),
    ],
)
@pytest.mark.parametrize("word", ["decided", "retry", "happened", "accepted"])
def test_what_decides_must_be_what_the_rule_asks_for(
    word: str, rule: dict[str, Any], said: dict[str, Any] | None, is_fine: bool
) -> None:
    log = parked(rule="r", **rule)
    if word == "decided":
        log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
        log.ask(**rule)
        log.decide("approve", approver="ann", principal=said)
    elif word == "retry":
        log.reopen("n1", "human", evidence=[{"by": "ann"}], principal=said)
    elif word == "happened":
        log.finish("n1", via="human", by="ann", evidence="seen", principal=said)
    else:
        log.add("job_waiting", wait_type="confirmation", correlation_key="c-4", rule="r", **rule)
        log.add("wait_completed", wait_type="confirmation", correlation_key="c-4", by="ann", principal=said)
    assert rules(log) == ([] if is_fine else ["not_an_approver"])


def voted(*voters: str, names: list[str] | None = None, **rule: Any) -> Log:
    """A call that two must approve, and who did."""
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask(approvals=2, **ASKS_PERSONS, **rule)
    for who in voters:
        vote(log, who)
    last = {"id": voters[-1], **WHO, "kind": "agent" if voters[-1] == "robot" else "person"}
    log.decide("approve", approver=voters[-1], principal=last, votes=names or list(dict.fromkeys(voters)))
    return log


def vote(log: Log, who: str, **fields: Any) -> None:
    said = {"id": who, **WHO, "kind": "agent" if who == "robot" else "person"}
    body: dict[str, Any] = {**BOUND, "approver": who, "principal": said} | fields
    log.about("approval_voted", **body)


def test_two_votes_of_different_persons_are_two() -> None:
    assert rules(voted("ann", "bob")) == []
    assert rules(voted("ann", "robot", "bob", "ann", "bob")) == []


@pytest.mark.parametrize(
    ("log", "broken"),
    [
        (voted("bob", "bob"), []),
        (voted("bob", "bob", names=["bob", "carol"]), []),
        (voted("robot", "bob"), []),
        (voted("me", "bob"), []),
        (voted("carol", "bob", edited_by="carol"), []),
        (voted("carol", "bob", approvers=["bob"]), []),
        (voted("carol", "bob", names=["bob"]), []),
        (voted("bob", "robot"), ["not_an_approver"]),
    ],
)
def test_a_yes_without_as_many_votes_is_found(log: Log, broken: list[str]) -> None:
    assert rules(log) == [*broken, "votes_missing"]


@pytest.mark.parametrize("fields", [{"args_hash": "args-other"}, {"tool_version": "2"}, {"token": 2}, {"rule": "q"}])
def test_a_vote_about_something_else_counts_for_nothing(fields: dict[str, Any]) -> None:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    vote(log, "dan")
    log.ask(approvals=2)
    vote(log, "carol", **fields)
    vote(log, "bob")
    log.decide("approve", approver="bob", votes=["bob", "carol", "dan"])
    assert rules(log) == ["votes_missing"]


def test_one_no_decides_whoever_said_yes() -> None:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask(approvals=3)
    vote(log, "bob")
    log.decide("reject", approver="carol")
    assert rules(log) == []


@pytest.mark.parametrize(
    ("said", "broken"),
    [
        ({}, []),
        ({"roles": ["approve"]}, ["not_an_approver"]),
        ({"kind": "agent"}, ["not_an_approver"]),
        ({"tenant": "other"}, ["not_an_approver"]),
        ({"id": "carol"}, ["not_an_approver"]),
        ({"breaks_glass": False}, ["not_an_approver", "not_an_approver", "votes_missing"]),
    ],
)
def test_who_decides_alone_in_an_emergency_must_be_one_who_may_and_is_listed(
    said: dict[str, Any], broken: list[str]
) -> None:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask(approvals=3, approvers=["carol"], approver_kinds=["service"])
    principal = {"id": "bob", **WHO, "roles": ["break_glass"], "breaks_glass": True} | said
    log.decide("approve", approver="bob", principal=principal)
    report = verified(log.records)
    assert sorted(one.rule for one in report.violations) == broken
    listed = [(one["what"], one["node_id"], one["by"]) for one in report.to_json()["glass_broken"]]
    assert listed == ([("approval_decided", "a", principal["id"])] if principal["breaks_glass"] else [])


def test_who_submitted_the_job_breaks_no_glass_of_it() -> None:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask()
    principal = {"id": "me", **WHO, "roles": ["break_glass"], "breaks_glass": True}
    log.decide("approve", approver="me", principal=principal)
    assert rules(log) == ["self_approval"]


LENT = {"principal": "carol", "until": "2026-01-02T00:00:00Z", "at": "2026-01-01T23:59:59Z"}


@pytest.mark.parametrize(
    ("who", "delegation", "rule", "broken"),
    [
        ("bob", LENT, {"approvers": ["carol"]}, []),
        ("bob", LENT, {"approvers": ["bob"]}, ["not_an_approver"]),
        ("bob", LENT | {"at": LENT["until"]}, {}, ["not_an_approver"]),
        ("bob", LENT | {"at": "soon"}, {}, ["not_an_approver"]),
        ("bob", LENT | {"until": None}, {}, ["not_an_approver"]),
        ("bob", LENT | {"principal": "me"}, {}, ["self_approval"]),
        ("bob", LENT, {"edited_by": "carol"}, ["own_edit"]),
        ("bob", LENT, {"edited_by": "bob"}, ["own_edit"]),
    ],
)
def test_who_decides_in_anothers_place_is_judged_as_both(
    who: str, delegation: dict[str, Any], rule: dict[str, Any], broken: list[str]
) -> None:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask(**rule)
    log.decide("approve", approver=who, principal={"id": who, **WHO, "delegation": delegation})
    assert rules(log) == broken


@pytest.mark.parametrize(("second", "broken"), [("dan", []), ("carol", ["votes_missing"])])
def test_two_votes_in_one_persons_place_are_one(second: str, broken: list[str]) -> None:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask(approvals=2, **ASKS_PERSONS)
    vote(log, "bob", principal={"id": "bob", **WHO, "delegation": LENT})
    vote(log, second)
    log.decide("approve", approver=second, principal={"id": second, **WHO}, votes=["bob", second])
    assert rules(log) == broken


TWO_MUST: dict[str, Any] = {"rule": "r", "approvals": 2}


def said(log: Log, who: str, verdict: str = "happened", about: str = "n1", **fields: Any) -> None:
    principal = {"id": who, **WHO, "kind": "agent" if who == "robot" else "person"}
    body: dict[str, Any] = {"verdict": verdict, "by": who, "principal": principal, "as_of": last_offset(log)} | fields
    log.about("resolution_voted", about, **body)


def last_offset(log: Log) -> int:
    return log.records[-1].offset


def settled_by(
    *voters: str, verdict: str = "happened", names: list[str] | None = None, votes: dict[str, Any] | None = None
) -> Log:
    """A call that was parked, and settled where two must say how it ended."""
    log = parked(**TWO_MUST, approver_kinds=["person"])
    for who in voters:
        word: dict[str, Any] = {"verdict": verdict, "output_hash": HASHES[verdict]} | (votes or {})
        said(log, who, **word)
    end(log, verdict, names if names is not None else list(voters))
    return log


def end(log: Log, verdict: str, names: list[str], **said_by: Any) -> None:
    body: dict[str, Any] = {
        "by": "ann",
        "evidence": "seen",
        "votes": names,
        "principal": {"id": "ann", **WHO},
    } | said_by
    if verdict == "happened":
        log.finish("n1", via="human", result=None, **body)
    else:
        log.permanent("n1", "human", **body)


HASHES = {"happened": hashlib.sha256(b"null").hexdigest(), "not_executed": None}


@pytest.mark.parametrize("verdict", ["happened", "not_executed"])
def test_what_two_say_of_a_call_may_settle_it(verdict: str) -> None:
    assert rules(settled_by("ann", "bob", verdict=verdict)) == []
    assert rules(settled_by("robot", "bob", "ann", verdict=verdict)) == []


@pytest.mark.parametrize("verdict", ["happened", "not_executed"])
@pytest.mark.parametrize(
    ("voters", "names", "fields"),
    [
        ([], ["ann", "bob"], {}),
        (["ann"], ["ann", "bob"], {}),
        (["ann", "ann"], None, {}),
        (["ann", "robot"], None, {}),
        (["ann", "me"], None, {}),
        (["ann", "bob"], ["ann"], {}),
        (["ann", "bob"], None, {"about": "n2"}),
        (["ann", "bob"], None, {"verdict": "accepted"}),
        (["ann", "bob"], None, {"output_hash": "00"}),
    ],
)
def test_a_settlement_by_too_few_is_found(
    verdict: str, voters: list[str], names: list[str] | None, fields: dict[str, Any]
) -> None:
    assert rules(settled_by(*voters, verdict=verdict, names=names, votes=fields)) == ["votes_missing"]


def test_who_has_changed_his_mind_has_not_settled_it() -> None:
    log = parked(**TWO_MUST)
    for who, verdict in (("ann", "not_executed"), ("bob", "not_executed"), ("bob", "happened")):
        said(log, who, verdict)
    end(log, "not_executed", ["ann", "bob"])
    assert rules(log) == ["votes_missing"]


@pytest.mark.parametrize("first", ["happened", "not_executed"])
def test_a_repeat_of_what_somebody_has_taken_back_is_no_word(first: str) -> None:
    """Whoever makes the ledger say it again, the repeat was said before the last word."""
    second = "not_executed" if first == "happened" else "happened"
    log = parked(**TWO_MUST)
    before = last_offset(log)
    said(log, "bob", first, output_hash=HASHES[first])
    said(log, "bob", second, output_hash=HASHES[second])
    said(log, "ann", first, output_hash=HASHES[first])
    for as_of in (before, before + 1, None, "9", True):
        said(log, "bob", first, output_hash=HASHES[first], as_of=as_of)
    end(log, first, ["ann", "bob"])
    assert rules(log) == ["votes_missing"]


def test_what_somebody_repeats_does_not_make_his_next_word_late() -> None:
    log = parked(**TWO_MUST)
    said(log, "bob", "not_executed")
    read = last_offset(log)
    said(log, "bob", "not_executed")
    said(log, "bob", "happened", output_hash=HASHES["happened"], as_of=read)
    said(log, "ann", "happened", output_hash=HASHES["happened"])
    end(log, "happened", ["ann", "bob"])
    assert rules(log) == []


def test_one_may_end_it_in_an_emergency() -> None:
    log = parked(**TWO_MUST)
    alarmed = {"id": "ann", **WHO, "kind": "person", "roles": ["break_glass"], "breaks_glass": True}
    end(log, "happened", [], principal=alarmed)
    assert rules(log) == []


@pytest.mark.parametrize(
    ("voters", "key", "broken"),
    [(["ann", "bob"], "c-4", []), (["ann"], "c-4", ["votes_missing"]), (["ann", "bob"], "c-3", ["votes_missing"])],
)
def test_what_could_not_be_confirmed_is_accepted_by_as_many(voters: list[str], key: str, broken: list[str]) -> None:
    log = parked(rule="r")
    log.add("job_waiting", wait_type="confirmation", correlation_key="c-4", **TWO_MUST)
    for who in voters:
        log.add("resolution_voted", verdict="accepted", correlation_key=key, by=who, principal={"id": who, **WHO})
    body: dict[str, Any] = {"by": voters[-1], "principal": {"id": voters[-1], **WHO}, "votes": ["ann", "bob"]}
    log.add("wait_completed", wait_type="confirmation", correlation_key="c-4", **body)
    assert rules(log) == broken
