"""A client of the gateway's API, for programs that wait (`Client`) and for those that don't (`AsyncClient`).

ApiError                an answer other than yes: `code`, `message`, `details`
├── BadRequest          400; `field` names what is wrong
├── Unauthorized        401
├── Forbidden           403, somebody else may do it
├── NotFound            404, also for what belongs to another tenant
├── Conflict            409, what stands contradicts the request
└── Unreachable         no connection, or 503; `retry_after_s` where the gateway says so
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, cast

import httpx
from pydantic import BaseModel, ConfigDict

Verdict = Literal["happened", "not_executed", "retry"]
Action = Literal["approve", "edit", "reject"]
Level = Literal["result", "transition", "request"]
"""How much of a contract is asked for: what came of it, how it got there, what was asked for."""

ENDS = frozenset({"job_completed", "job_failed", "job_cancelled"})
"""The events that end a job; what may follow them is its seal."""

_TIMEOUT_S = 30.0
_SILENCE_S = 60.0
"""The gateway sends at least a comment every 15 s: a stream silent for longer is broken."""
_ALIVE = b": alive"
_MOVE = b"execution_state"
"""A contract's move, told before the event that it follows from; `contracts` has them all."""
_PAUSE_S = 0.5


class ApiError(Exception):
    """The gateway said no."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details or {}

    @property
    def field(self) -> str | None:
        """The field of the request that is wrong, such as `plan.nodes[0].args/amount`."""
        return self.details.get("field")


class BadRequest(ApiError):
    """Bad input; nothing was done."""


class Unauthorized(ApiError):
    """No token, or none that the gateway knows."""


class Forbidden(ApiError):
    """Known, and not the one who may: such as who submitted a job, asked to approve it."""


class NotFound(ApiError):
    """No such job, contract or route."""


class Conflict(ApiError):
    """What stands contradicts the request."""


class Unreachable(ApiError):
    """Nobody answered, or a part that is needed is down: what was asked may or may not have been taken."""

    @property
    def retry_after_s(self) -> int | None:
        """When to try again, in seconds."""
        return self.details.get("retry_after_s")


_EARLY_END = Unreachable("stream_ended", "the gateway ends the event stream before the job ends")

_ERRORS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    503: Unreachable,
}


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Submitted(_Answer):
    """A submission that was taken, and where its job stands."""

    job_id: str
    status: str

    @property
    def ended(self) -> bool:
        """Completed, failed or cancelled."""
        return f"job_{self.status}" in ENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a model is to plan for (docs/models.md).

    Args:
        tools: names or patterns of what the model may call; none by default.
        model: as the service has it configured; it may be left out where there is one only.
        limits: turns, calls, tokens, cost_usd; what is over ends the job.
        planning: turn by turn (agent, the default), or one answer that is the whole plan (graph).
    """

    goal: str
    tools: Sequence[str] = ()
    model: str | None = None
    system: str | None = None
    planning: Literal["agent", "graph"] | None = None
    limits: Mapping[str, int | float] | None = None
    max_tokens: int | None = None

    def body(self) -> dict[str, Any]:
        """As it is sent."""
        limits = dict(self.limits) if self.limits else None
        given = _given(model=self.model, system=self.system, planning=self.planning, limits=limits)
        return {"goal": self.goal, "tools": list(self.tools), **given, **_given(max_tokens=self.max_tokens)}


class JobSummary(_Answer):
    """A line of the list of jobs."""

    job_id: str
    status: str
    created_at: str
    submitted_by: str
    tenant: str


class JobPage(_Answer):
    """Some jobs, newest first; `cursor` leads to the next ones."""

    jobs: tuple[JobSummary, ...]
    cursor: str | None = None


class Step(_Answer):
    """Where one step stands: pending, running, waiting, completed, failed, rejected or cancelled.

    `request_id` is what a human is asked, where he is and has not answered; `via` says by whom it was settled.
    """

    node_id: str
    tool: str
    state: str
    attempts: int = 0
    execution_id: str | None = None
    result_type: str | None = None
    external_id: str | None = None
    request_id: str | None = None
    reason: str | None = None
    effect: str | None = None
    via: str | None = None
    compensates: str | None = None


class Job(JobSummary):
    """A job as its log says."""

    goal: str | None = None
    steps: tuple[Step, ...] = ()
    why: str | None = None
    paused: dict[str, Any] | None = None
    result: Any = None
    error: str | None = None
    compensated: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Completed, failed or cancelled."""
        return f"job_{self.status}" in ENDS


class Commanded(_Answer):
    """A command's answer: `event` is what the log answered; None if it had not within five seconds."""

    job_id: str
    event: str | None = None


class Reconciled(_Answer):
    """What the outside says of a job's recorded effects; `effects` are the answers that came in time."""

    job_id: str
    command_id: str
    asked: int
    confirmed: int
    failed: int
    unverifiable: int
    verdict: str
    ok: bool
    effects: tuple[dict[str, Any], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every effect was answered for."""
        return self.confirmed + self.failed == self.asked


class Contract(_Answer):
    """An execution contract: what came of one call of a step, as its log says."""

    execution_id: str | None
    node_id: str
    action_type: str
    status: str
    outcome: str | None
    has_effect: str
    duplicate_of: dict[str, Any] | None = None
    error_message: str | None = None
    transitions: tuple[dict[str, Any], ...] = ()


class Approval(_Answer):
    """An open request to a human: about a call (`approval`), or a form of the plan (`human`)."""

    request_id: str
    job_id: str
    node_id: str
    kind: str
    title: str
    submitted_by: str
    created_at: str
    expires_at: str | None = None


class ApprovalPage(_Answer):
    """Some open requests, oldest first; `cursor` leads to the next ones."""

    approvals: tuple[Approval, ...]
    cursor: str | None = None


class Asked(_Answer):
    """A request with its form, and how it stands: waiting, approved, edited, rejected, answered, expired, cancelled."""

    request: dict[str, Any]
    job_id: str
    node_id: str
    status: str
    execution_state: str
    answer: dict[str, Any] | None = None


class Responded(_Answer):
    """What became of an answer; an edit makes a new call, which `next_request_id` asks about."""

    request_id: str
    action: str
    event: str | None = None
    next_request_id: str | None = None


class JobEvent(_Answer):
    """An event of a job; `seq` counts from 1 without gaps."""

    seq: int
    id: str
    type: str
    time: str
    subject: str
    offset: int
    data: Any


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    body: Any = None
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    wait_s: int | None = None

    def arguments(self) -> dict[str, Any]:
        """As httpx takes them; JSON is made here, so that NaN is never sent."""
        found: dict[str, Any] = {"params": self.params, "headers": dict(self.headers)}
        if self.wait_s is not None:
            found["headers"]["prefer"] = f"wait={self.wait_s}"
            found["timeout"] = _TIMEOUT_S + self.wait_s
        if self.body is not None:
            found["content"] = json.dumps(self.body, allow_nan=False, ensure_ascii=False).encode()
            found["headers"]["content-type"] = "application/json"
        return found


class Client:
    """Calls the gateway and waits; use it as a context manager."""

    def __init__(
        self, url: str, token: str, *, timeout_s: float = _TIMEOUT_S, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api", headers=_bearer(token), timeout=timeout_s, transport=transport
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(
        self,
        plan: Mapping[str, Any] | Goal,
        *,
        agent: str | None = None,
        session: str | None = None,
        options: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        wait_s: int | None = None,
    ) -> Submitted:
        """Submit a plan, or a goal that a model plans for; the same idempotency key and request name the same job.

        With `wait_s` the answer comes when the job has ended, after so many seconds (60 at most) at the latest.

        Raises:
            ApiError: The gateway refused it.
        """
        call = _submit(plan, agent, session, options, idempotency_key, wait_s=wait_s)
        return Submitted.model_validate(self._send(call))

    def jobs(self, *, status: str | None = None, cursor: str | None = None, limit: int = 50) -> JobPage:
        """Jobs, newest first; raises ApiError."""
        return JobPage.model_validate(self._send(_jobs(status, cursor, limit)))

    def job(self, job_id: str, *, wait_s: int | None = None) -> Job:
        """How a job stands: now, or when it has ended or `wait_s` seconds (60 at most) are over; raises ApiError."""
        return Job.model_validate(self._send(_Call("GET", f"/jobs/{job_id}", wait_s=wait_s)))

    def cancel(self, job_id: str, *, reason: str | None = None, compensate: bool = False) -> Commanded:
        """Ask a job to stop; raises ApiError (Conflict: it has ended)."""
        return Commanded.model_validate(self._send(_cancel(job_id, reason, compensate)))

    def pause(self, job_id: str, *, reason: str | None = None) -> Commanded:
        """Keep a job from starting anything; raises ApiError (Conflict: it has ended, or was cancelled)."""
        return Commanded.model_validate(self._send(_pause(job_id, reason)))

    def resume(self, job_id: str, *, reason: str | None = None) -> Commanded:
        """Let a paused job go on; raises ApiError (Conflict: it is not paused)."""
        return Commanded.model_validate(self._send(_resume(job_id, reason)))

    def continue_job(
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
        return Submitted.model_validate(self._send(_continue(job_id, plan, options, settle)))

    def cancel_contract(self, job_id: str, execution_id: str, *, reason: str | None = None) -> Commanded:
        """Cancel one step; what is under way is settled first; raises ApiError (Conflict: not begun, or ended)."""
        return Commanded.model_validate(self._send(_cancel_contract(job_id, execution_id, reason)))

    def signal(self, job_id: str, correlation_key: str, payload: Any = None) -> Commanded:
        """Tell a job what a node of it waits for; raises ApiError (Conflict: the key was used otherwise)."""
        return Commanded.model_validate(self._send(_signal(job_id, correlation_key, payload)))

    def reconcile(self, job_id: str) -> Reconciled:
        """Compare what a job did with the outside; raises ApiError."""
        return Reconciled.model_validate(self._send(_reconcile(job_id)))

    def approvals(self, *, cursor: str | None = None, limit: int = 50) -> ApprovalPage:
        """Open requests to humans, oldest first; raises ApiError."""
        return ApprovalPage.model_validate(self._send(_approvals(cursor, limit)))

    def request(self, request_id: str) -> Asked:
        """A request with its form, and how it stands; raises ApiError."""
        return Asked.model_validate(self._send(_Call("GET", f"/ecs/status/{request_id}")))

    def respond(
        self, request_id: str, action: Action, *, data: Mapping[str, Any] | None = None, comment: str | None = None
    ) -> Responded:
        """Answer a request; raises ApiError (Conflict: another answer stands; Forbidden: others may answer)."""
        return Responded.model_validate(self._send(_respond(request_id, action, data, comment)))

    def resolve(
        self, job_id: str, execution_id: str, verdict: Verdict, *, evidence: str, result: Any = None
    ) -> Commanded:
        """Say what became of a parked step; raises ApiError (Conflict: it is not parked)."""
        return Commanded.model_validate(self._send(_resolve(job_id, execution_id, verdict, evidence, result)))

    def events(self, job_id: str, *, after: int = 0, limit: int = 10_000) -> list[JobEvent]:
        """The events with `seq` above `after` that are there now; raises ApiError."""
        return _events(self._send(_Call("GET", f"/jobs/{job_id}/events", params={"after": after, "limit": limit})))

    def follow(
        self, job_id: str, *, after: int = 0, to_seal: bool = False, patience_s: float = 30.0
    ) -> Generator[JobEvent]:
        """Events as they come, until the job ends (or is sealed); resumes where a connection broke.

        Raises:
            ApiError: The gateway refused it.
            Unreachable: Nothing could be read for `patience_s`.
        """
        course = _Course(after, to_seal, patience_s, time.monotonic())
        while not course.over:
            try:
                with self._http.stream("GET", f"/jobs/{job_id}/events", **course.arguments()) as answer:
                    if answer.status_code != 200:
                        answer.read()
                        _checked(answer)
                    for part in answer.iter_bytes():
                        yield from course.take(part, time.monotonic())
                        if course.over:
                            return
                course.broke(_EARLY_END, time.monotonic())
            except (httpx.TransportError, Unreachable) as error:
                course.broke(error, time.monotonic())
            time.sleep(_PAUSE_S)

    def contracts(self, job_id: str, level: Level = "result") -> list[Contract]:
        """The execution contracts of a job; raises ApiError."""
        return _contracts(self._send(_Call("GET", f"/jobs/{job_id}/contracts", params={"level": level})))

    def verify(self, job_id: str) -> dict[str, Any]:
        """The verifier's proof; raises ApiError."""
        return self._send(_Call("GET", f"/jobs/{job_id}/verify"))

    def raw_stream(self, job_id: str) -> dict[str, Any]:
        """A job's raw stream, to be checked by oneself: {job_id, keys, records}; raises ApiError."""
        return self._send(_Call("GET", f"/jobs/{job_id}/stream"))

    def evidence(self, job_id: str) -> bytes:
        """The evidence bundle of a sealed job, a zip; raises ApiError (Conflict: it isn't sealed, or doesn't hold)."""
        return self._send_raw(_Call("GET", f"/jobs/{job_id}/evidence"))

    def inclusion(self, job_id: str) -> str:
        """A tlog-proof that a job's seal is in the log of seals; raises ApiError."""
        return self._send_raw(_Call("GET", f"/jobs/{job_id}/inclusion")).decode()

    def checkpoint(self) -> str:
        """The signed state of the log of seals; raises ApiError."""
        return self._send_raw(_Call("GET", "/seals/checkpoint")).decode()

    def consistency(self, old: int) -> str:
        """A proof that the log of seals only grew since it had `old` leaves; raises ApiError."""
        return self._send_raw(_Call("GET", "/seals/consistency", params={"old": old})).decode()

    def replay(self, job_id: str, *, to: str | None = None, steps: bool = False) -> dict[str, Any]:
        """The job as it stood at a point (an event's id or number, or a time), from its log; raises ApiError."""
        return self._send(_replay(job_id, to, steps))

    def effects(self, job_id: str) -> dict[str, Any]:
        """The effect log: {job_id, effects, effects_hash}; raises ApiError."""
        return self._send(_Call("GET", f"/jobs/{job_id}/effects"))

    def ledger(self, job_id: str) -> dict[str, Any]:
        """Each call as the ledger holds it, and what made it so: {job_id, calls}; raises ApiError."""
        return self._send(_Call("GET", f"/jobs/{job_id}/ledger"))

    def trace(self, job_id: str) -> dict[str, Any]:
        """Decision tree, dependency graph, steps, events, effects; raises ApiError."""
        return self._send(_Call("GET", f"/jobs/{job_id}/trace"))

    def why(
        self,
        *,
        external_id: str | None = None,
        tool: str | None = None,
        since: str | None = None,
        where: Sequence[str] = (),
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Effects, newest first, each with the tree of its reasons: {effects, cursor}; raises ApiError."""
        return self._send(_why(external_id, tool, since, where, cursor))

    def tools(self) -> list[dict[str, Any]]:
        """The registered tools, newest version each; raises ApiError."""
        return self._send(_Call("GET", "/tools"))["tools"]

    def release_tool(self, name: str, *, reason: str) -> dict[str, Any]:
        """Let the calls of a tool in quarantine go on; raises ApiError (NotFound: no such tool)."""
        return self._send(_release_tool(name, reason))

    def models(self) -> list[dict[str, Any]]:
        """The registered models; raises ApiError."""
        return self._send(_Call("GET", "/models"))["models"]

    def workers(self) -> list[dict[str, Any]]:
        """Every worker's name and who lives under it; raises ApiError."""
        return self._send(_Call("GET", "/workers"))["workers"]

    def worker(self, worker_id: str) -> dict[str, Any]:
        """A name with what it has open in this tenant's jobs, as far as that is known; raises ApiError."""
        return self._send(_Call("GET", f"/workers/{worker_id}"))

    def end_worker(self, worker_id: str, *, evidence: str, incarnation: str | None = None) -> dict[str, Any]:
        """Say that who lives under a name can act no more; raises ApiError (Conflict: nobody lives under it)."""
        return self._send(_end_worker(worker_id, evidence, incarnation))

    def _send(self, call: _Call) -> Any:
        return _checked(self._answer(call))

    def _send_raw(self, call: _Call) -> bytes:
        return _good(self._answer(call)).content

    def _answer(self, call: _Call) -> httpx.Response:
        try:
            return self._http.request(call.method, call.path, **call.arguments())
        except httpx.TransportError as error:
            raise _unreachable(error) from None


class AsyncClient:
    """Calls the gateway; use it as an async context manager."""

    def __init__(
        self, url: str, token: str, *, timeout_s: float = _TIMEOUT_S, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api", headers=_bearer(token), timeout=timeout_s, transport=transport
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
        call = _submit(plan, agent, session, options, idempotency_key, wait_s=wait_s)
        return Submitted.model_validate(await self._send(call))

    async def jobs(self, *, status: str | None = None, cursor: str | None = None, limit: int = 50) -> JobPage:
        """As `Client.jobs`."""
        return JobPage.model_validate(await self._send(_jobs(status, cursor, limit)))

    async def job(self, job_id: str, *, wait_s: int | None = None) -> Job:
        """As `Client.job`."""
        return Job.model_validate(await self._send(_Call("GET", f"/jobs/{job_id}", wait_s=wait_s)))

    async def cancel(self, job_id: str, *, reason: str | None = None, compensate: bool = False) -> Commanded:
        """As `Client.cancel`."""
        return Commanded.model_validate(await self._send(_cancel(job_id, reason, compensate)))

    async def pause(self, job_id: str, *, reason: str | None = None) -> Commanded:
        """As `Client.pause`."""
        return Commanded.model_validate(await self._send(_pause(job_id, reason)))

    async def resume(self, job_id: str, *, reason: str | None = None) -> Commanded:
        """As `Client.resume`."""
        return Commanded.model_validate(await self._send(_resume(job_id, reason)))

    async def continue_job(
        self,
        job_id: str,
        plan: Mapping[str, Any] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        settle: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Submitted:
        """As `Client.continue_job`."""
        return Submitted.model_validate(await self._send(_continue(job_id, plan, options, settle)))

    async def cancel_contract(self, job_id: str, execution_id: str, *, reason: str | None = None) -> Commanded:
        """As `Client.cancel_contract`."""
        return Commanded.model_validate(await self._send(_cancel_contract(job_id, execution_id, reason)))

    async def signal(self, job_id: str, correlation_key: str, payload: Any = None) -> Commanded:
        """As `Client.signal`."""
        return Commanded.model_validate(await self._send(_signal(job_id, correlation_key, payload)))

    async def reconcile(self, job_id: str) -> Reconciled:
        """Compare what a job did with the outside; raises ApiError."""
        return Reconciled.model_validate(await self._send(_reconcile(job_id)))

    async def approvals(self, *, cursor: str | None = None, limit: int = 50) -> ApprovalPage:
        """As `Client.approvals`."""
        return ApprovalPage.model_validate(await self._send(_approvals(cursor, limit)))

    async def request(self, request_id: str) -> Asked:
        """As `Client.request`."""
        return Asked.model_validate(await self._send(_Call("GET", f"/ecs/status/{request_id}")))

    async def respond(
        self, request_id: str, action: Action, *, data: Mapping[str, Any] | None = None, comment: str | None = None
    ) -> Responded:
        """As `Client.respond`."""
        return Responded.model_validate(await self._send(_respond(request_id, action, data, comment)))

    async def resolve(
        self, job_id: str, execution_id: str, verdict: Verdict, *, evidence: str, result: Any = None
    ) -> Commanded:
        """As `Client.resolve`."""
        return Commanded.model_validate(await self._send(_resolve(job_id, execution_id, verdict, evidence, result)))

    async def events(self, job_id: str, *, after: int = 0, limit: int = 10_000) -> list[JobEvent]:
        """As `Client.events`."""
        call = _Call("GET", f"/jobs/{job_id}/events", params={"after": after, "limit": limit})
        return _events(await self._send(call))

    async def follow(
        self, job_id: str, *, after: int = 0, to_seal: bool = False, patience_s: float = 30.0
    ) -> AsyncGenerator[JobEvent]:
        """As `Client.follow`."""
        course = _Course(after, to_seal, patience_s, time.monotonic())
        while not course.over:
            try:
                async with self._http.stream("GET", f"/jobs/{job_id}/events", **course.arguments()) as answer:
                    if answer.status_code != 200:
                        await answer.aread()
                        _checked(answer)
                    async for part in answer.aiter_bytes():
                        for event in course.take(part, time.monotonic()):
                            yield event
                        if course.over:
                            return
                course.broke(_EARLY_END, time.monotonic())
            except (httpx.TransportError, Unreachable) as error:
                course.broke(error, time.monotonic())
            await asyncio.sleep(_PAUSE_S)

    async def contracts(self, job_id: str, level: Level = "result") -> list[Contract]:
        """As `Client.contracts`."""
        return _contracts(await self._send(_Call("GET", f"/jobs/{job_id}/contracts", params={"level": level})))

    async def verify(self, job_id: str) -> dict[str, Any]:
        """As `Client.verify`."""
        return await self._send(_Call("GET", f"/jobs/{job_id}/verify"))

    async def raw_stream(self, job_id: str) -> dict[str, Any]:
        """As `Client.raw_stream`."""
        return await self._send(_Call("GET", f"/jobs/{job_id}/stream"))

    async def evidence(self, job_id: str) -> bytes:
        """As `Client.evidence`."""
        return await self._send_raw(_Call("GET", f"/jobs/{job_id}/evidence"))

    async def inclusion(self, job_id: str) -> str:
        """As `Client.inclusion`."""
        return (await self._send_raw(_Call("GET", f"/jobs/{job_id}/inclusion"))).decode()

    async def checkpoint(self) -> str:
        """As `Client.checkpoint`."""
        return (await self._send_raw(_Call("GET", "/seals/checkpoint"))).decode()

    async def consistency(self, old: int) -> str:
        """As `Client.consistency`."""
        return (await self._send_raw(_Call("GET", "/seals/consistency", params={"old": old}))).decode()

    async def replay(self, job_id: str, *, to: str | None = None, steps: bool = False) -> dict[str, Any]:
        """As `Client.replay`."""
        return await self._send(_replay(job_id, to, steps))

    async def effects(self, job_id: str) -> dict[str, Any]:
        """As `Client.effects`."""
        return await self._send(_Call("GET", f"/jobs/{job_id}/effects"))

    async def ledger(self, job_id: str) -> dict[str, Any]:
        """As `Client.ledger`."""
        return await self._send(_Call("GET", f"/jobs/{job_id}/ledger"))

    async def trace(self, job_id: str) -> dict[str, Any]:
        """As `Client.trace`."""
        return await self._send(_Call("GET", f"/jobs/{job_id}/trace"))

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
        return await self._send(_why(external_id, tool, since, where, cursor))

    async def tools(self) -> list[dict[str, Any]]:
        """As `Client.tools`."""
        return (await self._send(_Call("GET", "/tools")))["tools"]

    async def release_tool(self, name: str, *, reason: str) -> dict[str, Any]:
        """As `Client.release_tool`."""
        return await self._send(_release_tool(name, reason))

    async def models(self) -> list[dict[str, Any]]:
        """As `Client.models`."""
        return (await self._send(_Call("GET", "/models")))["models"]

    async def workers(self) -> list[dict[str, Any]]:
        """As `Client.workers`."""
        return (await self._send(_Call("GET", "/workers")))["workers"]

    async def worker(self, worker_id: str) -> dict[str, Any]:
        """As `Client.worker`."""
        return await self._send(_Call("GET", f"/workers/{worker_id}"))

    async def end_worker(self, worker_id: str, *, evidence: str, incarnation: str | None = None) -> dict[str, Any]:
        """As `Client.end_worker`."""
        return await self._send(_end_worker(worker_id, evidence, incarnation))

    async def _send(self, call: _Call) -> Any:
        return _checked(await self._answer(call))

    async def _send_raw(self, call: _Call) -> bytes:
        return _good(await self._answer(call)).content

    async def _answer(self, call: _Call) -> httpx.Response:
        try:
            return await self._http.request(call.method, call.path, **call.arguments())
        except httpx.TransportError as error:
            raise _unreachable(error) from None


class _Course:
    """One walk along a job's events, over as many connections as it takes."""

    def __init__(self, after: int, to_seal: bool, patience_s: float, now_s: float) -> None:
        self._last = after
        self._end = frozenset({"job_sealed"}) if to_seal else ENDS | {"job_sealed"}
        self._patience_s = patience_s
        self._heard_s = now_s
        self._unended: list[bytes] = []
        """The parts of a line whose end has not come."""
        self._data: list[bytes] = []
        self._moves = False
        self.over = False

    def arguments(self) -> dict[str, Any]:
        """Of the request that goes on from the last event seen."""
        self._unended.clear()
        self._data.clear()
        self._moves = False
        headers = {"accept": "text/event-stream", "last-event-id": str(self._last)}
        return {"headers": headers, "timeout": httpx.Timeout(_TIMEOUT_S, read=_SILENCE_S)}

    def take(self, part: bytes, now_s: float) -> Iterator[JobEvent]:
        """A part of the stream, cut anywhere; the events that it completes, none after the one that ends the walk."""
        ended, line_end, rest = part.rpartition(b"\n")
        if line_end:
            lines = b"".join((*self._unended, ended)).split(b"\n")
            self._unended = [rest]
        else:
            lines = []
            self._unended.append(rest)
        for line in lines:
            event = self._line(line.removesuffix(b"\r"), now_s)
            if event is not None:
                yield event
                if self.over:
                    return

    def _line(self, line: bytes, now_s: float) -> JobEvent | None:
        """One line; an event where it completes one (id and name are repeated in its data)."""
        if line.startswith(b"data:"):
            self._heard_s = now_s
            self._data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            self._moves = line[6:].strip() == _MOVE
        elif line == _ALIVE:
            self._heard_s = now_s
        elif not line and self._data:
            return self._event()
        return None

    def _event(self) -> JobEvent | None:
        text, moves = b"\n".join(self._data), self._moves
        self._data.clear()
        self._moves = False
        event = None if moves else JobEvent.model_validate_json(text)
        if event is None or event.seq <= self._last:
            return None
        self._last = event.seq
        self.over = event.type in self._end
        return event

    def broke(self, error: Exception, now_s: float) -> None:
        """A connection ended too soon: go on, as long as patience lasts."""
        if now_s - self._heard_s > self._patience_s:
            raise error if isinstance(error, Unreachable) else _unreachable(error)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _submit(
    plan: Mapping[str, Any] | Goal,
    agent: str | None,
    session: str | None,
    options: Mapping[str, Any] | None,
    idempotency_key: str | None,
    *,
    wait_s: int | None,
) -> _Call:
    asked = plan.body() if isinstance(plan, Goal) else {"plan": dict(plan)}
    body = asked | _given(agent=agent, session=session, options=dict(options) if options else None)
    headers = {"idempotency-key": idempotency_key} if idempotency_key is not None else {}
    return _Call("POST", "/jobs", body, headers=headers, wait_s=wait_s)


def _jobs(status: str | None, cursor: str | None, limit: int) -> _Call:
    return _Call("GET", "/jobs", params=_given(status=status, cursor=cursor, limit=limit))


def _reconcile(job_id: str) -> _Call:
    return _Call("POST", f"/jobs/{job_id}/reconcile")


def _continue(
    job_id: str,
    plan: Mapping[str, Any] | None,
    options: Mapping[str, Any] | None,
    settle: Mapping[str, Mapping[str, Any]] | None,
) -> _Call:
    body = _given(
        plan=dict(plan) if plan is not None else None,
        options=dict(options) if options else None,
        settle={name: dict(said) for name, said in settle.items()} if settle else None,
    )
    return _Call("POST", f"/jobs/{job_id}/continue", body)


def _cancel(job_id: str, reason: str | None, compensate: bool) -> _Call:
    return _Call("POST", f"/jobs/{job_id}/cancel", _given(reason=reason, compensate=compensate))


def _pause(job_id: str, reason: str | None) -> _Call:
    return _Call("POST", f"/jobs/{job_id}/pause", _given(reason=reason))


def _resume(job_id: str, reason: str | None) -> _Call:
    return _Call("POST", f"/jobs/{job_id}/resume", _given(reason=reason))


def _cancel_contract(job_id: str, execution_id: str, reason: str | None) -> _Call:
    return _Call("POST", f"/jobs/{job_id}/contracts/{execution_id}/cancel", _given(reason=reason))


def _signal(job_id: str, correlation_key: str, payload: Any) -> _Call:
    return _Call("POST", f"/jobs/{job_id}/signal", {"correlation_key": correlation_key, "payload": payload})


def _approvals(cursor: str | None, limit: int) -> _Call:
    return _Call("GET", "/approvals", params={"limit": limit} | ({"cursor": cursor} if cursor else {}))


def _respond(request_id: str, action: Action, data: Mapping[str, Any] | None, comment: str | None) -> _Call:
    body: dict[str, Any] = {"request_id": request_id, "action": action}
    if data:
        body["data"] = dict(data)
    if comment is not None:
        body["comment"] = comment
    return _Call("POST", "/ecs/respond", body)


def _resolve(job_id: str, execution_id: str, verdict: Verdict, evidence: str, result: Any) -> _Call:
    path = f"/jobs/{job_id}/contracts/{execution_id}/resolve"
    return _Call("POST", path, _given(verdict=verdict, evidence=evidence, result=result))


def _release_tool(name: str, reason: str) -> _Call:
    return _Call("POST", f"/tools/{name}/release", {"reason": reason})


def _end_worker(worker_id: str, evidence: str, incarnation: str | None) -> _Call:
    return _Call("POST", f"/workers/{worker_id}/end", _given(evidence=evidence, incarnation=incarnation))


def _replay(job_id: str, to: str | None, steps: bool) -> _Call:
    return _Call("GET", f"/jobs/{job_id}/replay", params=_given(to=to, steps=1 if steps else None))


def _why(
    external_id: str | None, tool: str | None, since: str | None, where: Sequence[str], cursor: str | None
) -> _Call:
    asked = _given(external_id=external_id, tool=tool, since=since, where=list(where) or None, cursor=cursor)
    return _Call("GET", "/effects", params=asked)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _contracts(answer: Any) -> list[Contract]:
    return [Contract.model_validate(contract) for contract in answer["contracts"]]


def _events(answer: Any) -> list[JobEvent]:
    return [JobEvent.model_validate(event) for event in answer]


def _checked(answer: httpx.Response) -> Any:
    """The answer's JSON.

    Raises:
        ApiError: for every status from 400 on, and for what is no JSON.
    """
    try:
        body = answer.json()
    except ValueError:
        raise ApiError("bad_answer", f"HTTP {answer.status_code} without JSON: is this a gateway?") from None
    if answer.status_code < 400:
        return body
    said: dict[str, Any] = cast("dict[str, Any]", body).get("error", {}) if isinstance(body, dict) else {}
    kind = _ERRORS.get(answer.status_code, ApiError)
    message = said.get("message", f"HTTP {answer.status_code}")
    raise kind(said.get("code", "http_error"), message, said.get("details"))


def _good(answer: httpx.Response) -> httpx.Response:
    """An answer whose body is no JSON.

    Raises:
        ApiError: as `_checked`.
    """
    if answer.status_code >= 400:
        _checked(answer)
    return answer


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable("unreachable", f"the gateway does not answer ({type(error).__name__})")
