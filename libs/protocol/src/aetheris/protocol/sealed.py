"""Sealed jobs cost nothing but their names, for a while: a late repeat of a birth does not bring one back."""

REMEMBERED = 10_000


class SealedNames:
    """The names of the jobs that were sealed last."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._names: dict[str, None] = {}

    def add(self, job_id: str) -> None:
        """Remember a name; the oldest is given up for it."""
        self._names[job_id] = None
        if len(self._names) > self._most:
            del self._names[next(iter(self._names))]

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._names
