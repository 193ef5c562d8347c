"""Which lives of workers have ended, from the topic `workers`, and who wants to know (docs/guarantees.md)."""

from collections.abc import Callable

from aetheris.ledger.core.live_jobs import WorkerLife
from aetheris.protocol.fold.workers import Ended, Names, name_of
from aetheris.protocol.tables.signed_messages import IsTheirs
from aetheris.runtime.log.table import Table

Listener = Callable[[WorkerLife], None]
Follower = Callable[[str, str | None], None]
"""A name, and the incarnation that lives under it."""


class EndedWorkers:
    """Every ended life, with how its end is known; one for a process, shared by its partitions."""

    def __init__(self, table: Table, is_theirs: IsTheirs) -> None:
        """Before the table is loaded: which record counts is said by those before it, and whose by `is_theirs`."""
        self.ended: dict[WorkerLife, Ended] = {}
        self._names = Names(is_theirs)
        self._listeners: set[Listener] = set()
        self._followers: list[Follower] = []
        table.on_change(self._take)

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every life that ends from now on."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Call it no longer."""
        self._listeners.discard(listener)

    def follow(self, follower: Follower) -> None:
        """Call `follower` with who lives under a name, whenever something is said of it."""
        self._followers.append(follower)

    def _take(self, key: str, value: bytes | None) -> None:
        """A life that was known to have ended stays so, also where its entry is gone."""
        for life in self._names.take(key, value).ended:
            self.ended[life] = self._names[life[0]].ended[life[1]]
            for listener in tuple(self._listeners):
                listener(life)
        worker_id = name_of(key)
        for follower in self._followers:
            follower(worker_id, self._names[worker_id].live)
