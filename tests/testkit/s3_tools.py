"""Tools over S3, and one whose result is large; `tests.testkit.s3_tools`. S3_BUCKET is the bucket, AWS_… the rest."""

import os

from aetheris.sdk import Found, NotFound, ProbeContext, Result, StateChange, ToolContext, Unknown, tool
from aetheris.sdk.outcomes import Verdict
from aetheris.sdk.toolkits import http, s3


def _store() -> s3.Store:
    return s3.Store(
        os.environ["AWS_ENDPOINT_URL"],
        (os.environ["S3_BUCKET"],),
        os.environ["AWS_ACCESS_KEY_ID"],
        os.environ["AWS_SECRET_ACCESS_KEY"],
        guard=http.Guard(private=True),
    )


@tool("put_object", effect_class="probeable", timeout_s=60, settles_within_s=2)
async def put_object(ctx: ToolContext, key: str, text: str, was: str = "") -> Result:
    """Write an object."""
    return await s3.put(ctx, _store(), os.environ["S3_BUCKET"], key, text.encode(), if_match=was or None)


@put_object.probe
async def object_is_there(_external_key: str, ctx: ProbeContext) -> Found | NotFound | Unknown:
    """Whether the call's object is there."""
    return await s3.find(ctx, _store(), os.environ["S3_BUCKET"])


@put_object.verifier
async def object_unchanged(change: StateChange, ctx: ProbeContext) -> Verdict:
    """Whether it is as it was left."""
    return await s3.confirm(ctx, _store(), change)


@tool("large", effect_class="idempotent")
def large(word: str, times: int) -> dict[str, str]:
    """A result as large as it is asked for."""
    return {"text": word * times}
