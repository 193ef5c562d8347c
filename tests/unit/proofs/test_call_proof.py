"""One call of a sealed job is shown by itself: with what was asked for, and no other payload."""

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
from aetheris.proofs.evidence import BadEvidence, judge
from aetheris.proofs.sealed_leaves import BadRecordProof
from aetheris.proofs.seals import pae
from aetheris.proofs.trust import TrustedKey, keys_of
from aetheris.proofs.witnesses import LogPolicy, read_log_policy
from aetheris.protocol.base.hidden_values import hidden, salt_of
from tests.testkit import standalone
from tests.testkit.evidence import KEY, OTHER_KEY, SEALED_AT, TRUSTED, inclusion, seal, sealed, signer
from tests.testkit.proof_histories import JOB, TENANT, Log, node

SUBJECT_KEY, K = bytes(range(32)), "0" * 32
EMAIL = hidden(SUBJECT_KEY, K, TENANT, JOB, "ann@example.org").json()
OPENING = {
    "c": EMAIL["$hidden"]["c"],
    "salt": salt_of(SUBJECT_KEY, TENANT, JOB, "ann@example.org").hex(),
    "value": "ann@example.org",
}
ARGS = {"amount": 250, "customer": "c-17", "email": EMAIL}
OTHERS = ("another-secret", "what-b-came-to", "a-note")
"""Payloads that no call of this file asks for."""


def history(**finished: Any) -> Log:
    log = Log(
        node("a", args=ARGS),
        node("b", "refund", "a", args={"note": OTHERS[0]}),
    )
    lasting = ARGS | {"email": {"$hidden": {name: EMAIL["$hidden"][name] for name in ("d", "k")}}}
    content_key = hashlib.sha256(f"ck1\0{TENANT}\0refund\0".encode() + rfc8785.dumps(lasting)).hexdigest()
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
    return make(records, judged, inclusion(records[-1].value), asked, sign=signer(KEY))


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


def call_in(data: bytes) -> dict[str, Any]:
    return json.loads(base64.b64decode(json.loads(data)["payload"]))


def resigned(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """As the verifier would sign something else."""
    call = call_in(data)
    change(call)
    payload = json.dumps(call).encode()
    signature = dict(signer(KEY)(pae(call_proof.PAYLOAD_TYPE, payload)))
    parsed = json.loads(data)
    return json.dumps({**parsed, "payload": base64.b64encode(payload).decode(), "signatures": [signature]}).encode()


def refused(what: Callable[[], object]) -> str:
    with pytest.raises(BadRecordProof) as found:
        what()
    return found.value.rule


def all_text(data: bytes) -> str:
    """The file, and what it has in base64."""
    call = call_in(data)
    shown = [base64.b64decode(one["value"]).decode() for one in call["records"]]
    return json.dumps([json.loads(data), call, shown])


def test_what_was_asked_for_is_shown_and_nothing_else() -> None:
    given = proof("tool", "amount", "customer")
    found = check(given, TRUSTED)
    assert (found["job_id"], found["step"], found["tool"], found["external_id"]) == (JOB, "a", "refund", "re_1")
    assert found["args"] == ARGS
    assert (found["not_shown"], found["hidden_values"], found["opened_values"]) == ([], 1, 0)
    text = all_text(given)
    assert not any(other in text for other in (*OTHERS, "ann@example.org"))


def test_without_arguments_none_are_shown() -> None:
    given = proof()
    assert check(given, TRUSTED)["not_shown"] == [call_proof.STARTED, "args"]
    assert len(call_in(given)["records"]) == 1
    assert "c-17" not in all_text(proof("tool", "version"))
    assert check(proof("tool"), TRUSTED)["not_shown"] == ["args"]


@pytest.mark.parametrize(
    ("disclose", "external_id", "said"),
    [
        (("amount",), "re_1", "customer"),
        (("tool", "email"), "re_1", "amount, customer"),
        ((), "re_2", "evidence, result"),
        (("result",), "re_2", "evidence"),
        (("tool", "note", "evidence"), "re_2", "result"),
    ],
)
def test_what_can_not_be_shown_alone_is_refused_and_what_goes_with_it_is_named(
    disclose: tuple[str, ...], external_id: str, said: str
) -> None:
    with pytest.raises(BadRecordProof, match=f": {said}") as found:
        proof(*disclose, external_id=external_id)
    assert found.value.rule == "not_alone"
    assert not any(other in found.value.message for other in ("c-17", *OTHERS))


def test_with_all_that_goes_with_it_it_is_shown() -> None:
    found = check(proof("result", "evidence", external_id="re_2"), TRUSTED)
    assert (found["result"], found["evidence"]) == (OTHERS[1], [OTHERS[2]])


def test_a_field_of_a_record_that_nobody_knows_is_payload() -> None:
    assert refused(lambda: proof(log=history(unheard_of="x"))) == "not_alone"


@pytest.mark.parametrize("part", ["d", "k"])
def test_what_only_looks_like_a_hidden_value_is_payload(part: str) -> None:
    """A tool gives what it likes."""
    result = {"$hidden": EMAIL["$hidden"] | {part: OTHERS[0]}}
    assert refused(lambda: proof(log=history(result=result))) == "not_alone"
    assert check(proof(log=history(result=EMAIL)), TRUSTED)["ok"]


def test_an_argument_can_be_called_as_a_field_is() -> None:
    log = Log(node("a", args={"tool": "hammer", "result": 1}))
    log.start("n1")
    log.finish("n1", external_id="re_1", result=None)
    log.done()
    log.complete()
    assert check(proof("args.tool", "args.result", log=log), TRUSTED)["args"] == {"tool": "hammer", "result": 1}


@pytest.mark.parametrize(
    ("external_id", "disclose", "rule"),
    [("re_3", (), "unknown_call"), ("", (), "unknown_call"), ("re_1", ("price",), "no_such_field")],
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
    given = proof("amount", "customer", "email")
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


def test_a_hidden_result_comes_along_as_it_stands() -> None:
    log = history(result=EMAIL)
    given = proof("tool", log=log)
    assert check(given, TRUSTED)["result"] == EMAIL
    assert hidden_among(given, ["result"]) == [OPENING["c"]]
    assert check(with_openings(given, [OPENING]), TRUSTED)["result"] == "ann@example.org"


def test_a_job_that_is_not_sealed_or_breaks_a_rule_shows_no_call() -> None:
    log = history()
    judged = judge(log.records, TRUSTED, {}.__getitem__)
    with pytest.raises(BadEvidence):
        make(log.records, judged, "", AskedCall("re_1"), sign=signer(KEY))
    twice = history()
    twice.start("n9")
    twice.finish("n9", external_id="re_9")
    seal(twice)
    with pytest.raises(BadEvidence):
        make(twice.records, judge(twice.records, TRUSTED, {}.__getitem__), "", AskedCall("re_1"), sign=signer(KEY))


WHOLE = proof("tool", "amount", "customer")
OTHER_CALL = proof("tool", "note", "result", "evidence", external_id="re_2")


def other_end(call: dict[str, Any]) -> None:
    call["records"][1] = call_in(OTHER_CALL)["records"][1]


def a_start_for_an_end(call: dict[str, Any]) -> None:
    call["records"] = [call["records"][0]] * 2


def other_value(call: dict[str, Any]) -> None:
    value = base64.b64decode(call["records"][1]["value"]).replace(b"re_1", b"re_7")
    call["records"][1]["value"] = base64.b64encode(value).decode()


def by_hash(at: int) -> Callable[[dict[str, Any]], object]:
    def change(call: dict[str, Any]) -> None:
        del call["records"][at]["value"]
        call["records"][at]["value_sha256"] = "00" * 32

    return change


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("args_differ", lambda call: call["args"].update(amount=251)),
        ("args_differ", lambda call: call["args"].update(amount=250.5)),
        ("args_differ", lambda call: call["args"].pop("amount")),
        ("args_differ", lambda call: call.update(args=[])),
        ("args_differ", lambda call: call["records"].pop(0)),
        ("other_call", other_end),
        ("bad_proof", a_start_for_an_end),
        ("not_sealed", other_value),
        ("bad_proof", lambda call: call["records"][0]["path"].append("AB" * 32)),
        ("bad_proof", lambda call: call["records"][0].update(path=[one.upper() for one in call["records"][0]["path"]])),
        ("not_sealed", lambda call: call["records"][0].update(path=[])),
        ("not_sealed", lambda call: call["records"][1].update(index=-1)),
        ("not_sealed", lambda call: call["records"][1].update(index=True)),
        ("not_sealed", lambda call: call["records"][1].update(index=1 << 70)),
        ("bad_proof", lambda call: call["records"][1]["headers"].update(ce_subject="YQ==")),
        ("not_sealed", lambda call: call["records"][1]["headers"].update(ce_time="YQ==")),
        ("bad_proof", lambda call: call["records"][1].update(value_sha256="00" * 32)),
        ("not_sealed", by_hash(1)),
        ("not_sealed", by_hash(0)),
        ("bad_proof", lambda call: call["records"].pop()),
        ("bad_proof", lambda call: call["records"].clear()),
        ("bad_proof", lambda call: call["records"].reverse()),
        ("bad_proof", lambda call: call["records"].extend(call["records"])),
        ("bad_proof", lambda call: call.update(records=[1, 2])),
        ("bad_proof", lambda call: call.update(records=None)),
        ("bad_proof", lambda call: call.pop("inclusion")),
        ("bad_proof", lambda call: call.update(inclusion="")),
        ("not_included", lambda call: call.update(inclusion=inclusion(b"another seal"))),
        ("seal_unknown_key", lambda call: call.update(seal="e30=")),
    ],
)
def test_what_a_verifier_would_sign_wrongly_is_refused(rule: str, change: Callable[[dict[str, Any]], object]) -> None:
    assert refused(lambda: check(resigned(WHOLE, change), TRUSTED)) == rule


@pytest.mark.parametrize(
    ("rule", "parts"),
    [
        ("envelope_signature", {"payload": json.loads(OTHER_CALL)["payload"]}),
        ("envelope_signature", {"payload": "e30="}),
        ("envelope_unknown_key", {"signatures": []}),
        ("bad_proof", {"signatures": None}),
        ("bad_envelope", {"signatures": [1]}),
        ("bad_proof", {"payload": 1}),
        ("bad_proof", {"format": "aetheris-record-proof"}),
        ("bad_proof", {"version": True}),
        ("bad_proof", {"openings": None}),
        ("opening_differs", {"openings": [1]}),
    ],
)
def test_what_nobody_signed_is_refused(rule: str, parts: dict[str, Any]) -> None:
    assert refused(lambda: check(json.dumps({**json.loads(WHOLE), **parts}).encode(), TRUSTED)) == rule


def test_a_key_that_is_nobodys_or_has_ended_vouches_for_nothing() -> None:
    (revoked,) = keys_of([{**TRUSTED[0].to_json(), "revoked_at": SEALED_AT}])
    (of_log,) = keys_of([{**TRUSTED[0].to_json(), "use": "log"}])
    other = TrustedKey(OTHER_KEY.public_key())
    for keys, rule in (
        ([revoked], "envelope_revoked_key"),
        ([of_log], "envelope_unknown_key"),
        ([other], "envelope_unknown_key"),
        ([], "envelope_unknown_key"),
    ):
        assert refused(lambda keys=keys: check(WHOLE, keys)) == rule


def test_witnesses_are_asked_for_where_a_policy_does() -> None:
    policy = read_log_policy(b"quorum none\n")
    assert refused(lambda: check(WHOLE, TRUSTED, policy=policy)) == "checkpoint_unknown_log"


def test_the_script_reads_one_by_its_form(tmp_path: Path) -> None:
    call, key = tmp_path / "call.json", tmp_path / "seal.pub"
    key.write_text(TRUSTED[0].to_json()["public_key"])
    for data, code in ((WHOLE, 0), (resigned(WHOLE, other_value), 1), (b"{}", 1)):
        call.write_bytes(data)
        run = [sys.executable, "-I", str(standalone.SCRIPT), str(call), "--public-key", str(key)]
        done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr, json.loads(done.stdout)["ok"]) == (code, "", code == 0)
