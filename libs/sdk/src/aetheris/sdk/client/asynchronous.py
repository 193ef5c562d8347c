"""The client for programs that don't wait; what its methods do is said at `Client`'s."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from aetheris.protocol.api import (
    Action,
    ApprovalPage,
    Commanded,
    Contract,
    ContractList,
    HumanRequest,
    Job,
    JobEvent,
    JobPage,
    Reconciled,
    Responded,
    Submitted,
    Verdict,
)
from aetheris.sdk.client import calls, event_walk
from aetheris.sdk.client.calls import TIMEOUT_S, Call, Goal, Level
from aetheris.sdk.client.errors import Unreachable, checked, good, unreachable
from aetheris.sdk.client.event_walk import EARLY_END, EventWalk


class AsyncClient:
    """Calls the gateway; use it as an async context manager."""

    def __init__(
        self, url: str, token: str, *, timeout_s: float = TIMEOUT_S, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api", headers=calls.bearer(token), timeout=timeout_s, transport=transport
        )

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def submit(
        self,
        plan: Mapping[str, Any] | Goal,
        *,
        agent: str | None = None,
        session: str | None = None,
        options: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        wait_s: int | None = None,
    ) -> Submitted:
        """As `Client.submit`."""
        call = calls.submit(plan, agent, session, options, idempotency_key, wait_s=wait_s)
        return Submitted.model_validate(await self._send(call))

    async def jobs(self, *, status: str | None = None, cursor: str | None = None, limit: int = 50) -> JobPage:
        """As `Client.jobs`."""
        return JobPage.model_validate(await self._send(calls.jobs(status, cursor, limit)))

    async def job(self, job_id: str, *, wait_s: int | None = None) -> Job:
        """As `Client.job`."""
        return Job.model_validate(await self._send(Call("GET", f"/jobs/{job_id}", wait_s=wait_s)))

    async def cancel(self, job_id: str, *, reason: str | None = None, compensate: bool = False) -> Commanded:
        """As `Client.cancel`."""
        return Commanded.model_validate(await self._send(calls.cancel(job_id, reason, compensate)))

    async def pause(self, job_id: str, *, reason: str | None = None) -> Commanded:
        """As `Client.pause`."""
        return Commanded.model_validate(await self._send(calls.pause(job_id, reason)))

    async def resume(self, job_id: str, *, reason: str | None = None) -> Commanded:
        """As `Client.resume`."""
        return Commanded.model_validate(await self._send(calls.resume(job_id, reason)))

    async def continue_job(
        self,
        job_id: str,
        plan: Mapping[str, Any] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        settle: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Submitted:
        """As `Client.continue_job`."""
        return Submitted.model_validate(await self._send(calls.continue_job(job_id, plan, options, settle)))

    async def cancel_contract(self, job_id: str, execution_id: str, *, reason: str | None = None) -> Commanded:
        """As `Client.cancel_contract`."""
        return Commanded.model_validate(await self._send(calls.cancel_contract(job_id, execution_id, reason)))

    async def signal(self, job_id: str, correlation_key: str, payload: Any = None) -> Commanded:
        """As `Client.signal`."""
        return Commanded.model_validate(await self._send(calls.signal(job_id, correlation_key, payload)))

    async def reconcile(self, job_id: str) -> Reconciled:
        """Compare what a job did with the outside; raises ApiError."""
        return Reconciled.model_validate(await self._send(calls.reconcile(job_id)))

    async def approvals(self, *, cursor: str | None = None, limit: int = 50) -> ApprovalPage:
        """As `Client.approvals`."""
        return ApprovalPage.model_validate(await self._send(calls.approvals(cursor, limit)))

    async def request(self, request_id: str) -> HumanRequest:
        """As `Client.request`."""
        return HumanRequest.model_validate(await self._send(Call("GET", f"/ecs/status/{request_id}")))

    async def respond(
        self, request_id: str, action: Action, *, data: Mapping[str, Any] | None = None, comment: str | None = None
    ) -> Responded:
        """As `Client.respond`."""
        return Responded.model_validate(await self._send(calls.respond(request_id, action, data, comment)))

    async def resolve(
        self, job_id: str, execution_id: str, verdict: Verdict, *, evidence: str, result: Any = None
    ) -> Commanded:
        """As `Client.resolve`."""
        return Commanded.model_validate(
            await self._send(calls.resolve(job_id, execution_id, verdict, evidence, result))
        )

    async def events(self, job_id: str, *, after: int = 0, limit: int = 10_000) -> list[JobEvent]:
        """As `Client.events`."""
        call = Call("GET", f"/jobs/{job_id}/events", params={"after": after, "limit": limit})
        return [JobEvent.model_validate(event) for event in await self._send(call)]

    async def follow(
        self, job_id: str, *, after: int = 0, to_seal: bool = False, patience_s: float = 30.0
    ) -> AsyncGenerator[JobEvent]:
        """As `Client.follow`."""
        walk = EventWalk(after, to_seal, patience_s, time.monotonic())
        while not walk.over:
            try:
                async with self._http.stream("GET", f"/jobs/{job_id}/events", **walk.arguments()) as answer:
                    if answer.status_code != 200:
                        await answer.aread()
                        checked(answer)
                    async for part in answer.aiter_bytes():
                        for event in walk.take(part, time.monotonic()):
                            yield event
                        if walk.over:
                            return
                walk.broke(EARLY_END, time.monotonic())
            except (httpx.TransportError, Unreachable) as error:
                walk.broke(error, time.monotonic())
            await asyncio.sleep(event_walk.PAUSE_S)

    async def contracts(self, job_id: str, level: Level = "result") -> list[Contract]:
        """As `Client.contracts`."""
        answer = await self._send(Call("GET", f"/jobs/{job_id}/contracts", params={"level": level}))
        return list(ContractList.model_validate(answer).contracts)

    async def verify(self, job_id: str) -> dict[str, Any]:
        """As `Client.verify`."""
        return await self._send(Call("GET", f"/jobs/{job_id}/verify"))

    async def raw_stream(self, job_id: str) -> dict[str, Any]:
        """As `Client.raw_stream`."""
        return await self._send(Call("GET", f"/jobs/{job_id}/stream"))

    async def evidence(self, job_id: str) -> bytes:
        """As `Client.evidence`."""
        return await self._send_raw(Call("GET", f"/jobs/{job_id}/evidence"))

    async def inclusion(self, job_id: str) -> str:
        """As `Client.inclusion`."""
        return (await self._send_raw(Call("GET", f"/jobs/{job_id}/inclusion"))).decode()

    async def checkpoint(self) -> str:
        """As `Client.checkpoint`."""
        return (await self._send_raw(Call("GET", "/seals/checkpoint"))).decode()

    async def consistency(self, old: int) -> str:
        """As `Client.consistency`."""
        return (await self._send_raw(Call("GET", "/seals/consistency", params={"old": old}))).decode()

    async def replay(self, job_id: str, *, to: str | None = None, steps: bool = False) -> dict[str, Any]:
        """As `Client.replay`."""
        return await self._send(calls.replay(job_id, to, steps))

    async def effects(self, job_id: str) -> dict[str, Any]:
        """As `Client.effects`."""
        return await self._send(Call("GET", f"/jobs/{job_id}/effects"))

    async def ledger(self, job_id: str) -> dict[str, Any]:
        """As `Client.ledger`."""
        return await self._send(Call("GET", f"/jobs/{job_id}/ledger"))

    async def trace(self, job_id: str) -> dict[str, Any]:
        """As `Client.trace`."""
        return await self._send(Call("GET", f"/jobs/{job_id}/trace"))

    async def why(
        self,
        *,
        external_id: str | None = None,
        tool: str | None = None,
        since: str | None = None,
        where: Sequence[str] = (),
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """As `Client.why`."""
        return await self._send(calls.why(external_id, tool, since, where, cursor))

    async def tools(self) -> list[dict[str, Any]]:
        """As `Client.tools`."""
        return (await self._send(Call("GET", "/tools")))["tools"]

    async def release_tool(self, name: str, *, reason: str) -> dict[str, Any]:
        """As `Client.release_tool`."""
        return await self._send(calls.release_tool(name, reason))

    async def models(self) -> list[dict[str, Any]]:
        """As `Client.models`."""
        return (await self._send(Call("GET", "/models")))["models"]

    async def workers(self) -> list[dict[str, Any]]:
        """As `Client.workers`."""
        return (await self._send(Call("GET", "/workers")))["workers"]

    async def worker(self, worker_id: str) -> dict[str, Any]:
        """As `Client.worker`."""
        return await self._send(Call("GET", f"/workers/{worker_id}"))

    async def end_worker(self, worker_id: str, *, evidence: str, incarnation: str | None = None) -> dict[str, Any]:
        """As `Client.end_worker`."""
        return await self._send(calls.end_worker(worker_id, evidence, incarnation))

    async def _send(self, call: Call) -> Any:
        return checked(await self._answer(call))

    async def _send_raw(self, call: Call) -> bytes:
        return good(await self._answer(call)).content

    async def _answer(self, call: Call) -> httpx.Response:
        try:
            return await self._http.request(call.method, call.path, **call.arguments())
        except httpx.TransportError as error:
            raise unreachable(error) from None
