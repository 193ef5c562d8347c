"""The tools that plans may name, the newest registered version of each; and the models."""

import re
from collections.abc import Mapping

from pydantic import ValidationError

from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry
from aetheris.protocol.planning.schemas import Schema
from aetheris.runtime.log.table import Table

_NUMBER = re.compile(r"(\d+)")


class Registry:
    """tools.registry, as submissions are checked against it."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._newest: dict[str, RegistryEntry] | None = None
        self._models: dict[str, ModelEntry] | None = None
        table.on_change(self._changed)

    def newest(self) -> Mapping[str, RegistryEntry]:
        """Tool name → the entry of its highest version."""
        if self._newest is None:
            self._newest = _newest(self._table)
        return self._newest

    def models(self) -> Mapping[str, ModelEntry]:
        """Model name → its entry."""
        if self._models is None:
            self._models = _models(self._table)
        return self._models

    def schema(self, name: str, version: str, schema_hash: str | None = None) -> Schema | None:
        """The schema of this very version; None where it is not registered, or is another by now."""
        try:
            entry = RegistryEntry.model_validate_json(self._table.get(f"{name}@{version}") or b"")
        except ValidationError:
            return None
        return entry.schema_ if schema_hash in (None, entry.schema_hash) else None

    def verifies(self, name: str, version: str) -> bool:
        """Whether what this very version of a tool did can be compared with the external system."""
        try:
            return RegistryEntry.model_validate_json(self._table.get(f"{name}@{version}") or b"").verifier
        except ValidationError:
            return False

    def _changed(self, _key: str, _value: bytes | None) -> None:
        self._newest = self._models = None


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts 1.10 after 1.9, and a release after what is named before it (1.0 after 1.0-rc1)."""
    release, dash, before = version.partition("-")
    parts = [*_parts(release), (0, 0, "") if dash else (0, 1, ""), *_parts(before)]
    return tuple(parts)


def _parts(text: str) -> list[tuple[int, int, str]]:
    """Numbers compare as numbers, and above words."""
    return [(2, int(part), "") if part.isdecimal() else (1, 0, part) for part in _NUMBER.split(text) if part != ""]


def _models(table: Table) -> dict[str, ModelEntry]:
    found: dict[str, ModelEntry] = {}
    for _, value in table.items():
        try:
            entry = ModelEntry.model_validate_json(value)
        except ValidationError:
            continue
        found[entry.name] = entry
    return dict(sorted(found.items()))


def _newest(table: Table) -> dict[str, RegistryEntry]:
    found: dict[str, RegistryEntry] = {}
    for _, value in table.items():
        try:
            entry = RegistryEntry.model_validate_json(value)
        except ValidationError:
            continue
        held = found.get(entry.name)
        if held is None or version_order(entry.version) > version_order(held.version):
            found[entry.name] = entry
    return dict(sorted(found.items()))
