"""Which policy holds, and which partitions' ledgers decide by it, as the topic `policies` says (docs/policy.md)."""

import hashlib

from aetheris.protocol.messages.commands import POLICY_KEY, PolicyActivation, PolicyAnswer
from aetheris.protocol.tables.numbered_orders import NumberedOrders

MAX_POLICY_BYTES = 256 * 1024
"""Of a policy's text, in UTF-8."""


class PolicyActivations(NumberedOrders[PolicyActivation, PolicyAnswer]):
    """All activations that count."""

    def __init__(self) -> None:
        super().__init__(PolicyActivation, PolicyAnswer)
        self.history: list[PolicyActivation] = []
        """Oldest first; the texts of earlier ones are left out."""

    @property
    def active(self) -> PolicyActivation | None:
        """The one in force; None before the first."""
        return self.last(POLICY_KEY)

    @property
    def number(self) -> int:
        """Of the one in force; 0 before the first."""
        return len(self.history)

    def take(self, order: PolicyActivation) -> bool:
        """Take the next one; whether it counts: it has the next number, and is what it says."""
        if not super().take(order):
            return False
        if self.history:
            self.history[-1] = self.history[-1].model_copy(update={"policy": ""})
        self.history.append(order)
        return True

    def _follows(self, order: PolicyActivation, last: PolicyActivation | None) -> bool:
        text = order.policy.encode(errors="surrogatepass")
        is_whole = len(text) <= MAX_POLICY_BYTES and hashlib.sha256(text).hexdigest() == order.policy_hash
        return is_whole and order.number == (1 if last is None else last.number + 1)

    def _is_to(self, answer: PolicyAnswer, order: PolicyActivation) -> bool:
        return answer.number == order.number
