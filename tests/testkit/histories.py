"""Histories of one job, made by hand: events in log order, for tests of folds, cores and proofs."""

from collections.abc import Iterable
from typing import Any

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import args_hash, content_key, external_key, idempotency_key
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.adoption import Adopted, Continues, Given, SealOf
from aetheris.protocol.messages.event_values import After, BlobRef, Outcome, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind, JobOptions
from tests.testkit.tries import doubt_word, end_word, try_of

JOB = "job-1"
TENANT = "acme"
SEAL = ev.JobSealed(
    job_id=JOB,
    tenant=TENANT,
    event_count=9,
    root="r",
    chain=2,
    tree="t",
    execution_hash="e",
    outcome_hash="o",
    sealed_at="",
    signature="s",
    key_id="k",
)
"""Of a job whose seal nobody checks."""


def graph(*nodes: dict[str, Any], **tools: dict[str, Any]) -> dict[str, Any]:
    """A task graph whose tools are pinned (default: one opaque `act`)."""
    base = {"version": "1", "schema_hash": "s", "effect_class": "opaque"}
    pins = {name: base | pin for name, pin in (tools or {"act": {}}).items()}
    return {"tools": pins, "nodes": [{"kind": "tool", "tool": "act"} | node for node in nodes]}


def created(options: JobOptions | None = None) -> ev.JobCreated:
    return ev.JobCreated(job_id=JOB, tenant=TENANT, submitted_by="ann", request_hash="r", options=options)


def adopts(
    node: str,
    args: dict[str, Any],
    tool: str = "act",
    *,
    subject: str = "job-0",
    occurrence: int = 1,
    result: Any = None,
    ref: BlobRef | None = None,
) -> ev.JobCreated:
    """The birth of the job where it continues another, which did this by a tool that can't be undone.

    It may refer to the result, which is given, or lies at `ref`.
    """
    one = Adopted(
        job_id=subject,
        node_id=node,
        idempotency_key=idempotency_key(subject, node, tool, args),
        tool_name=tool,
        result_hash=digest(result),
        result_ref=ref,
        content_key=content_key(TENANT, tool, args, ()),
        occurrence=occurrence,
    )
    seal = SealOf(event_count=9, root="r", outcome_hash="o", key_id="k")
    given = (Given(name=one.name, result=result),) if ref is None else ()
    continues = Continues(job_id=subject, seal=seal, adopted=(one,), given=given)
    return created().model_copy(update={"continues": continues})


def planned(task_graph: dict[str, Any], revision: int = 0) -> ev.PlanGenerated:
    part = {"task_graph": task_graph} if revision == 0 else {"diff": task_graph}
    return ev.PlanGenerated.model_validate(
        {
            "job_id": JOB,
            "revision": revision,
            "plan_hash": digest(task_graph),
            "planner": "static",
            "planner_version": "1",
        }
        | part
    )


def key_of(node: str, args: dict[str, Any] | None = None, tool: str = "act") -> str:
    return idempotency_key(JOB, node, tool, args)


def started(
    node: str,
    invocation_id: str,
    *,
    token: int = 1,
    attempt: int = 0,
    args: dict[str, Any] | None = None,
    tool: str = "act",
    revision: int = 0,
    after: Iterable[After] = (),
    occurrence: int = 1,
    incarnation: str = "i1",
) -> ev.ToolInvocationStarted:
    return ev.ToolInvocationStarted(
        job_id=JOB,
        node_id=node,
        idempotency_key=key_of(node, args, tool),
        invocation_id=try_of(invocation_id),
        revision=revision,
        token=token,
        attempt_id=attempt,
        external_key=external_key(JOB, node, attempt),
        kind=EffectKind.TOOL,
        tool_name=tool,
        tool_version="1",
        args_hash=args_hash(args),
        content_key=content_key(TENANT, tool, args),
        occurrence=occurrence,
        after=tuple(one.model_copy(update={"invocation_id": try_of(one.invocation_id)}) for one in after),
        worker_id="w",
        incarnation=incarnation,
    )


def finished(
    node: str,
    invocation_id: str,
    outcome: str = "success",
    *,
    via: str = "executor",
    result: Any = None,
    args: dict[str, Any] | None = None,
    tool: str = "act",
) -> ev.ToolInvocationFinished:
    """With the word of the try, where one is asked for."""
    return ev.ToolInvocationFinished(
        job_id=JOB,
        node_id=node,
        idempotency_key=key_of(node, args, tool),
        invocation_id=try_of(invocation_id),
        outcome=Outcome(outcome),
        via=Via(via),
        result=result,
        output_hash=digest(result),
        word=end_word(invocation_id, outcome, via),
    )


def about(kind: type[Any], node: str, *, args: dict[str, Any] | None = None, tool: str = "act", **fields: Any) -> Any:
    """An event about a node's key; that a try can act no more, with its word."""
    if "invocation_id" in fields:
        fields["invocation_id"] = try_of(fields["invocation_id"])
    if fields.get("returned"):
        fields.setdefault("word", doubt_word(fields["invocation_id"], returned=True))
    return kind(job_id=JOB, node_id=node, idempotency_key=key_of(node, args, tool), **fields)


def sealed(job_id: str = JOB) -> ev.JobSealed:
    """A seal, for whom its hashes are nothing."""
    text = dict.fromkeys(("root", "tree", "execution_hash", "outcome_hash", "sealed_at", "signature", "key_id"), "")
    return ev.JobSealed.model_validate({"job_id": job_id, "tenant": TENANT, "event_count": 1, "chain": 2} | text)


def fold(*events: Event) -> JobState:
    """The state after a job_created and these events, at offsets 0, 1, …"""
    return fold_of(created(), *events)


def fold_of(created: ev.JobCreated, *events: Event) -> JobState:
    """As `fold`, of a job that is born so."""
    job = create_job(created, 0)
    for offset, event in enumerate(events, start=1):
        apply(job, event, offset)
    return job
