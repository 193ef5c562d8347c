"""Submissions that wait in jobs.commands, not in memory, until the jobs in flight have made room; pure.

A tenant has a share that others can't take from it; what lies beyond the shares is for who comes.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

JOBS_IN_FLIGHT = 1000
_SHARES = 10
"""A tenant's own share is this part of the whole, whatever others have at work."""


@dataclass(slots=True)
class JobsInFlight:
    """The jobs of a partition that are at work, or being created, by tenant."""

    _tenants: dict[str, str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self._tenants)

    def of(self, tenant: str) -> int:
        """How many are of this tenant."""
        return self._counts[tenant]

    def put(self, job_id: str, tenant: str) -> None:
        """It is at work from now on."""
        if job_id not in self._tenants:
            self._tenants[job_id] = tenant
            self._counts[tenant] += 1

    def drop(self, job_id: str) -> None:
        """It rests, has ended, or was not created."""
        tenant = self._tenants.pop(job_id, None)
        if tenant is not None:
            self._counts[tenant] -= 1
            if not self._counts[tenant]:
                del self._counts[tenant]


@dataclass(slots=True)
class Backlog:
    """Offsets of submissions that were read and not taken up, oldest first for each tenant.

    At most `limit` jobs are in flight, and a tenant's share of them on top where others have filled it.
    """

    limit: int = JOBS_IN_FLIGHT
    _waiting: dict[str, deque[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def share(self) -> int:
        """So many of a tenant's jobs may be in flight whatever others have."""
        return max(1, self.limit // _SHARES)

    @property
    def oldest(self) -> int | None:
        """The first offset; None if nothing waits."""
        return min((offsets[0] for offsets in self._waiting.values()), default=None)

    def must_wait(self, tenant: str, in_flight: JobsInFlight) -> bool:
        """Whether a submission that comes now waits; nobody overtakes those of his tenant who wait already, and what
        is beyond the shares is for those who wait.
        """
        if tenant in self._waiting:
            return True
        is_free = not self._waiting and len(in_flight) < self.limit
        return not is_free and in_flight.of(tenant) >= self.share

    def put(self, tenant: str, offset: int) -> None:
        """Leave a submission where it lies."""
        self._waiting.setdefault(tenant, deque()).append(offset)

    def take(self, in_flight: JobsInFlight) -> list[int]:
        """Whom there is room for, in log order: the tenant with the fewest jobs comes first.

        Nobody before half of the room is free, a tenant's own or everybody's, since reading again costs a request.
        """
        free = self.limit - len(in_flight) if len(in_flight) <= self.limit // 2 else 0
        counts = {tenant: in_flight.of(tenant) for tenant in self._waiting}
        own = {tenant for tenant, count in counts.items() if count <= self.share // 2}
        taken: list[int] = []
        while self._waiting:
            tenant = min(self._waiting, key=lambda one: (counts[one], self._waiting[one][0]))
            within_share = tenant in own and counts[tenant] < self.share
            if not within_share and free <= 0:
                break
            taken.append(self._next(tenant))
            counts[tenant] += 1
            free -= 1
        return sorted(taken)

    def _next(self, tenant: str) -> int:
        offsets = self._waiting[tenant]
        first = offsets.popleft()
        if not offsets:
            del self._waiting[tenant]
        return first
