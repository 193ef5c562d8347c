"""The topic of policies as a simulated process reads it."""

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import POLICY_KEY, PolicyActivation, PolicyAnswer
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.testkit.simulation.installation import installation
from aetheris.testkit.simulation.surroundings import SimulatedReader, SimulationSurroundings


class PolicyLines:
    """What counts of it, as far as it was read."""

    def __init__(self, around: SimulationSurroundings) -> None:
        self.activations = PolicyActivations()
        self._reader = SimulatedReader(around, {Topic.POLICIES: 0})
        self._messages = SignedMessages((installation(),) if around.rooted else ())

    @property
    def has_more(self) -> bool:
        """Whether something unread lies there."""
        return self._reader.has_more

    def read(self) -> list[PolicyActivation | PolicyAnswer]:
        """Everything up to the end, of which that counts."""
        found: list[PolicyActivation | PolicyAnswer] = []
        for one in self._reader.read_all(Topic.POLICIES):
            is_theirs = self._messages.counts(Topic.POLICIES, one.body.type_name, POLICY_KEY.encode(), one.record.value)
            if is_theirs and self.activations.hear(one.body):
                found.append(one.body)
        return found
