"""Which policy holds, and which partitions' ledgers decide by it, as the topic `policies` says (docs/policy.md)."""

import hashlib
from collections.abc import Mapping

from aetheris.protocol.messages.commands import PolicyActivation, PolicyAnswer

MAX_POLICY_BYTES = 256 * 1024
"""Of a policy's text, in UTF-8."""


class PolicyActivations:
    """All activations that count; all who have read the topic as far say the same."""

    def __init__(self) -> None:
        self.history: list[PolicyActivation] = []
        """Oldest first; the texts of earlier ones are left out."""
        self._answers: dict[int, PolicyAnswer] = {}

    @property
    def last(self) -> PolicyActivation | None:
        """The one in force; None before the first."""
        return self.history[-1] if self.history else None

    @property
    def number(self) -> int:
        """Of the one in force; 0 before the first."""
        return len(self.history)

    @property
    def answers(self) -> Mapping[int, PolicyAnswer]:
        """The answers to the one in force, by partition."""
        return self._answers

    def take(self, activation: PolicyActivation) -> bool:
        """Take the next one; whether it counts: it has the next number, and is what it says."""
        text = activation.policy.encode(errors="surrogatepass")
        is_whole = len(text) <= MAX_POLICY_BYTES and hashlib.sha256(text).hexdigest() == activation.policy_hash
        if activation.number != self.number + 1 or not is_whole:
            return False
        if self.history:
            self.history[-1] = self.history[-1].model_copy(update={"policy": ""})
        self.history.append(activation)
        self._answers = {}
        return True

    def answer(self, answer: PolicyAnswer) -> bool:
        """Take a partition's answer; whether it is one to the activation in force."""
        if self.number == 0 or answer.number != self.number or answer.partition < 0:
            return False
        self._answers[answer.partition] = answer
        return True
