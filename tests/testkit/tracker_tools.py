"""Issues of a Roundup tracker: opened, commented on, closed; load as `tests.testkit.tracker_tools`.

Environment: DEMO_TRACKER_URL. A note is written, and then attached: two calls, since each tool makes one change.
"""

import os
from typing import Any

from aetheris.rigs.demo.servers import TRACKER_LOGIN
from aetheris.sdk import Found, NotFound, ProbeContext, Result, StateChange, ToolContext, tool
from aetheris.sdk.outcomes import Confirmed, Drifted, Verdict
from aetheris.sdk.toolkits import http, smtp


@tool(effect_class="probeable", volatile=["issue"], settles_within_s=2)
async def open_issue(ctx: ToolContext, title: str) -> Result:
    """Open an issue; the key stands in its title."""
    made = await http.call(ctx, "POST", url("issue"), json={"title": f"{title} [{ctx.external_key}]"}, **sent())
    return opened(str(made.json()["data"]["id"]))


@open_issue.probe
async def find_issue(external_key: str, ctx: ProbeContext) -> Found | NotFound:
    """Ask for the issue that carries the key."""
    rows = await listed(ctx, "issue", title=external_key, **{"@fields": "title"})
    found = [str(one["id"]) for one in rows if f"[{external_key}]" in one["title"]]
    if not found:
        return NotFound((f"none of {len(rows)} issues has the key",))
    result = opened(found[0])
    return Found(result.value, result.external_id, ("it has the key",), tuple(result.changes))


@open_issue.verifier
async def issue_is_there(change: StateChange, ctx: ProbeContext) -> Verdict:
    """Whether the tracker still lists it."""
    rows = await listed(ctx, "issue", id=change.resource_id)
    return Confirmed(("tracker: listed",)) if rows else Drifted({"issue": "is not there"})


def opened(identity: str) -> Result:
    return Result({"issue": identity}, identity, [StateChange("issue", identity, "create")])


@tool(effect_class="probeable", volatile=["note"], settles_within_s=2)
async def write_note(ctx: ToolContext, text: str) -> Result:
    """Leave a note in the tracker; the key is its Message-ID."""
    note = {"content": text, "author": TRACKER_LOGIN[0], "messageid": smtp.message_id(ctx.external_key)}
    made = await http.call(ctx, "POST", url("msg"), json=note, **sent())
    identity = str(made.json()["data"]["id"])
    return Result({"note": identity}, identity, [StateChange("note", identity, "create")])


@write_note.probe
async def find_note(external_key: str, ctx: ProbeContext) -> Found | NotFound:
    """Ask for the note that carries the key."""
    wanted = smtp.message_id(external_key)
    rows = await listed(ctx, "msg", messageid=wanted, **{"@fields": "messageid"})
    found = [str(one["id"]) for one in rows if one["messageid"] == wanted]
    if not found:
        return NotFound((f"none of {len(rows)} notes has the key",))
    return Found({"note": found[0]}, found[0], ("it has the key",), (StateChange("note", found[0], "create"),))


@write_note.verifier
async def note_is_there(change: StateChange, ctx: ProbeContext) -> Verdict:
    """Whether the tracker still lists it."""
    rows = await listed(ctx, "msg", id=change.resource_id)
    return Confirmed() if rows else Drifted({"note": "is not there"})


@tool(effect_class="idempotent")
async def attach_note(ctx: ToolContext, issue: str, note: str) -> dict[str, str]:
    """Put a note to an issue; a second time changes nothing."""
    await patch(ctx, issue, {"@op": "add", "messages": note})
    return {"issue": issue, "note": note}


@tool(effect_class="idempotent")
async def close_issue(ctx: ToolContext, issue: str) -> Result:
    """Mark an issue as resolved; a second time changes nothing."""
    await patch(ctx, issue, {"@op": "replace", "status": "resolved"})
    return Result({"closed": issue}, issue, [StateChange("issue", issue, "close")])


@close_issue.verifier
async def issue_is_closed(change: StateChange, ctx: ProbeContext) -> Verdict:
    """Whether the tracker lists it among the resolved ones."""
    if await listed(ctx, "issue", id=change.resource_id, status="resolved"):
        return Confirmed(("tracker: resolved",))
    there = await listed(ctx, "issue", id=change.resource_id)
    return Drifted({"status": "is not resolved"} if there else {"issue": "is not there"})


async def patch(ctx: ToolContext, issue: str, change: dict[str, str]) -> None:
    """Roundup wants the ETag of what is changed; reading it changes nothing."""
    shown = await http.get(ctx, url("issue", issue), **sent())
    etag = {"If-Match": shown.headers["etag"]}
    await http.call(ctx, "PATCH", url("issue", issue), json=change, **sent(**etag))


async def listed(ctx: ProbeContext, kind: str, **wanted: str) -> list[Any]:
    """What the tracker lists; what is retired is in no list."""
    answer = await http.read(ctx, url(kind), params=wanted, auth=TRACKER_LOGIN, transport=http.direct())
    return answer["data"]["collection"]


def url(*names: str) -> str:
    return http.below(f"{os.environ['DEMO_TRACKER_URL']}/rest/data", *names)


def sent(**headers: str) -> dict[str, Any]:
    """Who asks, as Roundup wants to hear it."""
    origin = {"X-Requested-With": "rest", "Origin": os.environ["DEMO_TRACKER_URL"]}
    return {"auth": TRACKER_LOGIN, "headers": {**origin, **headers}, "transport": http.direct()}
