"""On the real system, with the real ssh-keygen: who approves signs with his own key, and nobody can invent his yes."""

import json
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from typer.testing import Result

from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.events import ApprovalDecided
from tests.testkit.approvers import respond
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.signing_rig import SigningRig, running_signing_rig
from tests.testkit.ssh_keys import allowed, ssh_sign
from tests.testkit.tokens import headers_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[SigningRig]:
    """Bob and Carol have keys, and Mallory has one that counts for nobody."""
    folder = tmp_path_factory.mktemp("signed")
    with running_signing_rig(folder, ("bob", "carol", "mallory"), ("bob", "carol")) as running:
        yield running


def refused(shown: Result, sentence: str) -> None:
    assert shown.exit_code != 0, shown.output
    assert sentence in " ".join(shown.output.split()), shown.output


def test_each_signs_with_his_own_key_and_the_call_takes_effect_once(rig: SigningRig, tmp_path: Path) -> None:
    tag = fresh("signed")
    job, request = rig.ask(tag)
    refused(rig.say("bob", request), "who says this must sign it with his own key")
    refused(rig.signed("bob", request, key="mallory"), "no allowed signer has the key that signed")
    refused(rig.signed("bob", request, key="carol"), "is not allowed to sign for bob")
    first = rig.signed("bob", request)
    assert first.exit_code == 0, first.output
    assert 'tool: "poke_irreversible"' in first.output, "what is signed is shown"
    assert rig.external.count(tag) == 0
    assert rig.signed("carol", request).exit_code == 0
    rig.system.wait_ended([job])
    assert rig.external.count(tag) == 1
    votes = rig.system.data_of(job, "approval_voted")
    assert [vote["signature"]["key"][:7] for vote in votes] == ["SHA256:"] * 2
    rig.system.wait_sealed(job)
    rig.system.verified(job)
    assert rig.rules(job, "--signers", str(rig.signers)) == []
    others = allowed(tmp_path, {"bob": rig.keys / "bob", "carol": rig.keys / "mallory"})
    assert {"foreign_signature", "votes_missing"} == set(rig.rules(job, "--signers", str(others)))
    rig.check_bundle(job, tmp_path, others)


def test_another_tool_signs_what_is_printed(rig: SigningRig, tmp_path: Path) -> None:
    tag = fresh("elsewhere")
    job, request = rig.ask(tag, "poke_probeable")
    printed = rig.say("bob", request, "--text")
    assert printed.exit_code == 0, printed.output
    assert rig.external.count(tag) == 0
    signature = tmp_path / "signature"
    signature.write_text(ssh_sign(rig.keys / "bob", printed.stdout.encode()))
    refused(rig.say("carol", request, "--signature", str(signature)), "is not allowed to sign for carol")
    refused(rig.say("bob", request, "--signature", str(signature), action="reject"), "of something else")
    _, other = rig.ask(fresh("other"), "poke_probeable")
    refused(rig.say("bob", other, "--signature", str(signature)), "of something else")
    assert rig.say("bob", request, "--signature", str(signature)).exit_code == 0
    rig.system.wait_ended([job])
    (decided,) = rig.system.data_of(job, "approval_decided")
    assert decided["signature"]["armored"] == signature.read_text()


def test_a_no_and_an_edit_are_signed_too(rig: SigningRig) -> None:
    tag, changed = fresh("edited"), fresh("changed")
    job, request = rig.ask(tag, "poke_probeable")
    edit = ("--edit", json.dumps({"tag": changed}))
    refused(rig.say("bob", request, *edit), "must sign it")
    edited = rig.signed("bob", request, *edit)
    assert edited.exit_code == 0, edited.output
    until(lambda: rig.system.job(job)["steps"][0].get("request_id") not in (None, request), 60.0)
    again = rig.system.job(job)["steps"][0]["request_id"]
    refused(rig.say("carol", again, action="reject"), "must sign it")
    assert rig.signed("carol", again, action="reject").exit_code == 0
    rig.system.wait_ended([job])
    assert (rig.external.count(tag), rig.external.count(changed)) == (0, 0)
    assert rig.rules(job, "--signers", str(rig.signers)) == []


def test_over_http_a_signature_is_bounded_and_its_text_is_the_gateway_s(rig: SigningRig) -> None:
    _, request = rig.ask(fresh("http"), "poke_probeable")
    plain = respond(rig.system, "bob", request)
    assert (plain.status_code, plain.json()["error"]["code"]) == (403, "not_signed")
    huge = respond(rig.system, "bob", request, signature="x" * 5_000)
    assert (huge.status_code, "signature" in huge.text) == (400, True), huge.text
    shown = rig.system.api.get(f"/ecs/status/{request}", headers=headers_of("bob")).json()["to_sign"]
    assert (shown["approver"], shown["request"], shown["approvals"]) == ("bob", request, 1)


@pytest.mark.parametrize("signed_by_operator", [False, True])
def test_an_operator_with_the_ledger_s_key_cannot_invent_a_yes_unseen(
    rig: SigningRig, signed_by_operator: bool
) -> None:
    tag = fresh("invented")
    job, request = rig.ask(tag, "poke_probeable")
    (asked,) = rig.system.data_of(job, "approval_requested")
    text = rig.say("bob", request, "--text").stdout.encode()
    own = {"key": fingerprint(rig.keys / "mallory"), "armored": ssh_sign(rig.keys / "mallory", text)}
    bound = {
        name: asked[name] for name in ("job_id", "node_id", "idempotency_key", "args_hash", "tool_version", "rule")
    }
    said = {
        "decision": "approve",
        "approver": "bob",
        "principal": {"id": "bob", "kind": "person", "roles": ["approve"]},
    }
    yes = ApprovalDecided.model_validate({**bound, **said, "signature": own if signed_by_operator else None})
    rig.system.append_as(Party.LEDGER, yes)
    rig.system.wait_ended([job])
    broken = rig.rules(job, "--signers", str(rig.signers))
    assert ("foreign_signature" if signed_by_operator else "not_signed") in broken
    if not signed_by_operator:
        assert "not_signed" in rig.rules(job), "nobody has to know the signers"


def fingerprint(key: Path) -> str:
    done = subprocess.run(["ssh-keygen", "-lf", str(key)], capture_output=True, text=True, check=True)
    return done.stdout.split()[1]
