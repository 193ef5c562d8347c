"""S3 objects for tools: a conditional put that leaves one version, whatever dies (docs/toolkits.md).

An object is made only where there is none, or takes the place of the one with a certain ETag: S3 itself decides, so of
two requests for one call at most one acts, in whatever order they arrive. The object carries the external key, by which
a later try knows its own; a note, written before, tells a probe which object to look at. Needs the extra
`aetheris-tool-sdk[s3]`.
"""

import hashlib
import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import httpx
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.outcomes import (
    Confirmed,
    Drifted,
    Failed,
    Found,
    NotExecuted,
    NotFound,
    Result,
    StateChange,
    Unknown,
    Verdict,
)
from aetheris.sdk.toolkits import http

OBJECT = "s3_object"
LARGEST = 64 * 1024 * 1024  # bytes
_NOTES = ".aetheris"
_MARKER = "x-amz-meta-aetheris"
_NOT_FOUND, _BUSY, _NOT_SO = 404, 409, 412
"""The last two of S3: somebody writes the object at this moment; it is not as the condition says."""


@dataclass(frozen=True)
class Store:
    """One S3 endpoint, such as https://s3.eu-central-1.amazonaws.com, and the buckets that a tool may use there."""

    endpoint: str
    buckets: tuple[str, ...]
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str = "us-east-1"
    guard: http.Guard = http.PUBLIC

    def url(self, bucket: str, key: str) -> str:
        """Of an object; raises Failed."""
        if bucket not in self.buckets:
            raise Failed("refused: the bucket is not one that this tool may use")
        return http.below(self.endpoint, bucket, *key.split("/"))

    async def get(self, ctx: ToolContext | ProbeContext, bucket: str, key: str) -> httpx.Response | None:
        """An object, None where there is none; raises as `http.read`."""
        answer = await http.get(ctx, self.url(bucket, key), auth=_Signature(self), guard=_at_most(self.guard))
        if answer.status_code == _NOT_FOUND and "NoSuchBucket" not in answer.text:
            return None
        if not answer.is_success:
            raise http.UnclearResponse(answer.status_code)
        return answer


@dataclass(frozen=True)
class _Put:
    """What a call is about to do."""

    bucket: str
    key: str
    sha256: str
    size: int
    if_match: str | None

    def result(self, answer: httpx.Response) -> Result:
        """As S3 shows it, which is the same for whoever asks."""
        name = f"{self.bucket}/{self.key}"
        value = {"bucket": self.bucket, "key": self.key, "sha256": self.sha256, "size": self.size}
        version, operation = answer.headers.get("x-amz-version-id"), "create" if self.if_match is None else "update"
        change = StateChange(OBJECT, name, operation, version=version, etag=self.sha256)
        return Result({**value, "etag": answer.headers["etag"]}, name, [change])

    def note(self) -> bytes:
        return json.dumps(
            {"key": self.key, "sha256": self.sha256, "size": self.size, "if_match": self.if_match}
        ).encode()


async def put(
    ctx: ToolContext,
    store: Store,
    bucket: str,
    key: str,
    content: bytes,
    *,
    if_match: str | None = None,
    content_type: str = "application/octet-stream",
) -> Result:
    """Write an object: a new one, or in place of the one whose ETag is `if_match`.

    Gives {"bucket", "key", "sha256", "size", "etag"}; the last is S3's own, for a later `if_match`.

    Raises:
        NotExecuted: nothing was sent, or S3 refused it for now.
        Failed: bucket, key or size are refused, or the object is not as it was said to be.
        UnclearResponse, httpx.HTTPError: it was sent, and nobody knows.
    """
    if len(content) > LARGEST:
        raise Failed(f"larger than {LARGEST} bytes")
    if key.partition("/")[0] == _NOTES:
        raise Failed("refused: a key among the notes")
    wanted = _Put(bucket, key, hashlib.sha256(content).hexdigest(), len(content), if_match)
    url = store.url(bucket, key)
    await _write_note(ctx, store, wanted)
    condition = {"If-None-Match": "*"} if if_match is None else {"If-Match": if_match}
    headers = {**condition, _MARKER: ctx.external_key, "Content-Type": content_type}
    try:
        answer = await http.call(
            ctx, "PUT", url, headers=headers, content=content, auth=_Signature(store), guard=store.guard
        )
    except http.UnclearResponse as error:
        if error.status not in (_BUSY, _NOT_SO):
            raise
        there = await store.get(ctx, bucket, key)
        if there is None or there.headers.get(_MARKER) != ctx.external_key:
            raise _not_as_reported(error.status, if_match) from None
        answer = there
    return wanted.result(answer)


async def find(ctx: ProbeContext, store: Store, bucket: str) -> Found | NotFound | Unknown:
    """The object that carries the external key; raises where S3 can't say."""
    noted = await store.get(ctx, bucket, _note_of(ctx.external_key))
    if noted is None:
        return NotFound(("no note was written before a put",))
    wanted = _Put(bucket, **noted.json())
    there = await store.get(ctx, bucket, wanted.key)
    if there is not None and there.headers.get(_MARKER) == ctx.external_key:
        found = wanted.result(there)
        return Found(found.value, found.external_id, ("the object has the key",), tuple(found.changes))
    if wanted.if_match == (there.headers["etag"] if there is not None else None):
        return NotFound(("the object is as it was before",))
    return Unknown("the object is neither as it was nor as this call leaves it")


async def confirm(ctx: ProbeContext, store: Store, change: StateChange) -> Verdict:
    """Whether an object is there with the content that a put left."""
    bucket, _, key = change.resource_id.partition("/")
    try:
        there = await store.get(ctx, bucket, key)
    except Failed:
        return Drifted({"name": "is not one that this tool may use"})
    except http.BodyTooLarge:
        return Drifted({"size": f"more than {LARGEST}"})
    if there is None:
        return Drifted({"status": _NOT_FOUND})
    found = hashlib.sha256(there.content).hexdigest()
    if found != change.etag:
        return Drifted({"sha256": {"recorded": change.etag, "found": found}})
    return Confirmed((f"sha256 {found}",))


class _Signature(httpx.Auth):
    """AWS' Signature Version 4, of one request and its whole body."""

    requires_request_body = True

    def __init__(self, store: Store) -> None:
        self._store = store

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Sign what S3 acts on; other headers may change on the way."""
        store = self._store
        signed = {name: value for name, value in request.headers.items() if _is_acted_on(name)}
        one = AWSRequest(method=request.method, url=str(request.url), headers=signed, data=request.content)
        credentials = Credentials(store.access_key, store.secret_key, store.session_token)
        S3SigV4Auth(credentials, "s3", store.region).add_auth(one)
        request.headers.update(dict[str, Any](one.headers.items()))
        yield request


def _is_acted_on(header: str) -> bool:
    return header.startswith("x-amz-") or header in ("if-match", "if-none-match", "content-type")


async def _write_note(ctx: ToolContext, store: Store, wanted: _Put) -> None:
    """Before the put, and harmless without it: whatever goes wrong here, the object was not touched."""
    url = store.url(wanted.bucket, _note_of(ctx.external_key))
    try:
        await http.call(ctx, "PUT", url, content=wanted.note(), auth=_Signature(store), guard=store.guard)
    except (http.UnclearResponse, httpx.HTTPError, TimeoutError) as error:
        raise NotExecuted(f"nothing was put: {type(error).__name__}") from None


def _not_as_reported(status: int, if_match: str | None) -> Exception:
    if status == _BUSY:
        return NotExecuted("somebody else writes the object")
    return Failed("there is such an object already" if if_match is None else "the object is another than was said")


def _note_of(external_key: str) -> str:
    return f"{_NOTES}/{hashlib.sha256(external_key.encode()).hexdigest()}"


def _at_most(guard: http.Guard) -> http.Guard:
    return guard if guard.largest >= LARGEST else http.Guard(guard.hosts, guard.private, LARGEST, guard.redirects)
