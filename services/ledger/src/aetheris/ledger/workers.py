"""Which lives of workers have ended, from the table `workers`, and who wants to know (docs/guarantees.md)."""

from collections.abc import Callable

from pydantic import ValidationError

from aetheris.ledger.core.memory import WorkerLife
from aetheris.protocol.messages.commands import WorkerEntry
from aetheris.runtime.log.table import Table

Listener = Callable[[WorkerLife], None]


class Workers:
    """Every ended life, with how its end is known; one for a process, shared by its partitions."""

    def __init__(self, table: Table) -> None:
        self.ended: dict[WorkerLife, str] = {}
        self._listeners: set[Listener] = set()
        for key, value in table.items():
            self._take(key, value)
        table.on_change(self._take)

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every life that ends from now on."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Call it no longer."""
        self._listeners.discard(listener)

    def _take(self, _key: str, value: bytes | None) -> None:
        """A life that was known to have ended stays so, also where its entry is gone."""
        try:
            entry = WorkerEntry.model_validate_json(value or b"")
        except ValidationError:
            return
        for end in entry.ended:
            life = (entry.worker_id, end.incarnation)
            if life not in self.ended and end.incarnation != entry.live:
                self.ended[life] = end.how
                for listener in tuple(self._listeners):
                    listener(life)
