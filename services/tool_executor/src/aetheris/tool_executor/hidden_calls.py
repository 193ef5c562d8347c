"""Calls with hidden values: opened for the call alone, and what comes of it hidden again (docs/hidden-values.md)."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.planning.invocation import Invocation
from aetheris.runtime.blobs.store import BlobError, BlobsUnreachable
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.subjects.hidden_store import HiddenStore, sealed
from aetheris.runtime.subjects.kms import HiddenCorrupt, SubjectErased, SubjectKeyError
from aetheris.sdk.outcomes import InDoubt, Outcome, Permanent, Retryable
from aetheris.sdk.redaction import Redactor
from aetheris.tool_executor.core.reports import NOT_EXECUTED

PATIENCE_S = 60.0
"""For so long the ciphertext of a result is offered to a store that is away; then the call is in doubt."""
FAILED = "Failed"
"""In place of the words of a failure: they may hold the value."""
NOT_SERVED = "hidden values can't be opened here: AETHERIS_SUBJECT_KEYS is not set"


@dataclass(frozen=True, slots=True)
class OpenedCall:
    """A call's hidden values in the clear, by their places, and the keys of all their subjects."""

    values: Mapping[str, Any]
    keys: Mapping[str, bytes]


class HiddenCalls:
    """Opens what a job's call hides, and hides what comes of it under the same subjects."""

    def __init__(self, hiding: HiddenStore | None, traffic: BlobTraffic) -> None:
        self._hiding = hiding
        self._traffic = traffic

    async def opened(self, call: Invocation, tenant: str, job_id: str) -> OpenedCall | Retryable | Permanent:
        """What the call needs, or why it isn't made."""
        if self._hiding is None:
            return Retryable(f"{NOT_EXECUTED}: {NOT_SERVED}")
        values: dict[str, Any] = {}
        keys: dict[str, bytes] = {}
        try:
            for place in call.hidden:
                values[place.at], held = await self._hiding.opened(tenant, job_id, place.value)
                keys |= held
        except (SubjectErased, HiddenCorrupt) as error:
            return Permanent(error.code)
        except (SubjectKeyError, BlobError) as error:
            return Retryable(f"{NOT_EXECUTED}: {error.code}")
        return OpenedCall(values, keys)

    async def hidden(self, outcome: Outcome, opened: OpenedCall, tenant: str, job_id: str) -> Outcome:
        """The outcome as it may be recorded: its result hidden whole and kept, of its failure the kind alone."""
        if isinstance(outcome, Retryable):
            return Retryable(NOT_EXECUTED)
        if isinstance(outcome, Permanent):
            return Permanent(FAILED)
        texts = frozenset(text for value in opened.values.values() for text in _texts(value))
        redactor = Redactor({}, texts)
        if isinstance(outcome, InDoubt):
            return replace(outcome, error_class=redactor.text(outcome.error_class))
        if self._hiding is None:
            raise RuntimeError("what was opened can be hidden")
        found = sealed(opened.keys, tenant, job_id, outcome.result)
        hiding = self._hiding
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._traffic.insist(lambda: hiding.keep([found]))
        except TimeoutError:
            return InDoubt(BlobsUnreachable.__name__)
        external_id = outcome.external_id
        result = found.value.json()
        return replace(
            outcome,
            result=result,
            canonical=canonical(result),
            external_id=None if external_id is None else _named(external_id, redactor, texts),
            changes=tuple(
                replace(one, **{name: _named(text, redactor, texts) for name, text in one.payload().items()})
                for one in outcome.changes
            ),
        )


def _named(text: str, redactor: Redactor, texts: frozenset[str]) -> str:
    """A name that the external system gave, without the values; a short one is found only where it is all of it."""
    return "[hidden]" if text in texts else redactor.text(text)


def _texts(part: Any) -> Iterator[str]:
    """The texts, names and numbers of a value."""
    if isinstance(part, dict):
        for name, inner in cast("dict[str, Any]", part).items():
            yield name
            yield from _texts(inner)
    elif isinstance(part, list):
        for inner in cast("list[Any]", part):
            yield from _texts(inner)
    elif isinstance(part, str):
        yield part
    elif isinstance(part, int | float) and not isinstance(part, bool):
        yield json.dumps(part)
