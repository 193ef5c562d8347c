"""The topic of policies as a simulated process reads it."""

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import PolicyActivation, PolicyAnswer, RulesAnswer, RulesOrder
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.testkit.simulation.installation import installation
from aetheris.testkit.simulation.surroundings import SimulatedReader, SimulationSurroundings


class PolicyLines:
    """What counts of it, as far as it was read: of policies, and of rules."""

    def __init__(self, around: SimulationSurroundings) -> None:
        self.activations = PolicyActivations()
        self.rules = RulesOrders()
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
            key = one.body.key.encode()
            is_theirs = self._messages.counts(Topic.POLICIES, one.body.type_name, key, one.record.value)
            if is_theirs and self.activations.hear(one.body):
                found.append(one.body)
            elif is_theirs and isinstance(one.body, RulesOrder):
                self.rules.hear(one.body.model_copy(update={"line": one.body.model_dump_json()}))
            elif is_theirs and isinstance(one.body, RulesAnswer):
                self.rules.hear(one.body)
        return found
