"""Python's collector of cycles, in processes that hold facts: it looks when nothing else is done."""

import gc

_QUIET = 500
"""Young objects that come or go between two looks although nothing is done: timers, heartbeats, fetches."""
_WORTH_A_LOOK = 2_000
_MANY = 500_000
"""Young objects, where jobs come faster than they are sealed. A look at so many took 0.3 s, and a sixth of all CPU."""
_LEFT_ALONE_AT_MOST = 10
"""Times; so cycles can't grow without bound where a process is never idle."""


class Collector:
    """Of a process whose own collection is off (`lifecycle.freeze_memory`): jobs go by reference counts as they are
    sealed, and next to nothing forms cycles, so that what the collector looks through is facts that live.

    The young are looked through when the process is idle. Where they are too many before it is, they are left alone
    (which takes no time); the next idle moment is theirs.
    """

    def __init__(self) -> None:
        self._young = 0
        self._left_alone = 0

    def look(self) -> None:
        """Call each second or so."""
        if gc.isenabled():
            return
        young, before = gc.get_count()[0], self._young
        if young >= _MANY:
            self._leave_alone()
        elif young >= _WORTH_A_LOOK and abs(young - before) <= _QUIET:
            self._collect()
        self._young = gc.get_count()[0]

    def _leave_alone(self) -> None:
        if self._left_alone == _LEFT_ALONE_AT_MOST:
            self._collect()
        else:
            gc.freeze()
            self._left_alone += 1

    def _collect(self) -> None:
        if not self._left_alone:
            gc.collect(0)
            return
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._left_alone = 0
