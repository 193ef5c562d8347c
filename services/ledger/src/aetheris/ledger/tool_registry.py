"""The registered tools, from the table `tools.registry`: what forms are made of, and edits are held against."""

from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.runtime.log.table import Table


class ToolRegistry:
    """Entries by name and version, parsed when they are asked for."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._parsed: dict[str, RegistryEntry] = {}
        table.on_change(self._changed)

    def registered(self, name: str, version: str) -> RegistryEntry | None:
        """The entry of this very version; None where there is none."""
        key = f"{name}@{version}"
        if key not in self._parsed:
            entry = RegistryEntry.read(key, self._table.get(key))
            if entry is None:
                return None
            self._parsed[key] = entry
        return self._parsed[key]

    def _changed(self, key: str, _value: bytes | None) -> None:
        self._parsed.pop(key, None)
