"""Tools that tell people, for an executor: `AETHERIS_TOOLS=aetheris.notifier.notice_tools` (docs/notices.md).

Where a notice goes stands in the routing file, which NOTICES_FILE names: an argument names a channel of it, and nothing
else, so that who may call these tools reaches nobody else. Each makes one request and repeats nothing.
"""

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, Field

from aetheris.notifier.core.notice_routes import (
    MailChannel,
    NtfyChannel,
    PushChannel,
    SlackChannel,
    WebhookChannel,
    parsed,
)
from aetheris.notifier.web_push import LARGEST, PushUnusable, push_request
from aetheris.protocol.base.faults import FileFault
from aetheris.sdk import Failed, NotExecuted, ToolContext, tool
from aetheris.sdk.toolkits import http, smtp
from aetheris.sdk.toolkits.http import Guard

C = TypeVar("C")

FILE = "NOTICES_FILE"
_LARGEST_ANSWER = 64 * 1024
_TIMEOUT_S = 30
_ONCE: Any = {"effect_class": "opaque", "irreversible": False, "on_in_doubt": "fail", "timeout_s": _TIMEOUT_S}
"""Of what its receiver would take for another notice."""


class Notice(BaseModel):
    """What is told, and on which channel."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    channel: str = Field(max_length=64)
    title: str = Field(max_length=1000)
    lines: list[str] = Field(max_length=100)
    link: str = Field(max_length=2000)


@tool("notify.mail", **_ONCE)
async def mail(ctx: ToolContext, notice: Notice, secret: str = "") -> dict[str, Any]:
    """Tell people by mail; the secret is its user's password."""
    to = _channel(notice, MailChannel)
    host, _, port = to.server.rpartition(":")
    server = smtp.SmtpServer(host, int(port), to.user, secret or None, starttls=to.starttls)
    message = EmailMessage()
    message["From"], message["Subject"], message["Auto-Submitted"] = to.sender, notice.title, "auto-generated"
    message.set_content("\n".join((*notice.lines, "", notice.link, "")))
    return {"message_id": await smtp.send(ctx, server, message, to.to)}


@tool("notify.webhook", **_ONCE)
async def webhook(ctx: ToolContext, notice: Notice, secret: str) -> dict[str, Any]:
    """Tell a program that takes each request for another notice; the secret signs."""
    return await _hook(ctx, notice, secret, deduplicates=False)


@tool("notify.webhook.deduplicated", effect_class="idempotent", on_in_doubt="fail", timeout_s=_TIMEOUT_S)
async def webhook_deduplicated(ctx: ToolContext, notice: Notice, secret: str) -> dict[str, Any]:
    """Tell a program that drops a second request of one webhook-id; the secret signs."""
    return await _hook(ctx, notice, secret, deduplicates=True)


@tool("notify.slack", **_ONCE)
async def slack(ctx: ToolContext, notice: Notice, secret: str) -> dict[str, Any]:
    """Tell a room; the secret is its webhook's URL."""
    to = _channel(notice, SlackChannel)
    link = (f"<{notice.link}>",) if notice.link else ()
    text = "\n".join((f"*{_escaped(notice.title)}*", *map(_escaped, notice.lines), *link))
    body = {"text": text, "unfurl_links": False, "unfurl_media": False}
    return await _sent(ctx, secret, _json(body), {}, private=to.private)


@tool("notify.ntfy", **_ONCE)
async def ntfy(ctx: ToolContext, notice: Notice, secret: str = "") -> dict[str, Any]:
    """Tell who has subscribed to a topic of an ntfy server; the secret is an access token of it."""
    to = _channel(notice, NtfyChannel)
    body: dict[str, Any] = {"topic": to.topic, "title": notice.title, "message": "\n".join(notice.lines)}
    body |= {"priority": to.priority, **({"click": notice.link} if notice.link else {})}
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return await _sent(ctx, to.url, _json(body), headers, private=to.private)


@tool("notify.push", **_ONCE)
async def push(ctx: ToolContext, notice: Notice, secret: str, subscription: str) -> dict[str, Any]:
    """Tell a browser; the secrets are the key that says who pushes, and what the browser gave."""
    to = _channel(notice, PushChannel)
    topic = base64.urlsafe_b64encode(hashlib.sha256(ctx.external_key.encode()).digest()[:24]).decode()
    try:
        asked = push_request(
            _fitting(notice),
            subscription,
            secret,
            contact=to.contact,
            ttl_s=to.ttl_s,
            topic=topic,
            now_s=int(time.time()),
        )
    except PushUnusable as error:
        raise Failed(str(error)) from None
    return await _sent(ctx, asked.url, asked.content, asked.headers, private=to.private)


async def _hook(ctx: ToolContext, notice: Notice, secret: str, *, deduplicates: bool) -> dict[str, Any]:
    """Standard Webhooks: webhook-id, webhook-timestamp, and webhook-signature, HMAC-SHA-256 of both and the body."""
    to = _channel(notice, WebhookChannel)
    if to.deduplicates is not deduplicates:
        raise Failed("the channel's receiver promises something else")
    said = {"title": notice.title, "lines": notice.lines, "link": notice.link or None}
    body = _json({"type": "aetheris.notice", **said})
    at = str(int(time.time()))
    signed = f"{ctx.external_key}.{at}.".encode() + body
    signature = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()
    headers = {"webhook-id": ctx.external_key, "webhook-timestamp": at, "webhook-signature": f"v1,{signature}"}
    return await _sent(ctx, to.url, body, headers, private=to.private)


async def _sent(
    ctx: ToolContext, url: str, content: bytes, headers: Mapping[str, str], *, private: bool
) -> dict[str, Any]:
    """One POST; of what it answers only the status counts."""
    guard = Guard(private=private, largest=_LARGEST_ANSWER)
    given = {"Content-Type": "application/json", **headers}
    try:
        answer = await http.call(ctx, "POST", url, content=content, headers=given, guard=guard)
    except httpx.InvalidURL:
        raise Failed("the channel's URL is none") from None
    return {"status": answer.status_code}


def _channel(notice: Notice, kind: type[C]) -> C:
    """Read at each call: a changed file counts at once."""
    path = os.environ.get(FILE)
    if path is None:
        raise NotExecuted(f"{FILE} names no routing file")
    try:
        found = parsed(Path(path).read_text()).channels.get(notice.channel)
    except (OSError, UnicodeDecodeError, FileFault) as error:
        raise NotExecuted(f"the routing file can't be used: {type(error).__name__}") from None
    if not isinstance(found, kind):
        raise Failed("the routing file has no such channel of this kind")
    return found


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _escaped(text: str) -> str:
    """No text of it is taken for a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fitting(notice: Notice) -> bytes:
    """As many lines as fit: what is left out is behind the link."""
    for count in range(len(notice.lines), -1, -1):
        found = _json({"title": notice.title, "body": "\n".join(notice.lines[:count]), "url": notice.link})
        if len(found) <= LARGEST:
            return found
    raise Failed("a title and a link that are too long")
