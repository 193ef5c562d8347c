"""What an approver signs, to the byte, and whether a signature is his (docs/approvals.md, "Signed")."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal

from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.canonical import InvalidArgs, canonical
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.base.sshsig import SshSignatureInvalid, read_signature
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages.approval_events import ApprovalRequested, ApprovalVoted
from aetheris.protocol.planning.approvals import request_id, voter

NAMESPACE = "aetheris-approval"
"""Of the signature: a key's other signatures are none here."""
_HEAD = "aetheris approval 1"

Said = Literal["approve", "edit", "reject"]


class SignatureRefused(Exception):
    """It is no signature of this by a key of his; the message says why, and quotes nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """The request that is signed, with all that tells it from every other; None where the log has nothing."""

    installation: str | None
    tenant: str
    job: str
    step: str
    request: str
    tool: str
    tool_version: str
    args_hash: str
    rule: str
    policy_hash: str | None
    approvals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalText:
    """What somebody says to it. `data_hash`: of the arguments that an edit makes, as args_hash is made."""

    asked: SignedRequest
    approver: str
    decision: Said
    data_hash: str | None = None
    break_glass: bool = False

    @classmethod
    def by(
        cls, who: RecordedPrincipal, asked: SignedRequest, decision: Said, data_hash: str | None = None
    ) -> "ApprovalText":
        """What somebody signs who says this."""
        breaks = bool(who.breaks_glass)
        return cls(asked=asked, approver=who.id, decision=decision, data_hash=data_hash, break_glass=breaks)

    def encoded(self) -> bytes:
        """A line for each field, `name: value`, the value in canonical JSON: no text of a field can make another line.

        Raises:
            SignatureRefused: a field holds what can't be written so.
        """
        asked = {one.name: getattr(self.asked, one.name) for one in fields(self.asked)}
        said = {"approver": self.approver, "decision": self.decision, "data_hash": self.data_hash}
        named = asked | said | {"break_glass": self.break_glass}
        try:
            lines = [f"{name}: {canonical(value).decode()}\n" for name, value in named.items()]
        except InvalidArgs:
            raise SignatureRefused("what is to be signed has no canonical form") from None
        return "".join((f"{_HEAD}\n", *lines)).encode()


def signed_request(job: JobState, key: str, requested: ApprovalRequested) -> SignedRequest:
    """What is signed of a request, as the job's log has it."""
    entry = job.entry(requested.node_id)
    return SignedRequest(
        installation=job.created.installation,
        tenant=job.created.tenant,
        job=job.job_id,
        step=requested.node_id,
        request=request_id(job.job_id, requested.node_id, key, requested.generation),
        tool=entry.node.tool_name if entry is not None else "",
        tool_version=requested.tool_version,
        args_hash=requested.args_hash,
        rule=requested.rule,
        policy_hash=requested.policy_hash,
        approvals=requested.approvals or 1,
    )


def signing_key(text: ApprovalText, armored: str | None, signers: AllowedSigners, at: datetime) -> str:
    """The fingerprint of the key of his that signed it.

    Raises:
        SignatureRefused: nothing did that counts at this time.
    """
    if armored is None:
        by = f"by rule {text.asked.rule} "
        raise SignatureRefused(
            f"{by}who says this must sign it with his own key: aetheris approve --sign-with KEYFILE, or --passkey"
        )
    try:
        signature = read_signature(armored)
    except SshSignatureInvalid as error:
        raise SignatureRefused(f"the signature can't be used: {error}") from None
    if signature.namespace != NAMESPACE:
        raise SignatureRefused(f"the signature is for something else: its namespace is not {NAMESPACE}")
    refused = signers.refusal(text.approver, signature.key, NAMESPACE, at)
    if refused is not None:
        raise SignatureRefused(refused)
    if not signature.holds(text.encoded()):
        raise SignatureRefused("the signature is of something else than this request and this answer")
    return signature.key.fingerprint


def verified_votes(
    job: JobState, key: str, state: KeyState, signers: AllowedSigners, at: datetime
) -> tuple[ApprovalVoted, ...]:
    """The votes about an open request; where they must be signed, those that are, by whoever gave them."""
    requested = state.requested
    if requested is None or not requested.signed:
        return state.votes
    asked = signed_request(job, key, requested)
    return tuple(vote for vote in state.votes if _is_signed(vote, asked, signers, at))


def _is_signed(vote: ApprovalVoted, asked: SignedRequest, signers: AllowedSigners, at: datetime) -> bool:
    if vote.signature is None:
        return False
    text = ApprovalText.by(voter(vote), asked, "approve")
    try:
        return signing_key(text, vote.signature.armored, signers, at) == vote.signature.key
    except SignatureRefused:
        return False
