"""The tools that plans may name, the newest registered version of each; and the models."""

import re
from collections.abc import Collection, Iterable, Mapping

import structlog

from aetheris.protocol.messages.commands import ExecutorTools, ModelEntry, RegistryEntry, ToolRelease
from aetheris.protocol.messages.registry_lines import DEFAULT_POOL
from aetheris.protocol.planning.schemas import Schema
from aetheris.runtime.log.table import Table
from aetheris.runtime.telemetry.metrics import Metric, Metrics

_log = structlog.get_logger(__name__)

_SHOWN = 200
_NUMBER = re.compile(r"(\d+)")


class Registry:
    """tools.registry, as submissions are checked against it: a line that describes nothing is passed over, and told."""

    def __init__(self, table: Table, metrics: Metrics) -> None:
        """Before the table is loaded."""
        self._metrics = metrics
        self._entries: dict[str, RegistryEntry] = {}
        """By their keys."""
        self._models: dict[str, ModelEntry] = {}
        self._executors: dict[str, ExecutorTools] = {}
        """By their keys."""
        self._newest: dict[str, RegistryEntry] | None = None
        table.on_change(self._changed)

    def newest(self) -> Mapping[str, RegistryEntry]:
        """Tool name → the entry of its highest version."""
        if self._newest is None:
            self._newest = _newest(self._entries.values())
        return self._newest

    def models(self) -> Mapping[str, ModelEntry]:
        """Model name → its entry."""
        return {one.name: one for _, one in sorted(self._models.items())}

    def pools(self) -> Collection[str]:
        """The pools of which executors have ever said that they are of one."""
        return sorted({DEFAULT_POOL, *(line.pool for line in self._executors.values())})

    def executors(self) -> Mapping[str, ExecutorTools]:
        """Name of a worker → what its last life that said so serves."""
        return {line.worker_id: line for line in self._executors.values()}

    def schema(self, name: str, version: str, schema_hash: str | None = None) -> Schema | None:
        """The schema of this very version; None where it is not registered, or is another by now."""
        entry = self._entries.get(f"{name}@{version}")
        return entry.schema_ if entry is not None and schema_hash in (None, entry.schema_hash) else None

    def verifies(self, name: str, version: str) -> bool:
        """Whether what this very version of a tool did can be compared with the external system."""
        entry = self._entries.get(f"{name}@{version}")
        return entry is not None and entry.verifier

    def _changed(self, key: str, value: bytes | None) -> None:
        self._newest = None
        self._entries.pop(key, None)
        self._models.pop(key, None)
        self._executors.pop(key, None)
        tool, model = RegistryEntry.read(key, value), ModelEntry.read(key, value)
        if tool is not None:
            self._entries[key] = tool
        elif model is not None:
            self._models[key] = model
        elif (line := ExecutorTools.read(key, value)) is not None:
            self._executors[key] = line
        elif value is not None and ToolRelease.read(key, value) is None:
            _log.warning("a line of tools.registry describes no tool and no model: passed over", key=key[:_SHOWN])
            self._metrics.count(Metric.TOOL_LINES_REFUSED)


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts 1.10 after 1.9, and a release after what is named before it (1.0 after 1.0-rc1)."""
    release, dash, before = version.partition("-")
    parts = [*_parts(release), (0, 0, "") if dash else (0, 1, ""), *_parts(before)]
    return tuple(parts)


def _parts(text: str) -> list[tuple[int, int, str]]:
    """Numbers compare as numbers, and above words."""
    return [(2, int(part), "") if part.isdecimal() else (1, 0, part) for part in _NUMBER.split(text) if part != ""]


def _newest(entries: Iterable[RegistryEntry]) -> dict[str, RegistryEntry]:
    found: dict[str, RegistryEntry] = {}
    for entry in entries:
        held = found.get(entry.name)
        if held is None or version_order(entry.version) > version_order(held.version):
            found[entry.name] = entry
    return dict(sorted(found.items()))
