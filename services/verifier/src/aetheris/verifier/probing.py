"""Asking the outside about a call, with the tool's own probe; what can't be asked is unknown."""

import asyncio
import time
from typing import Any

from aetheris.protocol.commands import Verification
from aetheris.protocol.events import Answer, InvocationProbed
from aetheris.sdk.context import ProbeContext
from aetheris.sdk.invoke import ask_probe
from aetheris.sdk.loader import Toolbox, UnknownTool
from aetheris.sdk.outcomes import Found, NotFound, Unknown


class Prober:
    """Runs probes, a bounded number at a time."""

    def __init__(self, toolbox: Toolbox, timeout_s: float, at_once: int) -> None:
        self._toolbox = toolbox
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(at_once)

    async def ask(self, question: Verification, traceparent: bytes | None) -> InvocationProbed:
        """The outside's answer, as it is recorded."""
        async with self._slots:
            answer = await self._answer(question, traceparent)
        return _event(question, answer)

    async def _answer(self, question: Verification, traceparent: bytes | None) -> Found | NotFound | Unknown:
        ctx = ProbeContext(
            external_key=question.external_key,
            idempotency_key=question.idempotency_key,
            job_id=question.job_id,
            node_id=question.node_id,
            deadline=time.monotonic() + self._timeout_s,
            traceparent=traceparent.decode() if traceparent is not None else None,
        )
        try:
            return await ask_probe(self._toolbox.get(question.tool_name, question.tool_version), ctx, self._timeout_s)
        except UnknownTool:
            return Unknown("the verifier has not loaded this tool version")
        except LookupError:
            return Unknown("the tool has no probe")


def _event(question: Verification, answer: Found | NotFound | Unknown) -> InvocationProbed:
    said: dict[str, Any] = {"answer": Answer.UNKNOWN, "evidence": ()}
    if isinstance(answer, Found):
        said = {
            "answer": Answer.FOUND,
            "result": answer.result,
            "external_id": answer.external_id,
            "evidence": answer.evidence,
        }
    elif isinstance(answer, NotFound):
        said = {"answer": Answer.NOT_FOUND, "evidence": answer.evidence}
    else:
        said["evidence"] = (answer.reason,)
    return InvocationProbed(
        job_id=question.job_id,
        node_id=question.node_id,
        idempotency_key=question.idempotency_key,
        invocation_id=question.invocation_id,
        external_key=question.external_key,
        ask=question.ask,
        **said,
    )
