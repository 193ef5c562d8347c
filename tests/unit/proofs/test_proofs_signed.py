"""Where a rule asks for signatures, for the proofs and the script: that the log says who said yes is not enough."""

from dataclasses import replace
from typing import Any

import pytest

from aetheris.proofs import bundle
from aetheris.proofs.approver_signatures import read_signers
from aetheris.protocol.planning.approval_text import ApprovalText, SignedRequest
from aetheris.protocol.planning.approvals import request_id
from tests.testkit import standalone
from tests.testkit.evidence import TRUSTED, redacted_of, sealed
from tests.testkit.passkeys import Passkey
from tests.testkit.proof_histories import JOB, TENANT, A, Log, digest, node, tool
from tests.testkit.ssh_keys import SshSigner
from tests.testkit.standalone import verified

KEYS = {name: SshSigner(seed) for seed, name in enumerate(("ann", "bob", "mallory"), start=1)}
SIGNERS = KEYS["ann"].line("ann") + KEYS["bob"].line("bob")
TIME = "2030-06-01T12:00:00+00:00"
BOUND = {"args_hash": A.args_hash, "tool_version": "1", "rule": "r"}
RULE = {"signed": True, "policy_hash": "p"}


def asked(**rule: Any) -> Log:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask(**RULE, **rule)
    return log


def text(by: str, decision: Any = "approve", approvals: int = 1, **more: Any) -> ApprovalText:
    request = SignedRequest(
        installation=None,
        tenant=TENANT,
        job=JOB,
        step="a",
        request=request_id(JOB, "a", A.key),
        tool="refund",
        policy_hash="p",
        approvals=approvals,
        **BOUND,
    )
    return ApprovalText(asked=request, approver=by, decision=decision, **more)


def signature(said: ApprovalText, by: str) -> dict[str, str]:
    return {"key": KEYS[by].fingerprint, "armored": KEYS[by].sign(said.encoded())}


def rules(log: Log, signers: str | None = SIGNERS, time: str = TIME) -> list[str]:
    records = [replace(one, headers=(*one.headers, ("ce_time", time.encode()))) for one in log.records]
    return sorted(one.rule for one in verified(records, signers=signers).violations)


def decided(by: str = "ann", decision: str = "approve", signed: dict[str, str] | None = None, **more: Any) -> Log:
    log = asked()
    log.decide(decision, approver=by, **({"signature": signed} if signed is not None else {}), **more)
    return log


def test_a_signed_yes_holds_with_signers_and_without() -> None:
    log = decided(signed=signature(text("ann"), "ann"))
    assert (rules(log), rules(log, None)) == ([], [])


def test_a_passkey_signs_as_an_ssh_key_does() -> None:
    own, other = Passkey(1), Passkey(2)
    signers = SIGNERS + own.line("ann")

    def by(key: Passkey, said: ApprovalText, **otherwise: Any) -> Log:
        return decided(signed={"key": key.fingerprint, "armored": key.sign(said.encoded(), **otherwise)})

    good, foreign = by(own, text("ann")), by(other, text("ann"))
    assert (rules(good, signers), rules(good, None), rules(good)) == ([], [], ["foreign_signature"])
    assert (rules(foreign, signers), rules(foreign, None)) == (["foreign_signature"], [])
    for wrong in (
        by(own, text("ann", "reject")),
        by(own, text("ann"), flags=1),
        by(own, text("ann"), origin=b"https://evil.example"),
        by(own, text("ann"), tail=b',"crossOrigin":true}'),
        decided(signed={"key": other.fingerprint, "armored": own.sign(text("ann").encoded())}),
    ):
        assert (rules(wrong, signers), rules(wrong, None)) == (["not_signed"], ["not_signed"])


def test_about_a_key_that_holds_half_a_pair_nothing_can_be_signed() -> None:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask(key="\ud800", **RULE)
    log.decide("approve", key="\ud800", signature=signature(text("ann"), "ann"))
    assert "undecodable" in rules(log)


def test_a_signature_is_nobody_elses_yes_whatever_is_recorded_beside_it() -> None:
    """It does not say in whose place: who runs the system could have written that."""
    lent = {"principal": "zoe", "until": "2099-01-01T00:00:00Z", "at": "2030-01-01T00:00:00Z"}
    who = {"id": "ann", "kind": "person", "roles": ["approve"], "delegation": lent}
    log = asked(approvers=["zoe"])
    log.decide("approve", approver="ann", signature=signature(text("ann"), "ann"), principal=who)
    assert rules(log) == ["not_signed"]


@pytest.mark.parametrize("decision", ["approve", "reject", "edit"])
def test_a_decision_without_a_signature_is_found_whoever_checks(decision: str) -> None:
    for signers in (SIGNERS, None):
        assert rules(decided(decision=decision), signers) == ["not_signed"]
        assert rules(decided(decision=decision, signed={"key": "SHA256:x", "armored": "x"}), signers) == ["not_signed"]


def test_what_an_operator_signs_himself_is_found_by_who_knows_the_signers() -> None:
    forged = decided(signed=signature(text("ann"), "mallory"))
    assert (rules(forged), rules(forged, None)) == (["foreign_signature"], [])
    of_bob = decided(signed=signature(text("ann"), "bob"))
    assert rules(of_bob) == ["foreign_signature"]
    named = decided(signed=signature(text("ann"), "mallory") | {"key": KEYS["ann"].fingerprint})
    assert (rules(named), rules(named, None)) == (["not_signed"], ["not_signed"])


@pytest.mark.parametrize(
    "said",
    [
        text("bob"),
        text("ann", "reject"),
        text("ann", approvals=2),
        text("ann", break_glass=True),
        text("ann", data_hash="x"),
        *(
            replace(text("ann"), asked=replace(text("ann").asked, **{name: "x"}))
            for name in (
                "installation",
                "tenant",
                "job",
                "step",
                "request",
                "tool",
                "tool_version",
                "args_hash",
                "rule",
            )
        ),
        replace(text("ann"), asked=replace(text("ann").asked, policy_hash=None)),
    ],
)
def test_a_signature_of_anything_else_is_none(said: ApprovalText) -> None:
    assert rules(decided(signed=signature(said, "ann"))) == ["not_signed"]


def test_a_signature_counts_at_the_time_that_its_record_has() -> None:
    log = decided(signed=signature(text("ann"), "ann"))
    ended = KEYS["ann"].line("ann", 'valid-before="20300601Z"')
    assert rules(log, ended) == ["foreign_signature"]
    assert rules(log, ended, "2030-05-31T12:00:00+00:00") == []
    assert rules(log, ended, "at noon") == ["foreign_signature"]
    assert rules(log, ended, "2030-05-31T12:00:00") == ["foreign_signature"]


def test_an_edit_is_signed_for_the_arguments_that_it_makes() -> None:
    data = {"amount": 4}
    good = signature(text("ann", "edit", data_hash=digest(data)), "ann")
    assert rules(decided(decision="edit", signed=good, data=data)) == []
    assert rules(decided(decision="edit", signed=good, data={"amount": 40})) == ["not_signed"]


def voted(*votes: tuple[str, str], names: list[str] | None = None) -> Log:
    """(who, whose key signed), and a decision that names them all."""
    log = asked(approvals=2)
    for who, key in votes:
        said: dict[str, Any] = {"signature": signature(text(who, approvals=2), key)} if key else {}
        log.about("approval_voted", **BOUND, approver=who, **said)
    last, key = votes[-1]
    said = {"signature": signature(text(last, approvals=2), key)} if key else {}
    log.decide("approve", approver=last, votes=names or [who for who, _ in votes], **said)
    return log


def test_votes_are_signed_each_by_a_key_of_its_own() -> None:
    assert rules(voted(("ann", "ann"), ("bob", "bob"))) == []
    assert rules(voted(("bob", ""), ("ann", "ann"), ("bob", "bob"))) == [], "a forged one stands in nobody's way"
    assert rules(voted(("bob", ""), ("ann", "ann"))) == ["votes_missing"]
    assert rules(voted(("bob", "mallory"), ("ann", "ann"))) == ["votes_missing"]
    assert rules(voted(("ann", "ann"), ("ann", "ann"))) == ["votes_missing"]
    both = KEYS["ann"].line("ann,bob")
    assert rules(voted(("bob", "ann"), ("ann", "ann")), both) == ["votes_missing"], "one key, one vote"
    assert rules(voted(("ann", ""), ("bob", ""))) == ["not_signed", "votes_missing"]


def test_an_emergency_is_signed_as_one() -> None:
    said = {"id": "ann", "kind": "person", "roles": ["break_glass"], "tenant": TENANT, "breaks_glass": True}
    alone = signature(text("ann", break_glass=True), "ann")
    assert rules(decided(signed=alone, principal=said)) == []
    assert rules(decided(signed=signature(text("ann"), "ann"), principal=said)) == ["not_signed"]


@pytest.mark.parametrize("verdict", ["retry", "happened", "not_executed"])
def test_what_became_of_a_call_is_a_word_that_cannot_be_signed(verdict: str) -> None:
    log = decided(signed=signature(text("ann"), "ann"))
    log.start("n1")
    log.about("invocation_parked", "n1", reason="nobody knows")
    if verdict == "retry":
        log.reopen("n1", "human", evidence=[{"by": "ann", "evidence": "seen"}])
    elif verdict == "happened":
        log.finish("n1", via="human", by="ann", evidence="seen")
    else:
        log.permanent("n1", "human", by="ann", evidence="seen")
    assert rules(log) == ([] if verdict == "retry" else ["not_signed"])


def test_what_could_not_be_confirmed_is_not_accepted_unsigned() -> None:
    for signed, broken in ((True, ["not_signed"]), (None, [])):
        log = Log(node("a"))
        named = {"wait_type": "confirmation", "correlation_key": "confirm-1"}
        rule: dict[str, Any] = {"signed": True} if signed else {}
        log.add("job_waiting", **named, rule="r", **rule)
        log.add("wait_completed", **named, by="ann")
        assert rules(log) == broken


def test_the_report_lists_what_was_signed_and_whose_key_it_was() -> None:
    log = decided(signed=signature(text("ann"), "mallory"))
    records = [replace(one, headers=(*one.headers, ("ce_time", TIME.encode()))) for one in log.records]
    for signers, known in ((None, None), (SIGNERS, False), (KEYS["mallory"].line("ann"), True)):
        (word,) = verified(records, signers=signers).to_json()["signed"]
        found = (word["what"], word["node_id"], word["by"], word["key"], word["known"], word["said_at"])
        assert found == ("approval_decided", "a", "ann", KEYS["mallory"].fingerprint, known, TIME)


def test_an_unsigned_rule_asks_for_nothing() -> None:
    log = Log(node("a"), tools={"refund": tool("opaque", irreversible=True)})
    log.ask()
    log.decide("approve", approver="ann")
    assert rules(log) == []


@pytest.mark.parametrize(("by", "broken"), [("ann", []), ("mallory", ["foreign_signature"])])
def test_of_a_redacted_bundle_signatures_are_held_against_the_signers_too(by: str, broken: list[str]) -> None:
    log = decided(signed=signature(text("ann"), by))
    log.start("n1")
    log.finish("n1")
    log.done()
    log.add("decision_snapshot", goal="x", task_graph={}, command_id="a")
    log.complete()
    records = [replace(one, headers=(*one.headers, ("ce_time", TIME.encode()))) for one in log.records]
    log.records[:] = records
    data = redacted_of(sealed(log).records, audience="auditor")
    script, keys = standalone.verify, {key.key_id: standalone.verify.Key(key.to_json()) for key in TRUSTED}
    own = bundle.judge(data, TRUSTED, read_signers(SIGNERS.encode()), whole=False)
    other = script.check_bundle(data, keys, None, script.read_signers(SIGNERS.encode()))
    for said in (own, other):
        assert (said["redacted"]["rules_checked"], said["ok"]) == (True, not broken)
        assert [one["rule"] for one in said["violations"]] == broken
