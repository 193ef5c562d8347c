"""The registered tools, from the table `tools.registry`: what forms are made of, and edits are held against."""

from pydantic import ValidationError

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
        found = self._parsed.get(key)
        value = self._table.get(key) if found is None else None
        if value is None:
            return found
        try:
            self._parsed[key] = RegistryEntry.model_validate_json(value)
        except ValidationError:
            return None
        return self._parsed[key]

    def _changed(self, key: str, _value: bytes | None) -> None:
        self._parsed.pop(key, None)
