"""Tools that a person has released from quarantine, from the topic `tools.registry`, and who wants to know."""

from collections.abc import Callable, Iterator

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import ToolRelease
from aetheris.protocol.tables.signed_messages import IsTheirs
from aetheris.runtime.log.table import Table

Listener = Callable[[ToolRelease], None]


class Releases:
    """The last release of each tool and tenant; one for a process, shared by its partitions."""

    def __init__(self, table: Table, is_theirs: IsTheirs) -> None:
        """`is_theirs` says whose releases count."""
        self._is_theirs = is_theirs
        self._known: dict[str, ToolRelease] = {}
        self._listeners: set[Listener] = set()
        for key, value in table.items():
            self._take(key, value)
        table.on_change(self._take)

    def __iter__(self) -> Iterator[ToolRelease]:
        return iter(tuple(self._known.values()))

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every release from now on."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Call it no longer."""
        self._listeners.discard(listener)

    def _take(self, key: str, value: bytes | None) -> None:
        release = ToolRelease.read(key, value)
        if release is None or not self._is_theirs(Topic.TOOLS_REGISTRY, release.type_name, key.encode(), value or b""):
            return
        self._known[key] = release
        for listener in tuple(self._listeners):
            listener(release)
