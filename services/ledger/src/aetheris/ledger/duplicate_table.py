"""The table `ledger.contents`: calls by what they mean, in all partitions, and who wants to hear of it."""

from collections.abc import Callable

from pydantic import ValidationError

from aetheris.ledger.core.duplicate_index import DuplicateIndex
from aetheris.protocol.messages.commands import ContentRecord
from aetheris.runtime.log.table import Table

Listener = Callable[[ContentRecord], None]
"""Of a line that was read."""


class DuplicateTable:
    """The lines as the core has them, kept as the table has them; one for a process."""

    def __init__(self, table: Table) -> None:
        self.index = DuplicateIndex()
        self.partitions = table.partitions
        self._listeners: set[Listener] = set()
        for key, value in table.items():
            self._take(key, value)
        table.on_change(self._take)

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every line that changes from now on."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Call it no longer."""
        self._listeners.discard(listener)

    def _take(self, _key: str, value: bytes | None) -> None:
        try:
            line = ContentRecord.model_validate_json(value or b"")
        except ValidationError:
            return
        self.index.take(line)
        for listener in tuple(self._listeners):
            listener(line)
