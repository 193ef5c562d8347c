"""Which pool of executors makes which calls, as `workers` and `tools.registry` say (docs/pools.md); pure."""

from collections.abc import Iterator

from aetheris.protocol.messages.registry_lines import DEFAULT_POOL, ExecutorTools


class ToolPlacement:
    """Who lives, and what each serves. Who has not said (yet) what it serves may serve anything, in its name's pool."""

    def __init__(self) -> None:
        self._lines: dict[str, ExecutorTools] = {}
        self._live: dict[str, str] = {}
        self._known: dict[tuple[str, str], str | None] = {}

    def __bool__(self) -> bool:
        """Whether anybody has ever lived, or said what it serves, as far as the tables tell."""
        return bool(self._live or self._lines)

    def said(self, worker_id: str, line: ExecutorTools | None) -> None:
        """What an executor serves; None: its line is gone."""
        if line is None:
            self._lines.pop(worker_id, None)
        else:
            self._lines[worker_id] = line
        self._known.clear()

    def lives(self, worker_id: str, incarnation: str | None) -> bool:
        """Who lives under a name; whether that is news."""
        if self._live.get(worker_id) == incarnation:
            return False
        if incarnation is None:
            del self._live[worker_id]
        else:
            self._live[worker_id] = incarnation
        self._known.clear()
        return True

    def pool_of(self, key: str, schema_hash: str) -> str | None:
        """The pool that makes calls of a tool, a workflow or a model, by its key; None where no executor does."""
        asked = (key, schema_hash)
        if asked not in self._known:
            exact = [pool for pool, serves in self._pools() if serves is not None and serves.get(key) == schema_hash]
            self._known[asked] = _first(exact) or _first([pool for pool, serves in self._pools() if serves is None])
        return self._known[asked]

    def any_pool(self) -> str | None:
        """The pool that makes calls for which nothing is needed; None where no executor lives."""
        return _first([pool for pool, _ in self._pools()])

    def pool_of_worker(self, worker_id: str) -> str:
        """The pool of an executor, as it has said last."""
        line = self._lines.get(worker_id)
        return line.pool if line is not None else DEFAULT_POOL

    def _pools(self) -> Iterator[tuple[str, dict[str, str] | None]]:
        """Of each executor that lives its pool, and what it serves; None where it has not said."""
        for worker_id, incarnation in self._live.items():
            line = self._lines.get(worker_id)
            has_said = line is not None and line.incarnation == incarnation
            yield self.pool_of_worker(worker_id), line.serves if line is not None and has_said else None


def _first(pools: list[str]) -> str | None:
    """The default pool, else the first by name."""
    return DEFAULT_POOL if DEFAULT_POOL in pools else min(pools, default=None)
