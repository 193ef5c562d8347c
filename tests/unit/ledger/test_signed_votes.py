"""Where a rule asks for signatures: whose word counts, and what a signature holds for."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from aetheris.protocol.base.allowed_signers import AllowedSigners, parse_signers
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.principals import PrincipalKind, RecordedPrincipal, Role
from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.approval_events import ApproverSignature
from aetheris.protocol.messages.commands import Resolve
from aetheris.protocol.planning.approval_text import ApprovalText, signed_request
from aetheris.protocol.planning.policy import PolicyError, parse
from tests.testkit.histories import JOB, TENANT, about, started
from tests.testkit.ledgers import Ledger
from tests.testkit.passkeys import Passkey
from tests.testkit.principals import said_by
from tests.testkit.ssh_keys import SshSigner
from tests.unit.ledger.test_approvals import PAID, PAY, asked, key, respond, state, world

ONE, TWO = PAY + "signed = true\n", PAY + "signed = true\napprovals = 2\n"
KEYS: dict[str, SshSigner | Passkey] = {
    name: SshSigner(seed) for seed, name in enumerate(("bob", "carol", "dan", "mallory"), start=1)
}
KEYS["eve"], KEYS["mallory's passkey"] = Passkey(1), Passkey(2)
SIGNERS = "".join(KEYS[name].line(name) for name in ("bob", "carol", "dan", "eve"))


def ask(policy: str = ONE, signers: str = SIGNERS) -> Ledger:
    made = world(policy)
    made.signers = parse_signers(signers)
    ledger = made.ledger()
    ledger.request("a", offset=1)
    return ledger


def text(ledger: Ledger, by: str, decision: Any = "approve", args: dict[str, Any] = PAID, **more: Any) -> ApprovalText:
    requested = state(ledger, args).requested
    assert requested is not None
    found = signed_request(ledger.job, key(args), requested)
    return ApprovalText(asked=found, approver=by, decision=decision, **more)


def say(ledger: Ledger, by: str, decision: Any = "approve", with_key: str = "", **more: Any) -> str:
    """By his own key, what is said; the last event behind it, or why it was ignored."""
    before = len(ledger.core.ignored)
    signed = more.pop("text", None) or text(ledger, by, decision, args=more.get("args", PAID))
    signature = KEYS[with_key or by].sign(signed.encoded())
    respond(ledger, decision, by=by, name=f"{by}-{len(ledger.written())}-{before}", signature=signature, **more)
    return ledger.core.ignored[-1].why if len(ledger.core.ignored) > before else ledger.written()[-1]


def test_a_yes_counts_with_his_own_signature_and_the_log_has_it() -> None:
    ledger = ask()
    requested = state(ledger).requested
    assert requested is not None
    assert (requested.signed, requested.policy_hash) == (True, ledger.surroundings.policy.hash)
    assert say(ledger, "bob") == "approval_decided"
    decided = state(ledger).decision
    assert decided is not None
    assert decided.signature is not None
    assert decided.signature.key == KEYS["bob"].fingerprint
    assert len(ledger.grants) == 1


def test_a_passkey_signs_as_an_ssh_key_does_and_beside_it() -> None:
    ledger = ask(TWO)
    assert say(ledger, "eve", with_key="mallory's passkey") == "no allowed signer has the key that signed"
    assert say(ledger, "bob", with_key="eve") == "the key that signed is not allowed to sign for bob"
    other = replace(text(ledger, "eve"), asked=replace(text(ledger, "eve").asked, request="another"))
    assert "of something else" in say(ledger, "eve", text=other)
    unseen = Passkey(1).sign(text(ledger, "eve").encoded(), flags=1)
    respond(ledger, "approve", by="eve", name="unseen", signature=unseen)
    assert "did not verify who used it" in ledger.core.ignored[-1].why
    assert say(ledger, "eve") == "approval_voted"
    assert ledger.grants == []
    assert say(ledger, "bob") == "approval_decided"
    decided = state(ledger).decision
    assert decided is not None
    assert decided.votes == ("eve", "bob")
    assert len(ledger.grants) == 1


def test_without_a_signature_nothing_is_decided() -> None:
    ledger = ask()
    for action in ("approve", "reject"):
        respond(ledger, action, by="bob", name=f"plain-{action}")
        assert "must sign it with his own key" in ledger.core.ignored[-1].why
    respond(ledger, "edit", by="bob", name="plain-edit", data={"amount": 1})
    assert "must sign it with his own key" in ledger.core.ignored[-1].why
    assert (state(ledger).decision, ledger.grants) == (None, [])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"approver": "carol"}, "of something else"),
        ({"decision": "reject"}, "of something else"),
        ({"data_hash": "0" * 64}, "of something else"),
        ({"break_glass": True}, "of something else"),
        *(
            ({"asked": {name: "x"}}, "of something else")
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
                "policy_hash",
            )
        ),
        ({"asked": {"approvals": 7}}, "of something else"),
    ],
)
def test_a_signature_holds_for_just_what_it_is_of(changed: dict[str, Any], why: str) -> None:
    ledger = ask()
    own = text(ledger, "bob")
    changed = {name: replace(own.asked, **value) if name == "asked" else value for name, value in changed.items()}
    assert why in say(ledger, "bob", text=replace(own, **changed))
    assert ledger.grants == []


def test_another_s_key_a_key_of_nobody_and_one_that_has_ended_sign_nothing() -> None:
    ledger = ask()
    assert say(ledger, "bob", with_key="carol") == "the key that signed is not allowed to sign for bob"
    assert say(ledger, "bob", with_key="mallory") == "no allowed signer has the key that signed"
    old = ask(signers=KEYS["bob"].line("bob", 'valid-before="20200101Z"'))
    assert say(old, "bob") == "the key that signed is not valid at this time"
    other = ask(signers=KEYS["bob"].line("bob", 'namespaces="git"'))
    assert say(other, "bob") == "the key that signed is not allowed to sign for bob"
    nobody = ask(signers="")
    assert say(nobody, "bob") == "no allowed signer has the key that signed"
    assert [one.grants for one in (ledger, old, other, nobody)] == [[]] * 4


def test_a_signature_for_another_purpose_or_of_no_form_is_none() -> None:
    ledger = ask()
    message = text(ledger, "bob").encoded()
    for number, signature in enumerate((KEYS["bob"].sign(message, "file"), "x" * 5000, "", "-----BEGIN")):
        respond(ledger, "approve", by="bob", name=f"odd-{number}", signature=signature)
        assert ledger.core.ignored[-1].why.startswith("the signature ")
    assert ledger.grants == []


def test_each_vote_has_its_own_signature_and_one_key_is_one_vote() -> None:
    both = KEYS["bob"].line("bob,carol") + KEYS["dan"].line("dan")
    ledger = ask(TWO, both)
    assert say(ledger, "bob") == "approval_voted"
    assert say(ledger, "carol", with_key="bob") == "that key has signed this already: 2 different ones must"
    assert say(ledger, "bob") == "who has approved this already is counted once: 2 different ones must"
    assert ledger.grants == []
    assert say(ledger, "dan") == "approval_decided"
    decided = state(ledger).decision
    assert decided is not None
    assert decided.signature is not None
    assert (decided.votes, decided.signature.key) == (("bob", "dan"), KEYS["dan"].fingerprint)
    assert len(ledger.grants) == 1


def forged_vote(ledger: Ledger, by: str, signature: ApproverSignature | None) -> None:
    requested = state(ledger).requested
    assert requested is not None
    bound = {name: getattr(requested, name) for name in ("args_hash", "tool_version", "rule")}
    principal = RecordedPrincipal(id=by, kind=PrincipalKind.PERSON, roles=tuple(Role), tenant=TENANT)
    vote = about(ev.ApprovalVoted, "a", args=PAID, tool="pay", approver=by, principal=principal, **bound)
    ledger.add(vote.model_copy(update={"signature": signature}))
    ledger.settle()


def test_votes_that_somebody_else_wrote_into_the_log_are_not_counted_and_stand_in_nobody_s_way() -> None:
    ledger = ask(TWO)
    forged_vote(ledger, "bob", None)
    forged_vote(ledger, "carol", ApproverSignature(key=KEYS["carol"].fingerprint, armored="x"))
    mine = KEYS["mallory"].sign(text(ledger, "dan").encoded())
    forged_vote(ledger, "dan", ApproverSignature(key=KEYS["dan"].fingerprint, armored=mine))
    assert (state(ledger).decision, ledger.grants, len(state(ledger).votes)) == (None, [], 3)
    assert say(ledger, "bob") == "approval_voted"
    assert ledger.grants == []
    assert say(ledger, "carol") == "approval_decided"
    decided = state(ledger).decision
    assert decided is not None
    assert decided.votes == ("bob", "carol")


def test_a_no_and_an_edit_are_signed_the_edit_for_the_arguments_that_it_makes() -> None:
    less = PAID | {"amount": 400}
    ledger = ask()
    wrong = text(ledger, "bob", "edit", data_hash=args_hash(PAID | {"amount": 40}))
    assert "of something else" in say(ledger, "bob", "edit", text=wrong, data={"amount": 400})
    right = text(ledger, "bob", "edit", data_hash=args_hash(less))
    assert say(ledger, "bob", "edit", text=right, data={"amount": 400}) == "job_waiting"
    again = state(ledger, less).requested
    assert again is not None
    assert (again.signed, again.edited_by) == (True, "bob")
    respond(ledger, "approve", by="carol", args=less, name="plain")
    assert ledger.grants == []
    assert say(ledger, "carol", "reject", args=less) == "invocation_rejected"


def test_what_an_edit_makes_is_asked_for_as_before_where_the_rule_is_gone() -> None:
    ledger = ask(ONE)
    ledger.surroundings.policy = world('[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"\n').policy
    other = ledger.surroundings.ledger()
    less = PAID | {"amount": 400}
    right = text(other, "bob", "edit", data_hash=args_hash(less))
    say(other, "bob", "edit", text=right, data={"amount": 400})
    again = state(other, less).requested
    assert again is not None
    assert again.signed is True


def test_an_emergency_is_signed_as_one() -> None:
    ledger = ask(TWO)
    principal = RecordedPrincipal(id="bob", kind=PrincipalKind.PERSON, roles=tuple(Role), breaks_glass=True)
    assert "of something else" in say(ledger, "bob", principal=principal, comment="fire")
    respond(ledger, "approve", by="bob", name="plain", principal=principal, comment="fire")
    assert "must sign it" in ledger.core.ignored[-1].why
    alone = replace(text(ledger, "bob"), break_glass=True)
    assert say(ledger, "bob", text=alone, principal=principal, comment="fire") == "approval_decided"
    assert len(ledger.grants) == 1


@pytest.mark.parametrize(("verdict", "moves"), [("happened", False), ("not_executed", False), ("retry", True)])
def test_what_cannot_be_signed_is_not_said_and_a_retry_is_signed_anew(verdict: str, moves: bool) -> None:
    ledger = ask()
    say(ledger, "bob")
    ledger.add(started("a", "n1", args=PAID, tool="pay"))
    ledger.add(about(ev.InvocationParked, "a", args=PAID, tool="pay", invocation_id="n1", reason="?"))
    resolved: dict[str, Any] = {"execution_id": execution_id(JOB, "a", key()), "verdict": verdict, "evidence": "seen"}
    resolved["as_of"] = ledger.job.last_offset
    ledger.core.hear(Resolve.model_validate({"job_id": JOB, **said_by("bob"), "tenant": TENANT} | resolved), "r", 8)
    ledger.settle()
    assert (state(ledger).status is not KeyStatus.PARKED) is moves
    if not moves:
        assert "can't be signed" in ledger.core.ignored[-1].why
        return
    requested = state(ledger).requested
    assert requested is not None
    assert (requested.signed, requested.token) == (True, 2)
    assert len(ledger.grants) == 1


def test_nobody_signs_where_no_file_was_read() -> None:
    ledger = asked(ONE)
    assert ledger.surroundings.signers == AllowedSigners()
    assert say(ledger, "bob") == "no allowed signer has the key that signed"


@pytest.mark.parametrize("effect", ['effect = "allow"', 'effect = "deny"', 'effect = "observe"\nwould = "deny"'])
def test_only_what_is_asked_for_can_be_signed(effect: str) -> None:
    with pytest.raises(PolicyError, match="signed"):
        parse(f'[[rules]]\nname = "pay"\ntools = ["pay"]\n{effect}\nsigned = true\n')


def test_a_policy_names_a_rule_that_asks_for_signatures_and_its_text_has_a_hash() -> None:
    assert (parse(ONE).signed, parse(PAY).signed) == ("pay", None)
    observed = PAY.replace("approval", "observe") + 'would = "approval"\nsigned = true\n'
    assert parse(observed).signed is None
    assert parse(ONE).hash == hashlib.sha256(ONE.encode()).hexdigest()
