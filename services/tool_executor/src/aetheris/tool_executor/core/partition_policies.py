"""By which activation of a policy a partition's calls must have been granted, as far as is read here; pure."""

from aetheris.protocol.messages.commands import PolicyBarrier
from aetheris.protocol.tables.policy_activations import PolicyActivations


class PartitionPolicies:
    """`activations` is what this process has read; what lies behind a barrier of the partition keeps to it."""

    def __init__(self, activations: PolicyActivations) -> None:
        self._activations = activations
        self._barred = 0
        self.known()

    def known(self) -> None:
        """Whatever has a barrier is among the activations, also below what is read from now on: else it is forged."""
        self._barred = self._activations.number

    def hear(self, barrier: PolicyBarrier) -> bool:
        """A barrier was read; whether its activation was."""
        self._barred = max(self._barred, barrier.number)
        return barrier.number <= self._activations.number

    def lets(self, activation: int) -> bool:
        """Whether what was granted by an activation may start."""
        return activation >= self._barred
