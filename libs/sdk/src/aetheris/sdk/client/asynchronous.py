"""The client for programs that don't wait; the other one, in `blocking.py`, is generated from it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx

from aetheris.protocol.api import (
    Action,
    ApprovalPage,
    CallerView,
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
from aetheris.sdk.client.asynchronous_operations import AsyncOperations
from aetheris.sdk.client.calls import PATIENCE_S, TIMEOUT_S, ApiCall, Goal, Level
from aetheris.sdk.client.errors import Unreachable, checked, good, unreachable
from aetheris.sdk.client.event_walk import EARLY_END, EventWalk

if TYPE_CHECKING:
    from aetheris.sdk.client.asynchronous_runs import AsyncSessionRun


class AsyncClient(AsyncOperations):
    """Calls the gateway; use it as an async context manager.

    `ca` is a PEM file of whom to trust where the url is https: AETHERIS_CA by default, else the system's.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float = TIMEOUT_S,
        ca: str | PathLike[str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api",
            headers=calls.bearer(token),
            timeout=timeout_s,
            verify=calls.trusted(url, ca),
            transport=transport,
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
        labels: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        wait_s: int | None = None,
    ) -> Submitted:
        """Submit a plan, or a goal that a model plans for; the same idempotency key and request name the same job.

        With `wait_s` the answer comes when the job has ended, after so many seconds (60 at most) at the latest.

        Raises:
            ApiError: The gateway refused it.
        """
        call = calls.submit(plan, agent, session, options, idempotency_key, labels=labels, wait_s=wait_s)
        return Submitted.model_validate(await self._send(call))

    def run(
        self,
        run_id: str,
        *,
        tools: Sequence[str],
        idle_timeout_s: float | None = None,
        agent: str | None = None,
        options: Mapping[str, Any] | None = None,
        patience_s: float = PATIENCE_S,
        beside: bool = False,
    ) -> "AsyncSessionRun":
        """A run of this program's code: `async with client.run("order-17", tools=["charge"]) as run`.

        Args:
            run_id: names it; the same for a program that goes on after a crash, and for no other.
            tools: names, or patterns of names, of what it may call.
            idle_timeout_s: it fails when it asks for nothing so long, and no call of it is open; a day by default.
            patience_s: how long a gateway that doesn't answer is asked again.
            beside: it supersedes no other process of the run, and makes `model_call`s only.
        """
        from aetheris.sdk.client.asynchronous_runs import AsyncSessionRun  # noqa: PLC0415  few programs run so
        from aetheris.sdk.client.run_asks import RunAsks, RunOptions  # noqa: PLC0415

        given = RunOptions(run_id=run_id, tools=tools, idle_timeout_s=idle_timeout_s, agent=agent, options=options)
        return AsyncSessionRun(self._send, RunAsks(given, uuid4().hex, beside), patience_s)

    async def jobs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        since: str | None = None,
        label: str | None = None,
        tenant: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """Jobs, newest first; raises ApiError.

        Of those that `agent` submitted, with a `label` (NAME=VALUE), or from a time on (RFC 3339), a page may hold
        few, or none, and lead on.
        """
        query = {"status": status, "agent": agent, "since": since, "label": label, "tenant": tenant}
        return JobPage.model_validate(await self._send(calls.jobs(cursor, limit, **query)))

    async def job(self, job_id: str, *, wait_s: int | None = None) -> Job:
        """How a job stands: now, or when it has ended or `wait_s` seconds (60 at most) are over; raises ApiError."""
        return Job.model_validate(await self._send(ApiCall("GET", f"/jobs/{job_id}", wait_s=wait_s)))

    async def cancel(
        self, job_id: str, *, reason: str | None = None, compensate: bool = False, tenant: str | None = None
    ) -> Commanded:
        """Ask a job to stop, also one of another `tenant`; raises ApiError (Conflict: it has ended)."""
        return Commanded.model_validate(await self._send(calls.cancel(job_id, reason, tenant, compensate=compensate)))

    async def undoable(
        self,
        *,
        agent: str | None = None,
        tool: str | None = None,
        since: str | None = None,
        tenant: str | None = None,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Finished effects of some jobs, and whether they can be undone: {jobs, cursor}; raises ApiError."""
        query = {"agent": agent, "tool": tool, "since": since, "tenant": tenant}
        return await self._send(calls.undoable(cursor, **query))

    async def undo(self, job_id: str, *, tool: str | None = None, since: str | None = None) -> Submitted:
        """Undo what an ended job did, by a new job; raises ApiError (Conflict: nothing of it can be undone)."""
        return Submitted.model_validate(await self._send(calls.undo(job_id, tool, since)))

    async def pause(self, job_id: str, *, reason: str | None = None) -> Commanded:
        """Keep a job from starting anything; raises ApiError (Conflict: it has ended, or was cancelled)."""
        return Commanded.model_validate(await self._send(calls.pause(job_id, reason)))

    async def resume(self, job_id: str, *, reason: str | None = None) -> Commanded:
        """Let a paused job go on; raises ApiError (Conflict: it is not paused)."""
        return Commanded.model_validate(await self._send(calls.resume(job_id, reason)))

    async def continue_job(
        self,
        job_id: str,
        plan: Mapping[str, Any] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        settle: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Submitted:
        """Continue a failed or cancelled job in a new one; raises ApiError (Conflict: names what stands against it).

        `settle`: node id → {verdict: happened or not_executed, evidence, result?} of each step that nobody is sure of.
        """
        return Submitted.model_validate(await self._send(calls.continue_job(job_id, plan, options, settle)))

    async def cancel_contract(self, job_id: str, execution_id: str, *, reason: str | None = None) -> Commanded:
        """Cancel one step; what is under way is settled first; raises ApiError (Conflict: not begun, or ended)."""
        return Commanded.model_validate(await self._send(calls.cancel_contract(job_id, execution_id, reason)))

    async def signal(self, job_id: str, correlation_key: str, payload: Any = None) -> Commanded:
        """Tell a job what a node of it waits for; raises ApiError (Conflict: the key was used otherwise)."""
        return Commanded.model_validate(await self._send(calls.signal(job_id, correlation_key, payload)))

    async def reconcile(self, job_id: str) -> Reconciled:
        """Compare what a job did with the external system; raises ApiError."""
        return Reconciled.model_validate(await self._send(calls.reconcile(job_id)))

    async def approvals(self, *, cursor: str | None = None, limit: int = 50) -> ApprovalPage:
        """Open requests to humans, oldest first; raises ApiError."""
        return ApprovalPage.model_validate(await self._send(calls.approvals(cursor, limit)))

    async def request(self, request_id: str) -> HumanRequest:
        """A request with its form, and how it stands; raises ApiError."""
        return HumanRequest.model_validate(await self._send(ApiCall("GET", f"/ecs/status/{request_id}")))

    async def respond(
        self,
        request_id: str,
        action: Action,
        *,
        data: Mapping[str, Any] | None = None,
        comment: str | None = None,
        break_glass: bool = False,
        signature: str | None = None,
    ) -> Responded:
        """Answer a request; raises ApiError (Conflict: another answer stands; Forbidden: others may answer).

        `break_glass`: alone, in an emergency, as the comment says, where the rule names others: every use is an alarm.
        `signature`: of what he says, where the rule asks for it: SSHSIG, armored (docs/approvals.md).
        """
        call = calls.respond(request_id, action, data, comment, break_glass=break_glass, signature=signature)
        return Responded.model_validate(await self._send(call))

    async def resolve(
        self,
        job_id: str,
        execution_id: str,
        verdict: Verdict,
        *,
        evidence: str,
        result: Any = None,
        break_glass: bool = False,
        accept_code: str | None = None,
    ) -> Commanded:
        """Say what became of a parked step; raises ApiError (Conflict: it is not parked).

        `break_glass`: as in `respond`; the evidence says why.
        `accept_code`: with retry, the hash of a workflow's code that need not ask for what was done before it.
        """
        more = {"result": result, "break_glass": break_glass or None, "accept_code": accept_code}
        call = calls.resolve(job_id, execution_id, verdict, evidence, more)
        return Commanded.model_validate(await self._send(call))

    async def events(self, job_id: str, *, after: int = 0, limit: int = 10_000) -> list[JobEvent]:
        """The events with `seq` above `after` that are there now; raises ApiError."""
        call = ApiCall("GET", f"/jobs/{job_id}/events", params={"after": after, "limit": limit})
        return [JobEvent.model_validate(event) for event in await self._send(call)]

    async def follow(
        self, job_id: str, *, after: int = 0, to_seal: bool = False, patience_s: float = 30.0
    ) -> AsyncGenerator[JobEvent]:
        """Events as they come, until the job ends (or is sealed); resumes where a connection broke.

        Raises:
            ApiError: The gateway refused it.
            Unreachable: Nothing could be read for `patience_s`.
        """
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
        """The execution contracts of a job; raises ApiError."""
        answer = await self._send(ApiCall("GET", f"/jobs/{job_id}/contracts", params={"level": level}))
        return list(ContractList.model_validate(answer).contracts)

    async def verify(self, job_id: str) -> dict[str, Any]:
        """The verifier's proof; raises ApiError."""
        return await self._send(ApiCall("GET", f"/jobs/{job_id}/verify"))

    async def raw_stream(self, job_id: str) -> dict[str, Any]:
        """A job's raw stream, to be checked by oneself: {job_id, keys, records}; raises ApiError."""
        return await self._send(ApiCall("GET", f"/jobs/{job_id}/stream"))

    async def evidence(self, job_id: str, *, audience: str | None = None, redact: Sequence[str] = ()) -> bytes:
        """The evidence bundle of a sealed job, a zip; raises ApiError (Conflict: it isn't sealed, or doesn't hold).

        With `audience` (auditor) or `redact` one from which records are left out, which says so.
        """
        return await self._send_raw(calls.evidence(job_id, audience, redact))

    async def call_proof(
        self, job_id: str, external_id: str, *, disclose: Sequence[str] = (), step: str | None = None
    ) -> bytes:
        """One call of a sealed job by itself, signed, with these fields and arguments of it (docs/evidence.md).

        Raises ApiError (Conflict: there is no such call, or it can't be disclosed without what was not asked for).
        """
        return await self._send_raw(calls.call_proof(job_id, external_id, disclose, step))

    async def inclusion(self, job_id: str) -> str:
        """A tlog-proof that a job's seal is in the log of seals; raises ApiError."""
        answer = await self._send_raw(ApiCall("GET", f"/jobs/{job_id}/inclusion"))
        return answer.decode()

    async def answers(self, receipt: str) -> list[dict[str, str]]:
        """What the log of seals has of a receipt, by its hash: {line, proof} of each; raises ApiError."""
        answer = await self._send(ApiCall("GET", f"/seals/answers/{receipt}"))
        return answer["lines"]

    async def erasures(self, pseudonym: str) -> list[dict[str, str]]:
        """What the log of seals has of an erased person: {line, proof} of each; raises ApiError."""
        answer = await self._send(ApiCall("GET", f"/seals/erasures/{pseudonym}"))
        return answer["lines"]

    async def interim_seals(self, job_id: str) -> list[dict[str, str]]:
        """The newest interim seals of an open job, the newest first: {line, proof} of each; raises ApiError."""
        answer = await self._send(ApiCall("GET", f"/jobs/{job_id}/interim-seals"))
        return answer["lines"]

    async def checkpoint(self) -> str:
        """The signed state of the log of seals; raises ApiError."""
        answer = await self._send_raw(ApiCall("GET", "/seals/checkpoint"))
        return answer.decode()

    async def seal_entries(self, start: int) -> list[str]:
        """Entries of the log of seals from `start` on, in hex: at least one where there is one; raises ApiError."""
        answer = await self._send(ApiCall("GET", "/seals/entries", params={"start": start}))
        return answer["entries"]

    async def consistency(self, old: int) -> str:
        """A proof that the log of seals only grew since it had `old` leaves; raises ApiError."""
        answer = await self._send_raw(ApiCall("GET", "/seals/consistency", params={"old": old}))
        return answer.decode()

    async def replay(self, job_id: str, *, to: str | None = None, steps: bool = False) -> dict[str, Any]:
        """The job as it stood at a point (an event's id or number, or a time), from its log; raises ApiError."""
        return await self._send(calls.replay(job_id, to, steps))

    async def effects(self, job_id: str) -> dict[str, Any]:
        """The effect log: {job_id, effects, effects_hash}; raises ApiError."""
        return await self._send(ApiCall("GET", f"/jobs/{job_id}/effects"))

    async def ledger(self, job_id: str) -> dict[str, Any]:
        """Each call as the ledger holds it, and what made it so: {job_id, calls}; raises ApiError."""
        return await self._send(ApiCall("GET", f"/jobs/{job_id}/ledger"))

    async def trace(self, job_id: str) -> dict[str, Any]:
        """Decision tree, dependency graph, steps, events, effects; raises ApiError."""
        return await self._send(ApiCall("GET", f"/jobs/{job_id}/trace"))

    async def why(
        self,
        *,
        job_id: str | None = None,
        external_id: str | None = None,
        tool: str | None = None,
        since: str | None = None,
        where: Sequence[str] = (),
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Effects, newest first, each with the tree of its reasons: {effects, cursor}; raises ApiError."""
        asked = {"job_id": job_id, "external_id": external_id, "tool": tool, "since": since, "cursor": cursor}
        return await self._send(calls.why(where, **asked))

    async def tools(self) -> list[dict[str, Any]]:
        """The registered tools, newest version each; raises ApiError."""
        return (await self._send(ApiCall("GET", "/tools")))["tools"]

    async def release_tool(self, name: str, *, reason: str) -> dict[str, Any]:
        """Let the calls of a tool in quarantine go on; raises ApiError (NotFound: no such tool)."""
        return await self._send(calls.release_tool(name, reason))

    async def freezes(self) -> list[dict[str, Any]]:
        """What is frozen, with what had started before; raises ApiError."""
        answer = await self._send(ApiCall("GET", "/freezes"))
        return answer["freezes"]

    async def freeze(
        self,
        *,
        agent: str | None = None,
        tenant: str | None = None,
        tool: str | None = None,
        everywhere: bool = False,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Let nothing start of an agent, a tenant or a tool; raises ApiError (Forbidden: another tenant's)."""
        more = {"everywhere": everywhere or None, "reason": reason}
        return await self._send(calls.freeze("/freezes", agent, tenant, tool, more))

    async def unfreeze(
        self,
        *,
        agent: str | None = None,
        tenant: str | None = None,
        tool: str | None = None,
        everywhere: bool = False,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Let go on what is frozen; raises ApiError (Conflict: it is not)."""
        more = {"everywhere": everywhere or None, "reason": reason}
        return await self._send(calls.freeze("/freezes/end", agent, tenant, tool, more))

    async def policy(self) -> dict[str, Any]:
        """{active, history}: the policy that decides and who activated it, and those before; raises ApiError."""
        return await self._send(ApiCall("GET", "/policies"))

    async def activate_policy(self, policy: str, *, reason: str | None = None) -> dict[str, Any]:
        """Let another policy decide; `policy` is its text. Raises ApiError (Conflict: another came first)."""
        return await self._send(calls.activate_policy(policy, reason))

    async def try_policy(self, policy: str, *, since: str | None = None, cursor: str | None = None) -> dict[str, Any]:
        """Which past calls a policy would have decided otherwise, of some jobs; `cursor` leads on; raises ApiError."""
        return await self._send(calls.try_policy(policy, since, cursor))

    async def openings(self, job_id: str, *, cursor: str | None = None) -> dict[str, Any]:
        """The job's hidden values in the clear: {openings, hidden, erased, left_out, cursor}; raises ApiError."""
        return await self._send(calls.openings(job_id, cursor))

    async def erase_subject(self, subject: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Destroy the key of a person's hidden values; raises ApiError (NotFound: nothing was ever hidden for it).

        `lines`: what the log of seals says of it, as far as it does already (`erasures`).
        """
        return await self._send(calls.about_subject("erase", subject, tenant))

    async def enrol_subject(self, subject: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Let values of an erased person be hidden again; raises ApiError (Conflict: it is not erased)."""
        return await self._send(calls.about_subject("enrol", subject, tenant))

    async def hold_subject(self, subject: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Let nobody erase a person, until it is released; raises ApiError (Conflict: it is erased)."""
        return await self._send(calls.about_subject("hold", subject, tenant))

    async def release_subject(self, subject: str, *, tenant: str | None = None) -> dict[str, Any]:
        """End a person's hold; raises ApiError (Conflict: it is not on hold)."""
        return await self._send(calls.about_subject("release", subject, tenant))

    async def models(self) -> list[dict[str, Any]]:
        """The registered models; raises ApiError."""
        return (await self._send(ApiCall("GET", "/models")))["models"]

    async def caller(self) -> CallerView:
        """Who the gateway takes you for; raises ApiError."""
        return CallerView.model_validate(await self._send(ApiCall("GET", "/caller")))

    async def limits(self) -> dict[str, Any]:
        """What you and your tenant may ask for, what of it is left, and how many jobs have not ended."""
        return await self._send(ApiCall("GET", "/limits"))

    async def audit(self, *, since: str | None = None, cursor: str | None = None) -> dict[str, Any]:
        """Some records of who came, was shown something, or refused: {records, cursor, whole}."""
        return await self._send(calls.audit(since, cursor))

    async def _send(self, call: ApiCall) -> Any:
        return checked(await self._answer(call))

    async def _send_raw(self, call: ApiCall) -> bytes:
        return good(await self._answer(call)).content

    async def _answer(self, call: ApiCall) -> httpx.Response:
        try:
            return await self._http.request(call.method, call.path, **call.arguments())
        except httpx.TransportError as error:
            raise unreachable(error) from None
