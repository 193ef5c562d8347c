"""Memory that jobs have left when they were packed goes back to the system (docs/adr/0021-jobs-at-rest.md).

glibc keeps what is freed between what is in use: with many jobs at rest that is most of the process.
"""

import ctypes

MANY = 500
"""Jobs that must have come to rest; what fewer leave is used again soon enough."""


class SpareMemory:
    """Of a process."""

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other libraries of C have none
        self._given_at = 0
        self._seen = 0

    def look(self, at_rest: int) -> bool:
        """So many jobs are at rest now: once many have come to it, and no more do, what they left is given back.

        It takes some milliseconds for each 100 MB. Returns whether it was done.
        """
        is_over, self._seen = at_rest <= self._seen, at_rest
        self._given_at = min(self._given_at, at_rest)
        if self._trim is None or not is_over or at_rest - self._given_at < MANY:
            return False
        self._given_at = at_rest
        self._trim(0)
        return True
