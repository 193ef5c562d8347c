"""Permission, as the log has it: the policy's own word, what humans are asked, their votes and decisions."""

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.messages.event_base import Event, KeyEvent
from aetheris.protocol.messages.event_values import BlobRef, Decision, Observed, RecordedPrincipalKind, RecordedRole


class ApproverSignature(BaseModel):
    """That an approver signed what he said, with a key of his own (docs/approvals.md)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    key: str
    """The fingerprint of his key, as `ssh-keygen -l` shows it."""
    armored: str
    """The signature, as `ssh-keygen -Y sign` writes it, or of a passkey in the same form."""


class _ByRule(KeyEvent):
    """What a rule of the policy says of a call, and whom it names to decide about it, for the whole of its life."""

    args_hash: str
    tool_version: str
    rule: str
    observed: tuple[Observed, ...] | None = None
    """What rules that only observe would have done."""
    approvers: tuple[str, ...] | None = None
    approver_roles: tuple[RecordedRole, ...] | None = None
    approver_kinds: tuple[RecordedPrincipalKind, ...] | None = None
    approvals: int | None = Field(default=None, ge=2)
    """How many different principals must say yes; absent: one."""
    self_approval: bool | None = None
    signed: bool | None = None
    """Whether each who decides must sign what he says with a key of his own."""
    cost: float | None = None
    policy_hash: str | None = None
    """hex SHA-256 of the policy whose rule it is."""
    activation: int | None = None
    """Its activation; 0: the ledger's configured policy, before the first."""


class PolicyAllowed(_ByRule):
    """The call may start without anybody's yes; whom it names says what became of it, once that is in doubt."""

    event_type: ClassVar[str] = "policy_allowed"
    repeats: Literal["allow"] | None = None
    """The rule lets a body make the same irreversible call again, by its occurrence; else a human is asked."""


class ApprovalRequested(_ByRule):
    event_type: ClassVar[str] = "approval_requested"
    form: dict[str, Any]
    expires_at: str | None = None
    edited_by: str | None = None
    """Who made this call of another by an edit."""
    token: int | None = None
    """The generation from which on it counts: absent (1), or that which a human's retry began."""

    @property
    def generation(self) -> int:
        """The token, where absent is 1."""
        return 1 if self.token is None else self.token


class ApprovalVoted(KeyEvent):
    """A yes that may not be enough by itself: the rule asks for several. Nothing starts by it."""

    event_type: ClassVar[str] = "approval_voted"
    args_hash: str
    tool_version: str
    rule: str
    approver: str
    principal: RecordedPrincipal | None = None
    signature: ApproverSignature | None = None
    comment: str | None = None
    token: int | None = None
    """Its request's."""

    @property
    def generation(self) -> int:
        """The token, where absent is 1."""
        return 1 if self.token is None else self.token


class ApprovalDecided(KeyEvent):
    event_type: ClassVar[str] = "approval_decided"
    args_hash: str
    tool_version: str
    rule: str
    decision: Decision
    approver: str
    principal: RecordedPrincipal | None = None
    signature: ApproverSignature | None = None
    """Of what he says; where several must, of the vote that was the last."""
    votes: tuple[str, ...] | None = None
    """Whose yes it rests on, where the rule asks for several: each has an approval_voted before it."""
    comment: str | None = None
    data: dict[str, Any] | None = None
    token: int | None = None
    """Its request's."""

    @property
    def generation(self) -> int:
        """The token, where absent is 1."""
        return 1 if self.token is None else self.token


class ResolutionVoted(Event):
    """A word on what is parked, or could not be confirmed, that is not enough by itself: the rule asks for several.

    Nothing is settled by it. Of a parked call it names node, key and invocation, of a confirmation its correlation key.
    """

    event_type: ClassVar[str] = "resolution_voted"
    node_id: str | None = None
    idempotency_key: str | None = None
    invocation_id: str | None = None
    correlation_key: str | None = None
    verdict: Literal["happened", "not_executed", "accepted"]
    by: str
    as_of: int | None = None
    """Of a word on a parked call: the offset that was read when it was said. It lies behind his word before."""
    principal: RecordedPrincipal | None = None
    evidence: Any = None
    result: Any = None
    """What the call came to, as he says; of a confirmation, what the signal said."""
    result_ref: BlobRef | None = None
    output_hash: str | None = None
    """Of the result, where the call happened: who says another result says something else."""
