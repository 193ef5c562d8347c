"""What the proxy says itself: of a call, of a task, of what the server can do (pure)."""

from collections.abc import Mapping
from typing import Any, cast

from aetheris.sdk.call_port import CallOutcome
from aetheris.sdk.client import Job

RUN = "io.aetheris/run"
"""Where a call's `_meta` names the run."""
REPEAT_OF = "io.aetheris/repeat-of"
"""Where a call's `_meta` names the call that is to be made once more on purpose."""
JOB = "io.aetheris/job"
ALREADY_DONE = "io.aetheris/already-done"
PENDING = "io.aetheris/pending"
RELATED_TASK = "io.modelcontextprotocol/related-task"
TASKS = "io.modelcontextprotocol/tasks"
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

VERSION_WITH_TASKS = "2025-11-25"
"""The one version of the protocol that has tasks in itself; later ones have them as an extension."""
POLL_MS = 1_000

NO_RUN = (
    "refused, and nothing was called: what this tool does can't be undone, and this connection belongs to no run, so "
    "that a repeat could not be told from the first. Name one: `aetheris mcp proxy --run NAME`, `?run=NAME` behind the "
    f"URL, the header Aetheris-Run, or {RUN} in the call's _meta"
)
_LEFT_OUT = "It is done, and was done once. Its result has {bytes} bytes, and is not shown."
_TOO_LARGE = "It is done, and was done once. Its result is too large to be shown here; job {job} has it."
THE_SAME = "If the call was begun, calling it again with exactly the same arguments is that call, not a second one."
_PENDING = (
    "Not finished yet, and nothing is wrong{why}. Call this tool again with exactly the same arguments, in a few "
    "seconds or later: that is this very call, not a second one, and gives what it came to."
)


def refused(text: str, **meta: Any) -> dict[str, Any]:
    """An answer for the model to read: there is no result."""
    return {"content": [_text(text)], "isError": True, **({"_meta": meta} if meta else {})}


def answered(made: CallOutcome, *, structured: bool) -> dict[str, Any]:
    """What a call came to, as the tool's server would have answered; `structured`: it said what it answers."""
    about: dict[str, Any] = {JOB: made.job.job_id} | ({ALREADY_DONE: True} if made.earlier else {})
    if not made.succeeded:
        return refused(made.failure, **about)
    value: Any = made.result
    if not made.has_result or not isinstance(value, dict) or "content" not in value:
        # a client that was told a schema takes no result without structured content, but for an error
        return {"content": [_text(_TOO_LARGE.format(job=made.job.job_id))], "isError": structured, "_meta": about}
    held = cast("dict[str, Any]", value)
    left_out = held.get("leftOut")
    if isinstance(left_out, Mapping):
        size = cast("Mapping[str, Any]", left_out).get("bytes")
        failed = structured or bool(held.get("isError"))
        return {"content": [_text(_LEFT_OUT.format(bytes=size))], "isError": failed, "_meta": about}
    shown = {name: held[name] for name in ("content", "structuredContent", "isError") if name in held}
    return {**shown, "_meta": about}


def pending(job: Job | None, *, structured: bool) -> dict[str, Any]:
    """What is said before the client gives up: an equal call is the same call (docs/mcp.md)."""
    why = f": {job.why}" if job is not None and job.why else ""
    about = {PENDING: True} | ({JOB: job.job_id} if job is not None else {})
    return {"content": [_text(_PENDING.format(why=why))], "isError": structured, "_meta": about}


def has_tasks(meta: Mapping[str, Any]) -> bool:
    """Whether the client of a request takes a task instead of a result: by its own word, in the request."""
    said = meta.get(CAPABILITIES)
    extensions = cast("Mapping[str, Any]", said).get("extensions") if isinstance(said, Mapping) else None
    return isinstance(extensions, Mapping) and TASKS in extensions


def task(job: Job) -> dict[str, Any]:
    """A job as a task of the version that has tasks in itself."""
    return {**_task(job), "status": _status(job, failed="failed"), "ttl": None, "pollInterval": POLL_MS}


def task_handle(job: Job) -> dict[str, Any]:
    """A job as the extension's task, in place of a result."""
    return {**_task(job), "status": "working", "ttlMs": None, "pollIntervalMs": POLL_MS, "resultType": "task"}


def task_state(job: Job) -> dict[str, Any]:
    """A job as the extension's task, with what it came to: a tool's error is a result."""
    status = _status(job, failed="completed")
    result = {"result": answered(CallOutcome(job, earlier=False), structured=False)} if status == "completed" else {}
    return {
        **_task(job),
        "status": status,
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
        **result,
        "resultType": "complete",
    }


def of_task(result: Mapping[str, Any], job_id: str) -> dict[str, Any]:
    """A result that is fetched by its task."""
    return {**result, "_meta": {**result.get("_meta", {}), RELATED_TASK: {"taskId": job_id}}}


def initialized(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a server says of itself, with the tasks that are ours: those of its own calls nobody reaches."""
    capabilities = dict(result.get("capabilities") or {})
    capabilities.pop("tasks", None)
    if result.get("protocolVersion") == VERSION_WITH_TASKS and "tools" in capabilities:
        capabilities["tasks"] = {"requests": {"tools": {"call": {}}}}
    return {**result, "capabilities": capabilities}


def found(result: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the versions that have no handshake."""
    capabilities = dict(result.get("capabilities") or {})
    extensions = {**(capabilities.get("extensions") or {})}
    extensions.pop(TASKS, None)
    if "tools" in capabilities:
        extensions[TASKS] = {}
    return {**result, "capabilities": {**capabilities, "extensions": extensions}}


def _status(job: Job, *, failed: str) -> str:
    ended = {"completed": "completed", "cancelled": "cancelled", "failed": failed}
    return ended.get(job.status, "working")


def _task(job: Job) -> dict[str, Any]:
    about = {"statusMessage": job.why} if job.why else {}
    return {"taskId": job.job_id, **about, "createdAt": job.created_at, "lastUpdatedAt": job.created_at}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
