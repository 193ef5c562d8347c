"""Which executors live and what they serve, from the topics `workers` and `tools.registry`, and who wants to know."""

from collections.abc import Callable

from aetheris.ledger.ended_workers import EndedWorkers
from aetheris.protocol.messages.commands import ExecutorTools
from aetheris.protocol.tables.tool_placement import ToolPlacement
from aetheris.runtime.log.table import Table

Listener = Callable[[], None]

_PREFIX = "executor:"


class Placements:
    """One for a process, shared by its partitions."""

    def __init__(self, registry: Table, workers: EndedWorkers) -> None:
        """Before the tables are loaded."""
        self.placement = ToolPlacement()
        self._listeners: set[Listener] = set()
        workers.follow(self._lives)
        registry.on_change(self._said)

    def listen(self, listener: Listener) -> None:
        """Call `listener` whenever another executor lives, or serves something else."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Call it no longer."""
        self._listeners.discard(listener)

    def _lives(self, worker_id: str, incarnation: str | None) -> None:
        if self.placement.lives(worker_id, incarnation):
            self._tell()

    def _said(self, key: str, value: bytes | None) -> None:
        if key.startswith(_PREFIX):
            self.placement.said(key.removeprefix(_PREFIX), ExecutorTools.read(key, value))
            self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()
