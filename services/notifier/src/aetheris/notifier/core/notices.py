"""What somebody must act on, as the facts of jobs say it, and when that is over; pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import quote

from aetheris.notifier.core.notice_routes import PREFIX, Channel, NoticeKind, NoticeRoute, NoticeRoutes, at, tool_of
from aetheris.notifier.core.notice_texts import plain, shown, title_of
from aetheris.protocol.base.ids import NAME
from aetheris.protocol.messages import events as ev
from aetheris.protocol.planning.approvals import request_id

STUCK: Mapping[str, str] = {
    "upgrade": "a service does not know a record of it: upgrade, and it goes on",
    "verifier": "no prober answers whether what it did still stands",
}
"""Waits that nobody was asked about, and why a job is in them."""
_SETTLED_OTHERWISE = frozenset({"human", "probe", "late", "catch_up", "ledger"})
_RETRY = {"max_attempts": 12, "backoff_s": 1.0, "backoff_factor": 2.0, "max_backoff_s": 300.0}
"""Where it certainly was not told: for some forty minutes."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the log says of a job before the fact in hand."""

    tenant: str
    submitted_by: str
    tools: frozenset[str]
    """All that its plans call."""
    called: Mapping[str, str] = field(default_factory=dict[str, str])
    """invocation_id → tool."""

    @property
    def tells(self) -> bool:
        """Whether it is itself a notice: nothing of it is told."""
        return bool(self.tools) and all(tool.startswith(PREFIX) for tool in self.tools)


@dataclass(frozen=True, slots=True)
class HumanMatter:
    """Something that waits for somebody. `subject` names it: the same for each time that it is read."""

    kind: NoticeKind
    subject: str
    job_id: str
    tenant: str
    submitted_by: str
    tool: str | None = None
    arguments: Any = None
    request: str | None = None
    """Its id, where it is a request."""
    rule: str | None = None
    why: str | None = None
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class NoticeJob:
    """What is submitted: one notice on one channel."""

    key: str
    plan: dict[str, Any]


OPTIONS = {"on_in_doubt": "fail"}
"""Of its jobs: where nobody knows whether it was told, that is what the job says, and nobody is asked."""


def needs_facts(event: ev.Event) -> bool:
    """Whether the job's own log must be looked at, to know what the event is about."""
    return isinstance(event, ev.InvocationParked) or (
        isinstance(event, ev.JobWaiting) and (event.wait_type == "confirmation" or event.wait_type in STUCK)
    )


def matter_of(event: ev.Event, facts: JobFacts | None) -> HumanMatter | None:
    """What somebody must act on; None: nothing, or it is about a notice.

    Args:
        facts: of the job, where `needs_facts`.
    """
    found = _matter_of(event, facts)
    if found is None or (found.tool or "").startswith(PREFIX) or NAME.fullmatch(found.job_id) is None:
        return None
    return found


def _matter_of(event: ev.Event, facts: JobFacts | None) -> HumanMatter | None:
    match event:
        case ev.ApprovalRequested():
            request = request_id(event.job_id, event.node_id, event.idempotency_key, event.generation)
            return _asked(event, "approval", request)
        case ev.JobWaiting(wait_type="human") if event.form is not None:
            request = request_id(event.job_id, event.node_id or "", event.idempotency_key or "")
            return _asked(event, "form", request)
        case ev.InvocationParked() if facts is not None:
            subject, tool = f"parked {event.job_id} {event.invocation_id}", facts.called.get(event.invocation_id)
            return _standing(event, "parked", subject, facts, tool=tool, why=event.reason)
        case ev.JobWaiting(wait_type="confirmation") if facts is not None:
            return _standing(event, "confirmation", _wait(event), facts, rule=event.rule)
        case ev.JobWaiting() if event.wait_type in STUCK and facts is not None:
            return _standing(event, "stuck", _wait(event), facts, why=STUCK[event.wait_type])
        case _:
            return None


def over(event: ev.Event) -> tuple[str, ...]:
    """The subjects of what nobody need act on any more."""
    match event:
        case ev.ApprovalDecided():
            return (request_id(event.job_id, event.node_id, event.idempotency_key, event.generation),)
        case ev.InvocationRejected():
            return (request_id(event.job_id, event.node_id, event.idempotency_key),)
        case ev.WaitCompleted(wait_type="human"):
            return (request_id(event.job_id, event.node_id or "", event.idempotency_key or ""),)
        case ev.WaitCompleted() if event.wait_type == "confirmation" or event.wait_type in STUCK:
            return (_wait(event),)
        case ev.ToolInvocationFinished() if event.via in _SETTLED_OTHERWISE:
            return (f"parked {event.job_id} {event.invocation_id}",)
        case ev.InvocationReopened():
            return (f"parked {event.job_id} {event.invocation_id}",)
        case _:
            return ()


def key_of(subject: str, channel: str, step: int) -> str:
    """The Idempotency-Key of a notice: the same matter, channel and step of its escalation name one job."""
    return f"notice-{hashlib.sha256(chr(0).join((subject, channel, str(step))).encode()).hexdigest()}"


def notice_jobs(matter: HumanMatter, since: str, routes: NoticeRoutes, console_url: str | None) -> list[NoticeJob]:
    """Who is told what: at once, and later, where nobody has answered by then.

    Args:
        since: when it was recorded, RFC 3339: due times follow from it, and no clock is asked.
    """
    route = routes.route(matter.kind, matter.tenant, matter.tool, matter.arguments)
    if route is None:
        return []
    said = {"lines": _lines(matter, since, route), "link": _link(matter, console_url)}
    jobs = [_job(matter, said, routes.channels[one]) for one in route.tell]
    for step, later in enumerate(route.escalate, 1):
        due = _due(since, later.after_s)
        if due is None or not _is_before(due, matter.expires_at):
            break
        jobs += [_job(matter, said, routes.channels[one], (step, due)) for one in later.tell]
    return jobs


def _asked(event: ev.ApprovalRequested | ev.JobWaiting, kind: NoticeKind, request: str) -> HumanMatter:
    form = event.form or {}
    said: Any = form.get("context")
    context = cast("Mapping[str, Any]", said) if isinstance(said, dict) else {}
    tool = context.get("tool")
    return HumanMatter(
        kind,
        request,
        event.job_id,
        str(context.get("tenant", "")),
        str(context.get("submitted_by", "")),
        tool if isinstance(tool, str) else None,
        context.get("arguments"),
        request,
        event.rule,
        expires_at=_text(event.expires_at if isinstance(event, ev.ApprovalRequested) else form.get("expires_at")),
    )


def _standing(
    event: ev.Event,
    kind: NoticeKind,
    subject: str,
    facts: JobFacts,
    *,
    tool: str | None = None,
    rule: str | None = None,
    why: str | None = None,
) -> HumanMatter | None:
    if facts.tells:
        return None
    return HumanMatter(kind, subject, event.job_id, facts.tenant, facts.submitted_by, tool, rule=rule, why=why)


def _wait(event: ev.JobWaiting | ev.WaitCompleted) -> str:
    return f"{event.wait_type} {event.job_id} {event.correlation_key or ''}"


def _job(
    matter: HumanMatter, said: Mapping[str, Any], channel: Channel, later: tuple[int, datetime] | None = None
) -> NoticeJob:
    """At once, or in this step of the escalation, at this time: its timer is in the log, and no restart moves it."""
    title = title_of(matter.kind, matter.tool, again=later is not None)
    secrets = {name: {"$secret": secret} for name, secret in channel.secrets.items()}
    args = {"notice": {"channel": channel.name, "title": title, **said}, **secrets}
    tell: dict[str, Any] = {"id": "tell", "tool": tool_of(channel), "args": args, "retry": _RETRY}
    if later is None:
        return NoticeJob(key_of(matter.subject, channel.name, 0), {"nodes": [tell]})
    step, due = later
    wait = {"id": "due", "kind": "timer", "wait": {"until": due.isoformat()}}
    return NoticeJob(key_of(matter.subject, channel.name, step), {"nodes": [wait, {**tell, "depends_on": ["due"]}]})


def _lines(matter: HumanMatter, since: str, route: NoticeRoute) -> list[str]:
    said = [
        ("Tool", matter.tool),
        ("Tenant", matter.tenant),
        ("Submitted by", matter.submitted_by),
        ("Rule", matter.rule),
        ("Why", matter.why),
        ("Since", since),
        ("Expires", matter.expires_at),
        ("Job", matter.job_id),
    ]
    lines = [f"{name}: {plain(value)}" for name, value in said if value]
    return lines + [f"{plain(pointer)}: {shown(at(matter.arguments, pointer))}" for pointer in route.show]


def _link(matter: HumanMatter, console_url: str | None) -> str:
    """Where it is looked at, and answered by hand; fetching it changes nothing."""
    if not console_url:
        return ""
    place = ("inbox", matter.request) if matter.request is not None else ("jobs", matter.job_id)
    return "/".join((console_url.rstrip("/"), *(quote(part, safe="") for part in place)))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _instant(value: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(value or "")
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _due(since: str, after_s: float) -> datetime | None:
    began = _instant(since)
    try:
        return None if began is None else began + timedelta(seconds=after_s)
    except OverflowError:
        return None


def _is_before(due: datetime, expires_at: str | None) -> bool:
    end = _instant(expires_at)
    return end is None or due < end
