"""Issues of a tracker that speaks GitHub's API (GitHub, Gitea, Forgejo), for tools (docs/toolkits.md).

What is created carries a marker in its body that follows from the external key: by it a probe finds it again, among
all issues or comments, every page of them.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.outcomes import Confirmed, Drifted, Failed, Found, NotFound, Result, StateChange, Verdict
from aetheris.sdk.toolkits import http

ISSUE, COMMENT = "issue", "issue_comment"
PER_PAGE = 50
MOST_PAGES = 1_000
_NOT_MODIFIED = 304


_OLDEST_FIRST = {"sort": "created", "direction": "asc"}
"""What is made meanwhile comes behind: no page moves."""


class TooManyPages(Exception):
    """The list doesn't end: nobody can say that something is not in it."""


@dataclass(frozen=True)
class Tracker:
    """One repository of a tracker; `api` is its API's URL, such as https://api.github.com."""

    api: str
    repository: str
    token: str = field(repr=False)
    guard: http.Guard = http.PUBLIC

    def url(self, *names: str) -> str:
        """Below the repository; raises Failed."""
        owner, _, name = self.repository.partition("/")
        return http.below(self.api, "repos", owner, name, *names)

    @property
    def headers(self) -> Mapping[str, str]:
        """As every request has them."""
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}


def marker(external_key: str) -> str:
    """What a body carries; no page shows it."""
    return f"<!-- {external_key} -->"


async def create(ctx: ToolContext, tracker: Tracker, title: str, body: str, **fields: Any) -> Result:
    """Create an issue; raises as `http.call`."""
    sent = {**fields, "title": title, "body": _marked(body, ctx.external_key)}
    answer = await http.call(
        ctx, "POST", tracker.url("issues"), json=sent, headers=tracker.headers, guard=tracker.guard
    )
    return _created(answer.json(), answer)


async def comment(ctx: ToolContext, tracker: Tracker, number: int, body: str) -> Result:
    """Comment on an issue; raises as `http.call`."""
    url = tracker.url("issues", str(number), "comments")
    sent = {"body": _marked(body, ctx.external_key)}
    answer = await http.call(ctx, "POST", url, json=sent, headers=tracker.headers, guard=tracker.guard)
    return _commented(answer.json(), number)


async def close(ctx: ToolContext, tracker: Tracker, number: int) -> Result:
    """Close an issue; closing it again changes nothing, so a tool made of it is idempotent. Raises as `http.call`."""
    url = tracker.url("issues", str(number))
    answer = await http.call(ctx, "PATCH", url, json={"state": "closed"}, headers=tracker.headers, guard=tracker.guard)
    change = StateChange(ISSUE, str(number), "close", etag=answer.headers.get("etag"))
    return Result({"number": number, "state": "closed"}, str(number), [change])


async def find_issue(ctx: ProbeContext, tracker: Tracker) -> Found | NotFound:
    """The issue that carries the external key; raises where the tracker can't say."""
    async for one in _all(ctx, tracker, tracker.url("issues"), _OLDEST_FIRST | {"state": "all", "type": "issues"}):
        if "pull_request" not in one and marker(ctx.external_key) in str(one.get("body")):
            return _as_found(_created(one, None))
    return NotFound(("no issue has the marker",))


async def find_comment(ctx: ProbeContext, tracker: Tracker, number: int | None = None) -> Found | NotFound:
    """The comment that carries the external key, of one issue or of all; raises where the tracker can't say."""
    names = ("issues", "comments") if number is None else ("issues", str(number), "comments")
    async for one in _all(ctx, tracker, tracker.url(*names), _OLDEST_FIRST):
        if marker(ctx.external_key) in str(one.get("body")):
            return _as_found(_commented(one, number if number is not None else _issue_of(one)))
    return NotFound(("no comment has the marker",))


async def confirm(ctx: ProbeContext, tracker: Tracker, change: StateChange) -> Verdict:
    """Whether an issue or a comment is as a call left it: there, with its marker; closed, where it was closed."""
    if not change.resource_id.isdecimal():
        return Drifted({"id": "is no number"})
    names = ("issues", "comments") if change.resource_type == COMMENT else ("issues",)
    headers = dict(tracker.headers)
    if change.etag is not None:
        headers["If-None-Match"] = change.etag
    answer = await http.get(ctx, tracker.url(*names, change.resource_id), headers=headers, guard=tracker.guard)
    if answer.status_code == _NOT_MODIFIED:
        return Confirmed(("HTTP 304",))
    if answer.status_code in (404, 410):
        return Drifted({"status": answer.status_code})
    if not answer.is_success:
        raise http.UnclearResponse(answer.status_code)
    return _compared(answer.json(), change, ctx.external_key)


def _compared(shown: Mapping[str, Any], change: StateChange, external_key: str) -> Verdict:
    if change.operation == "close":
        state = shown.get("state")
        return (
            Confirmed(("closed",)) if state == "closed" else Drifted({"state": {"recorded": "closed", "found": state}})
        )
    if marker(external_key) not in str(shown.get("body")):
        return Drifted({"body": "the marker is gone"})
    return Confirmed(("its body has the marker",))


async def _all(
    ctx: ProbeContext, tracker: Tracker, url: str, params: Mapping[str, str]
) -> AsyncGenerator[dict[str, Any]]:
    """Every page, until one is empty: a tracker may give fewer than were asked for."""
    for page in range(1, MOST_PAGES + 1):
        asked = {**params, "page": str(page), "per_page": str(PER_PAGE), "limit": str(PER_PAGE)}
        rows: list[dict[str, Any]] = await http.read(
            ctx, url, params=asked, headers=tracker.headers, guard=tracker.guard
        )
        if not rows:
            return
        for row in rows:
            yield row
    raise TooManyPages


def _marked(body: str, external_key: str) -> str:
    if "<!-- aetheris:" in body:
        raise Failed("the text has a marker of its own")
    return f"{body}\n\n{marker(external_key)}"


def _created(one: Mapping[str, Any], answer: httpx.Response | None) -> Result:
    number = int(one["number"])
    etag = answer.headers.get("etag") if answer is not None else None
    return Result({"number": number}, str(number), [StateChange(ISSUE, str(number), "create", etag=etag)])


def _commented(one: Mapping[str, Any], number: int) -> Result:
    identity = str(one["id"])
    return Result({"issue": number}, identity, [StateChange(COMMENT, identity, "create")])


def _as_found(result: Result) -> Found:
    return Found(result.value, result.external_id, ("it has the marker",), tuple(result.changes))


def _issue_of(one: Mapping[str, Any]) -> int:
    return int(str(one["issue_url"]).rstrip("/").rpartition("/")[2])
