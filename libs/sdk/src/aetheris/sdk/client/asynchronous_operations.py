"""What is asked of the system itself, for programs that don't wait; `blocking_operations.py` is generated from it."""

from collections.abc import Mapping
from typing import Any

from aetheris.sdk.client import calls
from aetheris.sdk.client.calls import ApiCall


class AsyncOperations:
    """Its services, workers, rules and dead letters."""

    async def rules(self) -> dict[str, Any]:
        """{version, order, services}: under which rules jobs are created, and which ones each live process knows."""
        return await self._send(ApiCall("GET", "/rules"))

    async def order_rules(self, version: int, *, reason: str | None = None) -> dict[str, Any]:
        """Have jobs created under a later version of the rules; raises ApiError (Conflict: who doesn't know it)."""
        return await self._send(calls.order_rules(version, reason))

    async def workers(self) -> list[dict[str, Any]]:
        """Every worker's name and who lives under it; raises ApiError."""
        return (await self._send(ApiCall("GET", "/workers")))["workers"]

    async def health(self) -> dict[str, Any]:
        """{at, services, backlogs, dead_letters, executors}: how the system's parts stand; raises ApiError."""
        return await self._send(ApiCall("GET", "/health"))

    async def stalled(self) -> dict[str, Any]:
        """{jobs, is_whole}: the tenant's open jobs that stand still, each with why; raises ApiError."""
        return await self._send(ApiCall("GET", "/stalled"))

    async def leases(self, job_id: str | None = None) -> dict[str, Any]:
        """{leases, is_whole}: the calls that are under way, of a job or of all open ones; raises ApiError."""
        return await self._send(ApiCall("GET", "/leases" if job_id is None else f"/jobs/{job_id}/leases"))

    async def budgets(self, *, since: str | None = None) -> dict[str, Any]:
        """{tenant, agents, jobs, looked_at, is_whole}: what the newest jobs spent, `since` a time; raises ApiError."""
        return await self._send(calls.budgets(since))

    async def quotas(self) -> dict[str, Any]:
        """{tenants, left_out}: every tenant's limits and open jobs, for who administers; raises ApiError."""
        return await self._send(ApiCall("GET", "/quotas"))

    async def schedules(self) -> dict[str, Any]:
        """{schedulers}: what starts the tenant's jobs, when next, and what it started last; raises ApiError."""
        return await self._send(ApiCall("GET", "/schedules"))

    async def tell_schedules(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what a scheduler of one's own has, for people to see; raises ApiError (Conflict: too many live)."""
        return await self._send(calls.tell_schedules(report))

    async def worker(self, worker_id: str) -> dict[str, Any]:
        """A name with what it has open in this tenant's jobs, as far as that is known; raises ApiError."""
        return await self._send(ApiCall("GET", f"/workers/{worker_id}"))

    async def end_worker(self, worker_id: str, *, evidence: str, incarnation: str | None = None) -> dict[str, Any]:
        """Say that who lives under a name can act no more; raises ApiError (Conflict: nobody lives under it)."""
        return await self._send(calls.end_worker(worker_id, evidence, incarnation))

    async def dead_letters(self, topic: str | None = None) -> dict[str, Any]:
        """{dead_letters, is_whole}: what no service could decode, the newest of each topic; raises ApiError."""
        return await self._send(calls.dead_letters(topic))

    async def dead_letter(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        """One, with the record's key, headers and value in base64; raises ApiError."""
        return await self._send(calls.dead_letter(topic, partition, offset))

    async def redrive(self, topic: str, partition: int, offset: int, *, reason: str) -> dict[str, Any]:
        """Have a command read again that was put aside; raises ApiError (Conflict: that would do nothing)."""
        return await self._send(calls.redrive(topic, partition, offset, reason))

    async def _send(self, call: ApiCall) -> Any:
        raise NotImplementedError
