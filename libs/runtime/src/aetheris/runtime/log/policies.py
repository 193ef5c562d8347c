"""Which policies people have activated, from the topic `policies`, and who wants to know: one for a process."""

from collections.abc import Callable

from pydantic import ValidationError

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.policy_activations import PolicyActivations
from aetheris.protocol.messages.commands import PolicyActivation, PolicyAnswer
from aetheris.runtime.log.freezes import IsTheirs
from aetheris.runtime.log.table import Table

Listener = Callable[[PolicyActivation | PolicyAnswer], None]


class PolicyTable:
    """All activations in their order, and the answers to the last."""

    def __init__(self, table: Table, is_theirs: IsTheirs | None = None) -> None:
        """Before the table is loaded: which record counts is said by those before it."""
        self.activations = PolicyActivations()
        self._is_theirs = is_theirs
        self._listeners: set[Listener] = set()
        self._table = table
        table.on_change(self._take)

    async def caught_up(self) -> None:
        """Everything that is activated now is known here.

        Raises:
            LogUnreachable: no answer from the brokers.
        """
        await self._table.caught_up()

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every record that counts from now on."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Call it no longer."""
        self._listeners.discard(listener)

    def _take(self, key: str, value: bytes | None) -> None:
        record = _read(value or b"")
        if record is None or record.key != key or not self._counts(record, value or b""):
            return
        is_first = isinstance(record, PolicyActivation)
        counts = self.activations.take(record) if is_first else self.activations.answer(record)
        if counts:
            for listener in tuple(self._listeners):
                listener(record)

    def _counts(self, record: PolicyActivation | PolicyAnswer, value: bytes) -> bool:
        """The gateway activates, the ledger answers, and nobody else."""
        if self._is_theirs is None:
            return True
        return self._is_theirs(Topic.POLICIES, record.type_name, record.key.encode(), value)


def _read(value: bytes) -> PolicyActivation | PolicyAnswer | None:
    """An activation, or an answer, which has a partition; None for what is neither."""
    for kind in (PolicyAnswer, PolicyActivation):
        try:
            return kind.model_validate_json(value)
        except ValidationError:
            continue
    return None
