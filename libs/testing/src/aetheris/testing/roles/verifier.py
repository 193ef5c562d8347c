"""The verifier's edge: the tools' own probes are asked."""

from typing import Any

from aetheris.protocol.base import recordable
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.messages.event_values import Answer, changes_of
from aetheris.protocol.messages.events import InvocationProbed
from aetheris.sdk.context import ProbeContext
from aetheris.sdk.invoke import ask_probe
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.outcomes import Found, NotFound, Unknown
from aetheris.testing.topics import TopicReader, Topics

PROBE_TIMEOUT_S = 30.0


class InMemoryVerifier:
    """Answers whether a call took effect; seals and confirmations are not made here."""

    def __init__(self, topics: Topics, toolbox: Toolbox) -> None:
        self._topics = topics
        self._toolbox = toolbox
        self._reader = TopicReader(topics, (Topic.VERIFICATIONS,))
        self._answered: set[str] = set()

    async def turn(self) -> bool:
        """Answer what was asked; False where nothing was."""
        asked = [entry.body for entry in self._reader.take(Topic.VERIFICATIONS)]
        for question in asked:
            if question.ask not in self._answered:
                self._answered.add(question.ask)
                await self._answer(question)
        return bool(asked)

    async def _answer(self, question: Verification) -> None:
        ctx = ProbeContext(question.external_key, question.idempotency_key, question.job_id, question.node_id)
        tool = self._toolbox.get(question.tool_name, question.tool_version)
        answer = await ask_probe(tool, ctx, PROBE_TIMEOUT_S)
        probed = InvocationProbed(
            job_id=question.job_id,
            node_id=question.node_id,
            idempotency_key=question.idempotency_key,
            invocation_id=question.invocation_id,
            external_key=question.external_key,
            ask=question.ask,
            **_reported(answer),
        )
        cause = f"{question.invocation_id} {question.ask}"
        self._topics.append(Topic.JOBS_EVENTS, (event_id(question.job_id, probed.event_type, cause), probed))


def _reported(answer: Found | NotFound | Unknown) -> dict[str, Any]:
    match answer:
        case Found():
            return {
                "answer": Answer.FOUND,
                "result": recordable.result(answer.result)[0],
                "external_id": None if answer.external_id is None else recordable.name(answer.external_id),
                "evidence": recordable.evidence(answer.evidence),
                "changes": changes_of(change.payload() for change in answer.changes),
            }
        case NotFound():
            return {"answer": Answer.NOT_FOUND, "evidence": recordable.evidence(answer.evidence)}
        case Unknown():
            return {"answer": Answer.UNKNOWN, "evidence": (recordable.text(answer.reason),)}
