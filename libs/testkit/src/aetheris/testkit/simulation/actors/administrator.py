"""Who administers the policy, simulated, and who would like to: what of it counts the topic's order says."""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import POLICY_KEY, PolicyActivation, PolicyAnswer, RulesOrder
from aetheris.runtime.keys.records import RecordKeys
from aetheris.testkit.simulation.activated import FORGED
from aetheris.testkit.simulation.installation import keys_of, line
from aetheris.testkit.simulation.log import again
from aetheris.testkit.simulation.scenario import ACTIVATED_TEXTS, POLICY_TEXTS
from aetheris.testkit.simulation.surroundings import ScheduledAction, SimulationSurroundings

UNREADABLE = 'rules = "of a later version"\n'


class Administrator:
    """By way of a gateway that has read all that lies there; a line that is lost on its way he writes again."""

    def __init__(self, partitions: Sequence[SimulationSurroundings], rules_to_order: int = 0) -> None:
        """`rules_to_order`: how many later versions of the rules he orders, one some time after the other."""
        self._parts = partitions
        self._rules_to_order = rules_to_order
        self._around = partitions[0]
        self._writer = self._around.log.writer("administrator")

    def faults(self, hand_over: Callable[[], str | None]) -> tuple[Callable[[], str | None], ...]:
        """`hand_over`: a partition's ledger is replaced, and does not know it."""
        return (
            self.activates,
            self.two_activate_at_once,
            self.activates,
            self.somebody_forges_a_line,
            partial(self.activates_while, hand_over),
            self.a_line_comes_again,
        )

    def actions(self) -> list[ScheduledAction]:
        """What nobody can read does not stay in force."""
        if self._rules_to_order and not self._writer.under_way:
            return [ScheduledAction("later rules are ordered", self._order_rules)]
        if self._around.calm and self._around.activations.is_unusable and not self._writer.under_way:
            return [ScheduledAction("what nobody can read is replaced", self._replace)]
        return []

    def _order_rules(self) -> None:
        self._rules_to_order -= 1
        self.orders_rules()

    def _replace(self) -> None:
        self._activate(POLICY_TEXTS[0])

    def orders_rules(self) -> str:
        """Jobs are created under the next version."""
        order = RulesOrder(number=self._around.rules.ordered + 1, by="olga", at="now")
        self._around.rules.ordered = order.number
        self._writer.append([line(Topic.POLICIES, self._id(), order, self._keys)])
        return f"version {order.number} of the rules is ordered"

    def activates(self) -> str:
        """Another policy, or now and then one that this version can't read."""
        tape = self._around.tape
        unreadable = tape.chance(0.1)
        number = self._activate(UNREADABLE if unreadable else tape.pick(ACTIVATED_TEXTS))
        return f"activation {number} is ordered{', which nobody can read' if unreadable else ''}"

    def two_activate_at_once(self) -> str:
        """By way of two gateways: one counts."""
        number = self._activate(self._around.tape.pick(ACTIVATED_TEXTS))
        self._around.log.adrift(line(Topic.POLICIES, self._id(), self._activation("another's"), self._keys))
        return f"two order activation {number} at once"

    def activates_while(self, hand_over: Callable[[], str | None]) -> str | None:
        """A partition changes hands in the middle of it."""
        if self._around.tape.chance(0.5):
            return f"{self.activates()}, then {hand_over()}"
        handed = hand_over()
        return f"{handed}, then {self.activates()}" if handed is not None else None

    def somebody_forges_a_line(self) -> str:
        """With a number that is not the next, or another text's hash; where lines are signed, without a signature."""
        tape, around = self._around.tape, self._around
        number = around.activations.number
        wrong: list[PolicyActivation] = [
            self._activation("too early", off=1 + tape.below(2)),
            self._activation("too late", off=-1 if number else 1),
            self._activation("another text", policy_hash=sha256(b"").hexdigest()),
        ]
        answers = (PolicyAnswer(number=number, partition=part.number) for part in self._parts)
        unsigned: list[PolicyActivation | PolicyAnswer] = [self._activation("unsigned"), *answers]
        if around.rooted and tape.chance(0.7):
            body, id_, keys = tape.pick(unsigned), FORGED + self._id(), keys_of()
        else:
            body, id_, keys = tape.pick(wrong), self._id(), self._keys
        around.log.adrift(line(Topic.POLICIES, id_, body, keys))
        return f"somebody forges {id_} in the topic of policies"

    def a_line_comes_again(self) -> str | None:
        """Of any age, to the byte."""
        entries = self._around.log.topics[Topic.POLICIES]
        if not entries:
            return None
        entry = self._around.tape.pick(entries)
        self._around.log.adrift(again(Topic.POLICIES, (entry,)))
        return f"{type(entry.body).__name__} at {entry.record.offset} comes again"

    @property
    def _keys(self) -> RecordKeys:
        return keys_of(Party.GATEWAY) if self._around.rooted else keys_of()

    def _activate(self, text: str) -> int:
        order = self._activation(text)
        self._writer.append([line(Topic.POLICIES, self._id(), order, self._keys)])
        return order.number

    def _activation(self, text: str, *, off: int = 0, policy_hash: str | None = None) -> PolicyActivation:
        """No two are of one text."""
        policy = f"# {self._around.fresh('text-')}\n{text}" if "rules" in text else f"# {text}\n{POLICY_TEXTS[0]}"
        return PolicyActivation(
            number=max(1, self._around.activations.number + 1 + off),
            policy=policy,
            policy_hash=policy_hash or sha256(policy.encode()).hexdigest(),
            by="olga",
            at="",
        )

    def _id(self) -> str:
        return self._around.fresh(f"{POLICY_KEY}-")
