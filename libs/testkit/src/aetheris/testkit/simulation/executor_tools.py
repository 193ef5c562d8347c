"""What executors say that they serve, as one simulated ledger has read it: everything, or for a while nothing."""

from aetheris.protocol.messages.registry_lines import ExecutorTools
from aetheris.protocol.tables.tool_placement import ToolPlacement

_NAME, _LIFE = "w", "i"


class SimulatedExecutorTools:
    """One executor for all; who has said nothing may serve anything."""

    def __init__(self) -> None:
        self.placement = ToolPlacement()
        self.placement.lives(_NAME, _LIFE)
        self.serve = True

    def toggle(self) -> None:
        """It stops to serve, or serves again."""
        self.serve = not self.serve
        nothing = ExecutorTools(worker_id=_NAME, incarnation=_LIFE)
        self.placement.said(_NAME, None if self.serve else nothing)
