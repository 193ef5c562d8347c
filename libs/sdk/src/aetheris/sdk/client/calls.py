"""What is asked of the gateway: one request for each thing that it can be asked."""

import json
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aetheris.protocol.api import Action, Verdict

TIMEOUT_S = 30.0
PATIENCE_S = 60.0
"""So long a run asks a gateway again that does not answer."""

Level = Literal["result", "transition", "request"]
"""How much of a contract is asked for: what came of it, how it got there, what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a model is to plan for (docs/models.md).

    Args:
        tools: names or patterns of what the model may call; none by default.
        model: as the service has it configured; it may be left out where there is one only.
        limits: turns, calls, tokens, cost_usd; what is over ends the job.
        planning: turn by turn (agent, the default), or one answer that is the whole plan (graph).
        max_tokens: of each answer.
        temperature: of each answer, from 0 to 2, as far as its provider takes it; recorded.
        seed: by which its provider draws, as far as it does; recorded.
    """

    goal: str
    tools: Sequence[str] = ()
    model: str | None = None
    system: str | None = None
    planning: Literal["agent", "graph"] | None = None
    limits: Mapping[str, int | float] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None

    def body(self) -> dict[str, Any]:
        """As it is sent."""
        limits = dict(self.limits) if self.limits else None
        given = _given(model=self.model, system=self.system, planning=self.planning, limits=limits)
        drawn = _given(max_tokens=self.max_tokens, temperature=self.temperature, seed=self.seed)
        return {"goal": self.goal, "tools": list(self.tools), **given, **drawn}


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request."""

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
            found["timeout"] = TIMEOUT_S + self.wait_s
        if self.body is not None:
            found["content"] = json.dumps(self.body, allow_nan=False, ensure_ascii=False).encode()
            found["headers"]["content-type"] = "application/json"
        return found


def trusted(url: str, ca: str | os.PathLike[str] | None = None) -> ssl.SSLContext | bool:
    """Whom to trust at an https url, as httpx takes it: who `ca` (AETHERIS_CA) names, else the system's authorities.

    Raises:
        OSError: there is no PEM file of that name.
    """
    named = ca or os.environ.get("AETHERIS_CA")
    return ssl.create_default_context(cafile=named) if named and url.startswith("https:") else True


def bearer(token: str) -> dict[str, str]:
    """The header that says who calls."""
    return {"authorization": f"Bearer {token}"}


def submit(
    plan: Mapping[str, Any] | Goal,
    agent: str | None,
    session: str | None,
    options: Mapping[str, Any] | None,
    idempotency_key: str | None,
    *,
    labels: Mapping[str, str] | None = None,
    wait_s: int | None,
) -> ApiCall:
    """POST /jobs."""
    asked = plan.body() if isinstance(plan, Goal) else {"plan": dict(plan)}
    body = asked | _given(
        agent=agent,
        session=session,
        labels=dict(labels) if labels else None,
        options=dict(options) if options else None,
    )
    headers = {"idempotency-key": idempotency_key} if idempotency_key is not None else {}
    return ApiCall("POST", "/jobs", body, headers=headers, wait_s=wait_s)


def jobs(cursor: str | None, limit: int, **query: str | None) -> ApiCall:
    """GET /jobs."""
    return ApiCall("GET", "/jobs", params=_given(**query, cursor=cursor, limit=limit))


def reconcile(job_id: str) -> ApiCall:
    """POST /jobs/{id}/reconcile."""
    return ApiCall("POST", f"/jobs/{job_id}/reconcile")


def continue_job(
    job_id: str,
    plan: Mapping[str, Any] | None,
    options: Mapping[str, Any] | None,
    settle: Mapping[str, Mapping[str, Any]] | None,
) -> ApiCall:
    """POST /jobs/{id}/continue."""
    body = _given(
        plan=dict(plan) if plan is not None else None,
        options=dict(options) if options else None,
        settle={name: dict(fields) for name, fields in settle.items()} if settle else None,
    )
    return ApiCall("POST", f"/jobs/{job_id}/continue", body)


def cancel(job_id: str, reason: str | None, tenant: str | None, *, compensate: bool) -> ApiCall:
    """POST /jobs/{id}/cancel."""
    return ApiCall("POST", f"/jobs/{job_id}/cancel", _given(reason=reason, compensate=compensate, tenant=tenant))


def undo(job_id: str, tool: str | None, since: str | None) -> ApiCall:
    """POST /jobs/{id}/undo."""
    return ApiCall("POST", f"/jobs/{job_id}/undo", _given(tool=tool, since=since))


def undoable(cursor: str | None, **query: str | None) -> ApiCall:
    """GET /undo."""
    return ApiCall("GET", "/undo", params=_given(**query, cursor=cursor))


def pause(job_id: str, reason: str | None) -> ApiCall:
    """POST /jobs/{id}/pause."""
    return ApiCall("POST", f"/jobs/{job_id}/pause", _given(reason=reason))


def resume(job_id: str, reason: str | None) -> ApiCall:
    """POST /jobs/{id}/resume."""
    return ApiCall("POST", f"/jobs/{job_id}/resume", _given(reason=reason))


def cancel_contract(job_id: str, execution_id: str, reason: str | None) -> ApiCall:
    """POST /jobs/{id}/contracts/{execution_id}/cancel."""
    return ApiCall("POST", f"/jobs/{job_id}/contracts/{execution_id}/cancel", _given(reason=reason))


def signal(job_id: str, correlation_key: str, payload: Any) -> ApiCall:
    """POST /jobs/{id}/signal."""
    return ApiCall("POST", f"/jobs/{job_id}/signal", {"correlation_key": correlation_key, "payload": payload})


def approvals(cursor: str | None, limit: int) -> ApiCall:
    """GET /approvals."""
    return ApiCall("GET", "/approvals", params={"limit": limit} | ({"cursor": cursor} if cursor else {}))


def audit(since: str | None, cursor: str | None) -> ApiCall:
    """GET /audit."""
    return ApiCall("GET", "/audit", params=_given(since=since, cursor=cursor))


def respond(
    request_id: str,
    action: Action,
    data: Mapping[str, Any] | None,
    comment: str | None,
    *,
    break_glass: bool,
    signature: str | None,
) -> ApiCall:
    """POST /ecs/respond."""
    body: dict[str, Any] = {"request_id": request_id, "action": action}
    if data:
        body["data"] = dict(data)
    if comment is not None:
        body["comment"] = comment
    if break_glass:
        body["break_glass"] = True
    if signature is not None:
        body["signature"] = signature
    return ApiCall("POST", "/ecs/respond", body)


def resolve(job_id: str, execution_id: str, verdict: Verdict, evidence: str, more: Mapping[str, Any]) -> ApiCall:
    """POST /jobs/{id}/contracts/{execution_id}/resolve."""
    path = f"/jobs/{job_id}/contracts/{execution_id}/resolve"
    return ApiCall("POST", path, _given(verdict=verdict, evidence=evidence, **more))


def release_tool(name: str, reason: str) -> ApiCall:
    """POST /tools/{name}/release."""
    return ApiCall("POST", f"/tools/{name}/release", {"reason": reason})


def freeze(path: str, agent: str | None, tenant: str | None, tool: str | None, more: Mapping[str, Any]) -> ApiCall:
    """POST /freezes, or /freezes/end."""
    return ApiCall("POST", path, _given(agent=agent, tenant=tenant, tool=tool, **more))


def openings(job_id: str, cursor: str | None) -> ApiCall:
    """GET /jobs/{id}/openings."""
    return ApiCall("GET", f"/jobs/{job_id}/openings", params=_given(cursor=cursor))


def about_subject(what: str, subject: str, tenant: str | None) -> ApiCall:
    """What becomes of a person's key: erase, enrol, hold or release."""
    return ApiCall("POST", f"/subjects/{what}", _given(subject=subject, tenant=tenant))


def activate_policy(policy: str, reason: str | None) -> ApiCall:
    """POST /policies."""
    return ApiCall("POST", "/policies", _given(policy=policy, reason=reason))


def try_policy(policy: str, since: str | None, cursor: str | None) -> ApiCall:
    """POST /policies/trial."""
    return ApiCall("POST", "/policies/trial", _given(policy=policy, since=since, cursor=cursor))


def order_rules(version: int, reason: str | None) -> ApiCall:
    """POST /rules."""
    return ApiCall("POST", "/rules", _given(version=version, reason=reason))


def dead_letters(topic: str | None) -> ApiCall:
    """GET /dead-letters."""
    return ApiCall("GET", "/dead-letters", params=_given(topic=topic))


def dead_letter(topic: str, partition: int, offset: int) -> ApiCall:
    """GET /dead-letters/{topic}/{partition}/{offset}."""
    return ApiCall("GET", f"/dead-letters/{topic}/{partition}/{offset}")


def redrive(topic: str, partition: int, offset: int, reason: str) -> ApiCall:
    """POST /dead-letters/{topic}/{partition}/{offset}/redrive."""
    return ApiCall("POST", f"/dead-letters/{topic}/{partition}/{offset}/redrive", _given(reason=reason))


def budgets(since: str | None) -> ApiCall:
    """GET /budgets."""
    return ApiCall("GET", "/budgets", params=_given(since=since))


def tell_schedules(report: Mapping[str, Any]) -> ApiCall:
    """POST /schedules."""
    return ApiCall("POST", "/schedules", dict(report))


def end_worker(worker_id: str, evidence: str, incarnation: str | None) -> ApiCall:
    """POST /workers/{worker_id}/end."""
    return ApiCall("POST", f"/workers/{worker_id}/end", _given(evidence=evidence, incarnation=incarnation))


def replay(job_id: str, to: str | None, steps: bool) -> ApiCall:
    """GET /jobs/{id}/replay."""
    return ApiCall("GET", f"/jobs/{job_id}/replay", params=_given(to=to, steps=1 if steps else None))


def why(where: Sequence[str], **asked: str | None) -> ApiCall:
    """GET /effects."""
    asked = _given(where=list(where) or None, **asked)
    return ApiCall("GET", "/effects", params=asked)


def evidence(job_id: str, audience: str | None, redact: Sequence[str]) -> ApiCall:
    """GET /jobs/{id}/evidence."""
    asked = _given(**{"for": audience}, redact=list(redact) or None)
    return ApiCall("GET", f"/jobs/{job_id}/evidence", params=asked)


def call_proof(job_id: str, external_id: str, disclose: Sequence[str], step: str | None) -> ApiCall:
    """GET /jobs/{id}/call-proof."""
    asked = _given(external_id=external_id, disclose=list(disclose) or None, step=step)
    return ApiCall("GET", f"/jobs/{job_id}/call-proof", params=asked)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
