"""Asking the external system, with the tool's own probe or verifier; what can't be asked is unknown."""

import asyncio
import time
from typing import Any

from aetheris.protocol.base import recordable
from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.messages.event_values import Answer, BlobRef, Change, changes_of
from aetheris.protocol.messages.events import ConfirmationFailed, EffectConfirmed, InvocationProbed
from aetheris.runtime.blobs.store import Blobs, BlobsUnreachable
from aetheris.sdk.context import ProbeContext
from aetheris.sdk.invoke import ask_probe, verify
from aetheris.sdk.loader import Toolbox, UnknownTool
from aetheris.sdk.outcomes import Confirmed, Drifted, Found, NotFound, StateChange, Unknown, Verdict
from aetheris.sdk.tool_output import ToolOutput

WITHHELD = "withheld: the call has hidden values"
"""In place of what the external system says of such a call."""


class Prober:
    """Runs probes and verifiers, a bounded number at a time."""

    def __init__(self, toolbox: Toolbox, blobs: Blobs, timeout_s: float, at_once: int, output: ToolOutput) -> None:
        self._toolbox = toolbox
        self._output = output
        self._blobs = blobs
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(at_once)

    async def ask(self, question: Verification, traceparent: bytes | None) -> InvocationProbed:
        """The external system's answer, as it is recorded; a large result lies in the blob store before."""
        async with self._slots:
            answer = await self._answer(question, traceparent)
        if question.hidden:
            return _answered(question, _of_a_hidden_call(answer))
        if not isinstance(answer, Found):
            return _answered(question, _nothing_found(answer))
        result, data = recordable.result(answer.result)
        if len(data) <= recordable.INLINE_LIMIT:
            return _answered(question, _found(answer) | {"result": result})
        try:
            ref = await self._blobs.put(data)
        except BlobsUnreachable:
            return _answered(question, _nothing_found(Unknown("what was found can't be stored now")))
        return _answered(question, _found(answer) | {"result_ref": BlobRef(sha256=ref.sha256, size=ref.size)})

    async def confirm(
        self, question: Verification, traceparent: bytes | None
    ) -> list[EffectConfirmed | ConfirmationFailed]:
        """What has become of each resource that a call changed, as it is recorded."""
        async with self._slots:
            verdicts = [await self._verdict(question, one, traceparent) for one in question.resources]
        return [_confirmation(question, place, verdict) for place, verdict in enumerate(verdicts)]

    async def _verdict(self, question: Verification, resource: dict[str, Any], traceparent: bytes | None) -> Verdict:
        ctx = self._context(question, traceparent)
        try:
            change = StateChange(**Change.model_validate(resource).model_dump())
            tool = self._toolbox.get(question.tool_name, question.tool_version)
            with self._output.of(tool, ctx, "verifier", silent=question.hidden):
                return await verify(tool, change, ctx, self._timeout_s, self._output.raised)
        except UnknownTool:
            return Unknown("the verifier has not loaded this tool version")
        except LookupError:
            return Unknown("the tool has no verifier")
        except ValueError:
            return Unknown("the recorded change can't be read")

    def _context(self, question: Verification, traceparent: bytes | None) -> ProbeContext:
        return ProbeContext(
            external_key=question.external_key,
            idempotency_key=question.idempotency_key,
            job_id=question.job_id,
            node_id=question.node_id,
            deadline=time.monotonic() + self._timeout_s,
            traceparent=traceparent.decode() if traceparent is not None else None,
        )

    async def _answer(self, question: Verification, traceparent: bytes | None) -> Found | NotFound | Unknown:
        ctx = self._context(question, traceparent)
        try:
            tool = self._toolbox.get(question.tool_name, question.tool_version)
            with self._output.of(tool, ctx, "probe", silent=question.hidden):
                return await ask_probe(tool, ctx, self._timeout_s, self._output.raised)
        except UnknownTool:
            return Unknown("the verifier has not loaded this tool version")
        except LookupError:
            return Unknown("the tool has no probe")


def _found(answer: Found) -> dict[str, Any]:
    return {
        "answer": Answer.FOUND,
        "external_id": None if answer.external_id is None else recordable.name(answer.external_id),
        "evidence": recordable.evidence(answer.evidence),
        "changes": changes_of(change.payload() for change in answer.changes),
    }


def _of_a_hidden_call(answer: Found | NotFound | Unknown) -> dict[str, Any]:
    """Its kind alone: who asks has no key of the subject, and what is found may hold the value."""
    if isinstance(answer, Found):
        return {"answer": Answer.FOUND, "result": None, "evidence": (WITHHELD,)}
    return {"answer": Answer.NOT_FOUND if isinstance(answer, NotFound) else Answer.UNKNOWN, "evidence": (WITHHELD,)}


def _nothing_found(answer: NotFound | Unknown) -> dict[str, Any]:
    if isinstance(answer, NotFound):
        return {"answer": Answer.NOT_FOUND, "evidence": recordable.evidence(answer.evidence)}
    return {"answer": Answer.UNKNOWN, "evidence": (recordable.text(answer.reason),)}


def _answered(question: Verification, body: dict[str, Any]) -> InvocationProbed:
    return InvocationProbed(
        job_id=question.job_id,
        node_id=question.node_id,
        idempotency_key=question.idempotency_key,
        invocation_id=question.invocation_id,
        external_key=question.external_key,
        ask=question.ask,
        **body,
    )


def _confirmation(question: Verification, place: int, verdict: Verdict) -> EffectConfirmed | ConfirmationFailed:
    common: dict[str, Any] = {
        "job_id": question.job_id,
        "node_id": question.node_id,
        "idempotency_key": question.idempotency_key,
        "ask": question.ask,
        "place": place,
        "of": len(question.resources),
        "resource": question.resources[place],
        "mode": question.mode,
        "caused_by": question.caused_by,
    }
    if question.hidden:
        if isinstance(verdict, Confirmed):
            return EffectConfirmed(**common, evidence=(WITHHELD,))
        reason = "drift" if isinstance(verdict, Drifted) else "unknown"
        return ConfirmationFailed(**common, reason=reason, detail=WITHHELD)
    if isinstance(verdict, Confirmed):
        return EffectConfirmed(**common, evidence=recordable.evidence(verdict.evidence))
    if isinstance(verdict, Drifted):
        detail = recordable.detail(verdict.diff)
        return ConfirmationFailed(
            **common, reason="drift", detail=detail, evidence=recordable.evidence(verdict.evidence)
        )
    return ConfirmationFailed(**common, reason="unknown", detail=recordable.text(verdict.reason))
