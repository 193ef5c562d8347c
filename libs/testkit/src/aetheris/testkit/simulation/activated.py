"""Which policy decides, as the topic has it: what no decision may name, and who may go by an earlier one no more."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from aetheris.ledger.core.decisions import Decision, Emit, Grant
from aetheris.protocol.messages.commands import Message, PolicyActivation, PolicyAnswer, PolicyBarrier
from aetheris.protocol.messages.events import (
    ApprovalRequested,
    Event,
    InvocationInDoubt,
    InvocationRejected,
    InvocationReopened,
    PolicyAllowed,
)
from aetheris.protocol.planning.policy import Policy, PolicyEffect, PolicyError, parse
from aetheris.testkit.simulation.external_system import ExternalCall

BY_POLICY = PolicyAllowed, ApprovalRequested, InvocationRejected
FORGED = "forged-"
"""How the id begins of what nobody has written who may."""


@dataclass(slots=True)
class ActivationWatch:
    """Of all partitions. It counts for itself what counts, and knows by its id what is forged."""

    configured: str
    """The hash of the policy that decides before the first."""
    hashes: list[str] = field(default_factory=list[str])
    """By activation, from number 1 on."""
    policies: list[Policy | None] = field(default_factory=list["Policy | None"])
    """The same; None for what can't be read."""
    answered: dict[int, int] = field(default_factory=dict[int, int])
    """Partition → the last activation that it has answered."""
    _barriers: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    """Partition → where which activation has its barrier."""
    _doubted: dict[str, None] = field(default_factory=dict[str, None])
    """Keys of which a try may have acted: such a call is settled as always."""
    went_back: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """By job: where decisions lie by an earlier activation than one before them."""
    _highest: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def number(self) -> int:
        """Of the activation in force; 0 before the first."""
        return len(self.hashes)

    def told(self, id_: str, body: Message) -> str | None:
        """The next record of the topic; what is wrong with it."""
        if id_.startswith(FORGED):
            return None
        if isinstance(body, PolicyActivation):
            policy_hash = sha256(body.policy.encode()).hexdigest()
            if body.number == self.number + 1 and body.policy_hash == policy_hash:
                self.hashes.append(policy_hash)
                self.policies.append(_read(body.policy))
        elif isinstance(body, PolicyAnswer):
            self.answered[body.partition] = max(body.number, self.answered.get(body.partition, 0))
            if all(number < body.number for _, number in self._barriers.get(body.partition, ())):
                return f"partition {body.partition} answers {body.number}, which has no barrier there"
        return None

    def passed(self, partition: int, barrier: PolicyBarrier, offset: int) -> None:
        """A barrier lies in a partition."""
        self._barriers.setdefault(partition, []).append((offset, barrier.number))

    def denied(self, call: ExternalCall, at: int, partition: int, *, approved: bool) -> str | None:
        """Why a call, whose `started` lies at an offset, may not go out: no policy that may decide there lets it."""
        barred = max((number for offset, number in self._barriers.get(partition, ()) if offset < at), default=0)
        if call.key in self._doubted or not barred:
            return None
        for policy in filter(None, self.policies[barred - 1 :]):
            effect = policy.verdict(call.tool, call.irreversible, dict).effect
            if effect is PolicyEffect.ALLOW or (effect is PolicyEffect.APPROVAL and approved):
                return None
        return f"{call.invocation_id} of {call.node_id} at {at}, no policy from activation {barred} on lets it"

    def is_answered(self, partitions: int) -> bool:
        """Whether every partition has answered the last one."""
        return not self.number or all(self.answered.get(one) == self.number for one in range(partitions))

    @property
    def is_unusable(self) -> bool:
        """Whether nobody can read the one in force."""
        return bool(self.policies) and self.policies[-1] is None

    def note(self, event: Event, offset: int) -> str | None:
        """What is wrong with a decision that counts in its job: it names what was not activated under that number."""
        if isinstance(event, InvocationInDoubt | InvocationReopened):
            self._doubted[event.idempotency_key] = None
        if not isinstance(event, BY_POLICY) or event.activation is None:
            return None
        job_id, number = event.job_id, event.activation
        if number < self._highest.get(job_id, 0):
            self.went_back.setdefault(job_id, []).append(offset)
        self._highest[job_id] = max(number, self._highest.get(job_id, 0))
        if event.policy_hash != self._hash(number):
            return f"{event.event_type} at {offset} names activation {number}, which is of another policy"
        return None

    def broken(self, number: int, least: int, decisions: Iterable[Decision]) -> str | None:
        """Why a ledger that has read so many activations may not decide this; `least`: what it has answered."""
        if not any(isinstance(one, Grant) or _names_activation(one) for one in decisions):
            return None
        if number < least:
            return f"it has answered {least}, and decides by {number}"
        if number > self.number or (number and self.policies[number - 1] is None):
            return f"it decides by {number}, which cannot be read"
        return None

    def _hash(self, number: int) -> str | None:
        if number > self.number:
            return None
        return self.hashes[number - 1] if number else self.configured


def _read(text: str) -> Policy | None:
    try:
        return parse(text)
    except PolicyError:
        return None


def _names_activation(decision: Decision) -> bool:
    if not isinstance(decision, Emit):
        return False
    named = (one.event.activation for one in decision.events if isinstance(one.event, BY_POLICY))
    return any(activation is not None for activation in named)
