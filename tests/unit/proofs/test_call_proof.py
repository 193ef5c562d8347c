"""One call of a sealed job is shown by itself: with what was asked for, and no other part of it."""

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from aetheris.proofs import call_proof
from aetheris.proofs.call_proof import AskedCall, hidden_among, make, with_openings
from aetheris.proofs.disclosures import Disclosure
from aetheris.proofs.evidence import BadEvidence, judge
from aetheris.proofs.sealed_leaves import BadRecordProof
from aetheris.proofs.trust import TrustedKey, keys_of
from aetheris.proofs.witnesses import LogPolicy, read_log_policy
from aetheris.protocol.base.hidden_values import hidden, salt_of
from tests.testkit import standalone
from tests.testkit.evidence import (
    OTHER_KEY,
    SEALED_AT,
    TRUSTED,
    amend,
    checked,
    inclusion,
    redacted_of,
    seal,
    sealed,
    violations,
)
from tests.testkit.proof_histories import JOB, TENANT, Log, node

SUBJECT_KEY, K = bytes(range(32)), "0" * 32
EMAIL = hidden(SUBJECT_KEY, K, TENANT, JOB, "ann@example.org").json()
OPENING = {
    "c": EMAIL["$hidden"]["c"],
    "salt": salt_of(SUBJECT_KEY, TENANT, JOB, "ann@example.org").hex(),
    "value": "ann@example.org",
}
ARGS = {"amount": 250, "customer": "c-17", "email": EMAIL}
LASTING = ARGS | {"email": {"$hidden": {name: EMAIL["$hidden"][name] for name in ("d", "k")}}}
"""Without what is of the one job."""
OTHERS = ("another-secret", "what-b-came-to", "a-note")
"""Payloads that no call of this file asks for."""


def history(**finished: Any) -> Log:
    log = Log(
        node("a", args=ARGS),
        node("b", "refund", "a", args={"note": OTHERS[0]}),
    )
    content_key = hashlib.sha256(f"ck1\0{TENANT}\0refund\0".encode() + rfc8785.dumps(LASTING)).hexdigest()
    log.start("n1", content_key=content_key)
    more: dict[str, Any] = {"external_id": "re_1", "result": None} | finished
    log.finish("n1", **more)
    log.done()
    log.start("n2", "b", after=[{"invocation_id": "n1", "result_hash": log.hashes["a"]}])
    log.finish("n2", name="b", external_id="re_2", result=OTHERS[1], evidence=[OTHERS[2]])
    log.done("b")
    log.complete()
    return log


def proof(*disclose: str, log: Log | None = None, external_id: str = "re_1", step: str | None = None) -> bytes:
    records = sealed(log or history()).records
    judged = judge(records, TRUSTED, {}.__getitem__)
    asked = AskedCall(external_id, disclose, step)
    return make(records, judged, inclusion(records[-1].value), asked)


def check(data: bytes, keys: Sequence[TrustedKey], policy: LogPolicy | None = None) -> dict[str, Any]:
    """What the library says of it; verify.py, which knows no policy, must say the same."""
    if policy is None:
        assert answer_of_script(data, keys) == answer(data, keys)
    return call_proof.check(data, keys, policy=policy)


def answer(data: bytes, keys: Sequence[TrustedKey]) -> str:
    try:
        return json.dumps(call_proof.check(data, keys), sort_keys=True)
    except BadRecordProof as error:
        return error.rule


def answer_of_script(data: bytes, keys: Sequence[TrustedKey]) -> str:
    script = standalone.verify
    try:
        return json.dumps(
            script.check_call(data, {key.key_id: script.Key(key.to_json()) for key in keys}), sort_keys=True
        )
    except script.Bad as error:
        return error.args[0]


def changed(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    parsed = json.loads(data)
    change(parsed)
    return json.dumps(parsed).encode()


def refused(what: Callable[[], object]) -> str:
    with pytest.raises(BadRecordProof) as found:
        what()
    return found.value.rule


def all_text(data: bytes) -> str:
    """The file, and what it has in base64."""
    return data.decode() + base64.b64decode(json.loads(data)["seal"]).decode()


def test_what_was_asked_for_is_shown_and_nothing_else() -> None:
    given = proof("tool", "amount")
    found = check(given, TRUSTED)
    assert (found["job_id"], found["step"], found["tool"], found["external_id"]) == (JOB, "a", "refund", "re_1")
    assert (found["args"], found["all_args"], found["hidden_values"]) == ({"amount": 250}, False, 0)
    assert found["not_shown"] == len(["version", "output_hash", "args", "args.customer", "args.email"])
    text = all_text(given)
    assert not any(other in text for other in (*OTHERS, "c-17", "customer", "email", "ann@example.org"))


def test_of_all_arguments_it_says_that_there_are_no_others() -> None:
    found = check(proof("args"), TRUSTED)
    assert (found["args"], found["all_args"], found["hidden_values"], found["opened_values"]) == (ARGS, True, 1, 0)


def test_nothing_asked_for_shows_the_call_alone() -> None:
    found = check(proof(), TRUSTED)
    assert "args" not in found
    assert "tool" not in found
    assert (found["outcome"], found["via"], found["external_id"]) == ("success", "executor", "re_1")


def test_a_result_is_shown_by_its_hash() -> None:
    given = proof("result", external_id="re_2")
    assert check(given, TRUSTED)["result"] == OTHERS[1]
    assert OTHERS[2] not in all_text(given)
    assert check(proof("evidence", "error", external_id="re_2"), TRUSTED)["evidence"] == [OTHERS[2]]
    for other in ("what-c-came-to", None):
        lied = changed(given, lambda call, other=other: call.update(result=other))
        assert refused(lambda lied=lied: check(lied, TRUSTED)) == "output_hash_mismatch"


def test_a_large_result_is_shown_too() -> None:
    large = json.dumps({"text": "x" * 70_000}).encode()
    reference = {"sha256": hashlib.sha256(large).hexdigest(), "size": len(large)}
    log = Log(node("a", args=ARGS))
    content_key = hashlib.sha256(f"ck1\0{TENANT}\0refund\0".encode() + rfc8785.dumps(LASTING)).hexdigest()
    log.start("n1", content_key=content_key)
    said = hashlib.sha256(rfc8785.dumps(json.loads(large))).hexdigest()
    log.finish("n1", external_id="re_1", result=None, result_ref=reference, output_hash=said)
    log.done()
    log.complete()
    blobs = {reference["sha256"]: large}
    audited = judge(log.records, TRUSTED, blobs.__getitem__)
    seal(log, outcome_hash=audited.report.outcome_hash)
    judged = judge(log.records, TRUSTED, blobs.__getitem__)
    asked, proved = AskedCall("re_1", ("result",)), inclusion(log.records[-1].value)
    given = make(log.records, judged, proved, asked, load=blobs.__getitem__)
    assert check(given, TRUSTED)["result"] == json.loads(large)
    assert refused(lambda: make(log.records, judged, proved, asked)) == "missing_blob"


def test_what_is_not_shown_is_not_found_by_trying() -> None:
    """Nothing that follows from the arguments without a secret is in it: no key, and none of their hashes."""
    log = history()
    end = json.loads(log.records[3].value)
    given = proof("tool", "amount", log=log)
    text, parsed = all_text(given), json.loads(given)
    content_key = json.loads(log.records[2].value)["content_key"]
    for hashed in (
        log.key(),
        log.call("a").args_hash,
        content_key,
        end["invocation_id"],
        end["word"],
        end["output_hash"],
    ):
        assert hashed not in text
    salts = [salt for salt, _, _ in parsed["shown"]]
    tried = {Disclosure(salt, "args.customer", "c-17").digest().hex() for salt in (*salts, "0" * 32)}
    assert tried.isdisjoint(parsed["hidden"])
    assert any(one.digest().hex() in parsed["hidden"] for one in parts_of(proof("customer", log=log)))


ALL = ("tool", "version", "output_hash", "evidence", "by", "principal", "args")


def test_a_call_that_nobody_signed_the_end_of_is_shown_whole_or_not_at_all() -> None:
    """Its salts would follow from the invocation id alone, which views and redacted bundles name."""
    settled = {"via": "human", "by": "ann", "principal": "person", "evidence": ["a receipt on paper"]}
    assert refused(lambda: proof("tool", "amount", log=history(**settled))) == "guessable_salts"
    found = check(proof(*ALL, log=history(**settled)), TRUSTED)
    assert (found["via"], found["args"], found["not_shown"]) == ("human", ARGS, 0)
    signed = {**settled, "sig": {"key": "0" * 64, "value": "x"}}
    assert check(proof("tool", log=history(**signed)), TRUSTED)["not_shown"] > 0, "who has not its record lacks it"


def test_no_two_salts_are_the_same() -> None:
    """Neither in a call nor where two calls have the same parts."""
    log = Log(node("a", args={"amount": 1}), node("b", args={"amount": 1}))
    for at, name in enumerate(("a", "b"), 1):
        log.start(f"n{at}", name)
        log.finish(f"n{at}", name=name, external_id=f"re_{at}", result=None)
        log.done(name)
    log.complete()
    shown = [part.salt for at in (1, 2) for part in parts_of(proof("args", "tool", log=log, external_id=f"re_{at}"))]
    assert len(shown) == len({*shown}) == 8


def parts_of(data: bytes) -> list[Disclosure]:
    return [Disclosure(*part) for part in json.loads(data)["shown"]]


def test_an_argument_can_be_called_as_a_field_is() -> None:
    log = Log(node("a", args={"tool": "hammer", "result": 1}))
    log.start("n1")
    log.finish("n1", external_id="re_1", result=None)
    log.done()
    log.complete()
    assert check(proof("args.tool", "args.result", log=log), TRUSTED)["args"] == {"tool": "hammer", "result": 1}


@pytest.mark.parametrize(
    ("external_id", "disclose", "rule"),
    [
        ("re_3", (), "unknown_call"),
        ("", (), "unknown_call"),
        ("re_1", ("price",), "no_such_field"),
        ("re_1", ("call",), "no_such_field"),
        ("re_1", ("args.args.amount",), "no_such_field"),
    ],
)
def test_what_is_not_there_is_not_shown(external_id: str, disclose: tuple[str, ...], rule: str) -> None:
    assert refused(lambda: proof(*disclose, external_id=external_id)) == rule


def test_where_two_steps_have_one_external_id_one_must_be_named() -> None:
    log = Log(node("a"), node("b", "refund", "a"))
    log.start("n1")
    log.finish("n1", external_id="re_1", result=None)
    log.done()
    log.start("n2", "b", after=[{"invocation_id": "n1", "result_hash": log.hashes["a"]}])
    log.finish("n2", name="b", external_id="re_1", result=None)
    log.done("b")
    log.complete()
    assert refused(lambda: proof(log=log)) == "several_calls"
    assert check(proof(log=log, step="b"), TRUSTED)["step"] == "b"


def test_a_hidden_value_is_opened_by_itself() -> None:
    given = proof("email")
    assert hidden_among(given, ["amount", "customer"]) == []
    assert hidden_among(given, ["email"]) == hidden_among(given, ["args"]) == [OPENING["c"]]
    found = check(with_openings(given, [OPENING | {"at": "/plan", "event_id": "e0"}]), TRUSTED)
    assert (found["args"]["email"], found["opened_values"]) == ("ann@example.org", 1)
    changes: tuple[dict[str, Any], ...] = (
        {"value": "bob"},
        {"salt": "00" * 32},
        {"salt": OPENING["salt"].upper()},
        {"salt": None},
        {"c": "0" * 64},
        {"c": None},
    )
    for changed in changes:
        other = with_openings(given, [OPENING | changed])
        assert refused(lambda other=other: check(other, TRUSTED)) == "opening_differs"


def test_an_opening_of_what_the_call_does_not_show_is_refused() -> None:
    assert refused(lambda: check(with_openings(proof("tool"), [OPENING]), TRUSTED)) == "opening_differs"


def test_a_hidden_result_is_shown_as_it_stands() -> None:
    log = history(result=EMAIL)
    given = proof("result", log=log)
    assert check(given, TRUSTED)["result"] == EMAIL
    assert hidden_among(given, ["result"]) == [OPENING["c"]]
    assert check(with_openings(given, [OPENING]), TRUSTED)["result"] == "ann@example.org"


def test_a_job_that_is_not_sealed_or_breaks_a_rule_shows_no_call() -> None:
    log = history()
    judged = judge(log.records, TRUSTED, {}.__getitem__)
    with pytest.raises(BadEvidence):
        make(log.records, judged, "", AskedCall("re_1"))
    twice = history()
    twice.start("n9")
    twice.finish("n9", external_id="re_9")
    seal(twice)
    with pytest.raises(BadEvidence):
        make(twice.records, judge(twice.records, TRUSTED, {}.__getitem__), "", AskedCall("re_1"))


WHOLE = proof("tool", "amount")
OTHER_CALL = proof("tool", "note", external_id="re_2")


def part_named(call: dict[str, Any], name: str) -> list[Any]:
    return next(part for part in call["shown"] if part[1] == name)


def with_part_of_another_call(call: dict[str, Any]) -> None:
    call["shown"].append(part_named(json.loads(OTHER_CALL), "args.note"))


def of_another_call(call: dict[str, Any]) -> None:
    part_named(call, "tool")[:] = part_named(json.loads(OTHER_CALL), "tool")


def swapped_salts(call: dict[str, Any]) -> None:
    one, other = part_named(call, "tool"), part_named(call, "args.amount")
    one[0], other[0] = other[0], one[0]


def swapped_names(call: dict[str, Any]) -> None:
    one, other = part_named(call, "tool"), part_named(call, "args.amount")
    one[1], other[1] = other[1], one[1]


def set_value(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda call: part_named(call, name).__setitem__(2, value)


def add_part(name: Any, value: Any = None, salt: Any = "00" * 16) -> Callable[[dict[str, Any]], object]:
    return lambda call: call["shown"].append([salt, name, value])


def hides_what_it_shows(call: dict[str, Any]) -> None:
    part = part_named(call, "args.amount")
    call["hidden"].append(Disclosure(*part).digest().hex())


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("not_sealed", set_value("args.amount", 251)),
        ("not_sealed", set_value("args.amount", "250")),
        ("not_sealed", set_value("tool", "pay")),
        ("not_sealed", lambda call: part_named(call, "call")[2].update(external_id="re_7")),
        ("not_sealed", lambda call: part_named(call, "call")[2].update(extra=1)),
        ("not_sealed", with_part_of_another_call),
        ("not_sealed", of_another_call),
        ("not_sealed", swapped_salts),
        ("not_sealed", swapped_names),
        ("not_sealed", hides_what_it_shows),
        ("not_sealed", add_part("args.price", 1)),
        ("not_sealed", add_part("args", ["amount"])),
        ("not_sealed", lambda call: call["hidden"].pop()),
        ("not_sealed", lambda call: call["hidden"].append("00" * 32)),
        ("not_sealed", lambda call: call["shown"].remove(part_named(call, "args.amount"))),
        ("not_sealed", lambda call: call.update(index=1)),
        ("not_sealed", lambda call: call.update(index=-1)),
        ("not_sealed", lambda call: call.update(count=1)),
        ("not_sealed", lambda call: call.update(count=1 << 70)),
        ("not_sealed", lambda call: call.update(path=[])),
        ("not_sealed", lambda call: call["path"].append("00" * 32)),
        ("bad_proof", lambda call: call["path"].append("AB" * 32)),
        ("bad_proof", lambda call: call.update(path=None)),
        ("bad_proof", lambda call: call.update(path=["00" * 32] * 65)),
        ("bad_proof", lambda call: call.update(index=True)),
        ("bad_proof", lambda call: call.update(count=2.0)),
        ("bad_proof", lambda call: call["shown"].append(part_named(call, "tool"))),
        ("bad_proof", lambda call: call["shown"].remove(part_named(call, "call"))),
        ("bad_proof", add_part("unheard of")),
        ("bad_proof", add_part(["args.x"])),
        ("bad_proof", add_part("args.x", 1 << 60)),
        ("bad_proof", add_part("args.x", salt="AB" * 16)),
        ("bad_proof", add_part("args.x", salt=7)),
        ("bad_proof", lambda call: call["shown"].append(["00" * 16, "args.x"])),
        ("bad_proof", lambda call: call["shown"].append("args.x")),
        ("bad_proof", lambda call: call.update(shown={})),
        ("bad_proof", lambda call: call.update(hidden=None)),
        ("bad_proof", lambda call: call["hidden"].append(7)),
        ("bad_proof", lambda call: call["hidden"].append(call["hidden"][0].upper())),
        ("bad_proof", lambda call: call.pop("inclusion")),
        ("bad_proof", lambda call: call.update(inclusion="")),
        ("not_included", lambda call: call.update(inclusion=inclusion(b"another seal"))),
        ("seal_unknown_key", lambda call: call.update(seal="e30=")),
        ("bad_proof", lambda call: call.update(seal=1)),
        ("bad_proof", lambda call: call.update(format="aetheris-record-proof")),
        ("bad_proof", lambda call: call.update(version=True)),
        ("bad_proof", lambda call: call.update(openings=None)),
        ("opening_differs", lambda call: call.update(openings=[1])),
    ],
)
def test_what_the_seal_does_not_say_is_refused(rule: str, change: Callable[[dict[str, Any]], object]) -> None:
    assert refused(lambda: check(changed(WHOLE, change), TRUSTED)) == rule


def test_all_arguments_are_not_some() -> None:
    """Who shows what the arguments are called shows each."""
    all_but_one = changed(proof("args"), hide("args.customer"))
    assert refused(lambda: check(all_but_one, TRUSTED)) == "args_differ"


def hide(name: str) -> Callable[[dict[str, Any]], object]:
    def change(call: dict[str, Any]) -> None:
        part = part_named(call, name)
        call["shown"].remove(part)
        call["hidden"].append(Disclosure(*part).digest().hex())

    return change


@pytest.mark.parametrize("calls", ["", "00" * 32, False, 7, []])
def test_a_seal_that_says_other_calls_is_found_in_the_whole_job(calls: Any) -> None:
    """By both verifiers: so what a verifier says of a call can be held against the job."""
    log = history()
    event = seal(log, calls=calls)
    assert violations(log) == {("seal_calls", event)}
    with pytest.raises(BadEvidence, match="another root"):
        make(log.records, judge(log.records, TRUSTED, {}.__getitem__), "", AskedCall("re_1"))


def test_a_seal_that_states_no_calls_lets_none_be_shown() -> None:
    log = history()
    seal(log, calls=None)
    assert violations(log) == set()
    judged = judge(log.records, TRUSTED, {}.__getitem__)
    assert refused(lambda: make(log.records, judged, "", AskedCall("re_1"))) == "not_sealed"


def test_a_call_that_succeeded_late_is_shown_by_the_amendment() -> None:
    log = Log(node("a", args={"amount": 1}), node("b", args={"amount": 2}))
    log.start("n1")
    log.finish("n1", external_id="re_1", result=None)
    log.done()
    log.start("n2", "b")
    log.permanent("n2", "ledger", "b")
    log.done("b", "permanent_failure")
    log.add("job_failed", error="b")
    seal(log)
    log.finish("n2", name="b", via="late", external_id="re_2", result=None)
    amend(log)
    judged = judge(log.records, TRUSTED, {}.__getitem__)
    assert {one.rule for one in judged.report.violations} == {"truth_differs", "contradicts_settlement"}
    stated = [json.loads(one.value)["calls"] for one in log.records if b'"calls"' in one.value]
    assert (len({*stated}), judged.report.calls) == (2, stated[-1])


def test_a_seal_of_a_job_without_such_calls_says_none() -> None:
    log = Log(node("a"))
    log.start("n1")
    log.finish("n1")
    log.done()
    log.complete()
    assert not checked(log).calls
    assert "calls" not in json.loads(sealed(log).records[-1].value)
    assert refused(lambda: proof(log=log)) == "unknown_call"


def test_a_redacted_bundle_holds_its_seal_to_the_calls_that_it_shows() -> None:
    assert redacted_of(sealed(history()).records, audience="auditor")


def test_a_key_that_is_nobodys_or_has_ended_vouches_for_nothing() -> None:
    (revoked,) = keys_of([{**TRUSTED[0].to_json(), "revoked_at": SEALED_AT}])
    (of_log,) = keys_of([{**TRUSTED[0].to_json(), "use": "log"}])
    other = TrustedKey(OTHER_KEY.public_key())
    for keys, rule in (
        ([revoked], "seal_revoked_key"),
        ([of_log], "seal_unknown_key"),
        ([other], "seal_unknown_key"),
        ([], "seal_unknown_key"),
    ):
        assert refused(lambda keys=keys: check(WHOLE, keys)) == rule


def test_witnesses_are_asked_for_where_a_policy_does() -> None:
    policy = read_log_policy(b"quorum none\n")
    assert refused(lambda: check(WHOLE, TRUSTED, policy=policy)) == "checkpoint_unknown_log"


def test_the_script_reads_one_by_its_form(tmp_path: Path) -> None:
    call, key = tmp_path / "call.json", tmp_path / "seal.pub"
    key.write_text(TRUSTED[0].to_json()["public_key"])
    for data, code in ((WHOLE, 0), (changed(WHOLE, swapped_salts), 1), (b"{}", 1)):
        call.write_bytes(data)
        run = [sys.executable, "-I", str(standalone.SCRIPT), str(call), "--public-key", str(key)]
        done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr, json.loads(done.stdout)["ok"]) == (code, "", code == 0)
