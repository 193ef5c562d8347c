"""The client for programs that wait; generated from `asynchronous_operations.py` by `make docs`."""

from collections.abc import Mapping
from typing import Any

from aetheris.sdk.client import calls
from aetheris.sdk.client.calls import ApiCall


class Operations:
    """Its services, workers, rules and dead letters."""

    def rules(self) -> dict[str, Any]:
        """{version, order, services}: under which rules jobs are created, and which ones each live process knows."""
        return self._send(ApiCall("GET", "/rules"))

    def order_rules(self, version: int, *, reason: str | None = None) -> dict[str, Any]:
        """Have jobs created under a later version of the rules; raises ApiError (Conflict: who doesn't know it)."""
        return self._send(calls.order_rules(version, reason))

    def workers(self) -> list[dict[str, Any]]:
        """Every worker's name and who lives under it; raises ApiError."""
        return (self._send(ApiCall("GET", "/workers")))["workers"]

    def health(self) -> dict[str, Any]:
        """{at, services, backlogs, dead_letters, executors}: how the system's parts stand; raises ApiError."""
        return self._send(ApiCall("GET", "/health"))

    def stalled(self) -> dict[str, Any]:
        """{jobs, is_whole}: the tenant's open jobs that stand still, each with why; raises ApiError."""
        return self._send(ApiCall("GET", "/stalled"))

    def leases(self, job_id: str | None = None) -> dict[str, Any]:
        """{leases, is_whole}: the calls that are under way, of a job or of all open ones; raises ApiError."""
        return self._send(ApiCall("GET", "/leases" if job_id is None else f"/jobs/{job_id}/leases"))

    def budgets(self, *, since: str | None = None) -> dict[str, Any]:
        """{tenant, agents, jobs, looked_at, is_whole}: what the newest jobs spent, `since` a time; raises ApiError."""
        return self._send(calls.budgets(since))

    def quotas(self) -> dict[str, Any]:
        """{tenants, left_out}: every tenant's limits and open jobs, for who administers; raises ApiError."""
        return self._send(ApiCall("GET", "/quotas"))

    def schedules(self) -> dict[str, Any]:
        """{schedulers}: what starts the tenant's jobs, when next, and what it started last; raises ApiError."""
        return self._send(ApiCall("GET", "/schedules"))

    def tell_schedules(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what a scheduler of one's own has, for people to see; raises ApiError (Conflict: too many live)."""
        return self._send(calls.tell_schedules(report))

    def worker(self, worker_id: str) -> dict[str, Any]:
        """A name with what it has open in this tenant's jobs, as far as that is known; raises ApiError."""
        return self._send(ApiCall("GET", f"/workers/{worker_id}"))

    def end_worker(self, worker_id: str, *, evidence: str, incarnation: str | None = None) -> dict[str, Any]:
        """Say that who lives under a name can act no more; raises ApiError (Conflict: nobody lives under it)."""
        return self._send(calls.end_worker(worker_id, evidence, incarnation))

    def dead_letters(self, topic: str | None = None) -> dict[str, Any]:
        """{dead_letters, is_whole}: what no service could decode, the newest of each topic; raises ApiError."""
        return self._send(calls.dead_letters(topic))

    def dead_letter(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        """One, with the record's key, headers and value in base64; raises ApiError."""
        return self._send(calls.dead_letter(topic, partition, offset))

    def redrive(self, topic: str, partition: int, offset: int, *, reason: str) -> dict[str, Any]:
        """Have a command read again that was put aside; raises ApiError (Conflict: that would do nothing)."""
        return self._send(calls.redrive(topic, partition, offset, reason))

    def _send(self, call: ApiCall) -> Any:
        raise NotImplementedError
