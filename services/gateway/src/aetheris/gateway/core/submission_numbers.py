"""The numbers of what this gateway lays into jobs.commands: no two are the same, and none is left out (pure)."""

from collections import Counter

from aetheris.protocol.messages.submission_numbers import SubmissionNumber


class SubmissionNumbers:
    """Of one life of a gateway, counted in memory: whoever comes next has a name of his own, and begins with 1."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._last: Counter[tuple[str, int]] = Counter()

    def take(self, tenant: str, partition: int, at: str, salt: str) -> SubmissionNumber:
        """A tenant's next in a partition: where it lies there, so do all before it, whatever became of this gateway."""
        self._last[tenant, partition] += 1
        number = self._last[tenant, partition]
        return SubmissionNumber(gateway=self._gateway, partition=partition, number=number, at=at, salt=salt)
