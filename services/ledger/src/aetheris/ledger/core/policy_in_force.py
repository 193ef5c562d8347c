"""Which policy a ledger decides by: the configured one, until the first activation; what was activated, from then on.

An activation that this version can't use holds everything: it guesses nothing.
"""

from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.messages.commands import PolicyActivation
from aetheris.protocol.planning.policy import Policy, PolicyError, parse

_LONGEST_WHY = 500


class PolicyInForce:
    """Of a process: all its partitions decide by the same."""

    def __init__(self, signers: AllowedSigners | None = None) -> None:
        self.activated: Policy | None = None
        """None as long as the configured one holds."""
        self.number = 0
        """Of the activation; 0: the configured one."""
        self.unusable: str | None = None
        """Why nothing is decided."""
        self.missing: dict[int, int] = {}
        """Partition → the activation that jobs' decisions there name, and that the topic, read to its end, lacks."""
        self._signers = signers or AllowedSigners()

    def take(self, activation: PolicyActivation) -> None:
        """It counts: from here on it decides; taken up again it is the same."""
        if activation.number <= self.number:
            return
        self.number, self.unusable = activation.number, None
        try:
            self.activated = parse(activation.policy)
        except Exception as error:  # noqa: BLE001 - whatever it is, another ledger that starts would meet it again
            why = str(error)[:_LONGEST_WHY] if isinstance(error, PolicyError) else type(error).__name__
            self.unusable = f"this version can't read the policy of activation {self.number}: {why}"
            return
        if self.activated.signed is not None and not self._signers.lines:
            rule = f"rule {self.activated.signed!r} asks for signatures"
            self.unusable = f"activation {self.number}: {rule}, and AETHERIS_SIGNERS names no signers"
