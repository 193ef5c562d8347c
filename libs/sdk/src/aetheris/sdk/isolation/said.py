"""What a call, a probe or a verifier came to, as JSON and back. What comes back is judged by whoever asked."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import canonical
from aetheris.sdk.isolation.errors import RaisedElsewhere
from aetheris.sdk.isolation.frames import BadFrame, has_more
from aetheris.sdk.outcomes import (
    Answer,
    Confirmed,
    Drifted,
    Failed,
    Found,
    InDoubt,
    NotExecuted,
    NotFound,
    Outcome,
    Partial,
    Permanent,
    Result,
    Retryable,
    Succeeded,
    Unknown,
    Verdict,
)

LARGEST_RESULT = 16 * 1024 * 1024
"""JCS bytes of a result; of a larger one only its size and hash are handed over, for its effect has happened."""
MOST_VALUES = 500_000
"""Values and keys of a result; the same holds for one of more."""

_KINDS: Mapping[str, TypeAdapter[Any]] = {
    one.__name__: TypeAdapter(one)
    for one in (Succeeded, Retryable, Permanent, InDoubt, Found, NotFound, Unknown, Confirmed, Drifted)
}


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    kind: str
    body: dict[str, Any]


def as_json(said: Outcome | Answer | Verdict) -> dict[str, Any]:
    """For a frame; never raises for what a tool says."""
    body = asdict(said) if not isinstance(said, Succeeded | Found) else _effect(said)
    if "evidence" in body:
        body["evidence"] = recordable.evidence(body["evidence"])
    if "diff" in body:
        body["diff"] = recordable.detail(body["diff"])
    return {"kind": type(said).__name__, "body": body}


def outcome(value: Any, *, traceback: str, acts_no_more: bool) -> Result | Partial:
    """What a tool's function would have returned.

    Raises:
        NotExecuted, Failed: as the tool has.
        RaisedElsewhere: nobody knows of its effect.
        BadFrame: it is none of these.
    """
    said = _as(value, Outcome)
    if isinstance(said, Retryable) and not traceback:
        raise NotExecuted(said.reason)
    if isinstance(said, Permanent):
        raise Failed(said.reason)
    if isinstance(said, Retryable | InDoubt):
        error_class = said.error_class if isinstance(said, InDoubt) else said.reason
        raise RaisedElsewhere(error_class, traceback=traceback, acts_no_more=acts_no_more)
    result = Result(said.result, said.external_id, said.changes)
    return Partial(result) if said.partial else result


def answer(value: Any, *, traceback: str) -> Answer:
    """Raises: BadFrame; RaisedElsewhere, as the probe has raised."""
    return _not_raised(_as(value, Answer), traceback)


def verdict(value: Any, *, traceback: str) -> Verdict:
    """Raises: BadFrame; RaisedElsewhere, as the verifier has raised."""
    return _not_raised(_as(value, Verdict), traceback)


def _not_raised(said: Any, traceback: str) -> Any:
    if isinstance(said, Unknown) and traceback:
        raise RaisedElsewhere(said.reason, traceback=traceback)
    return said


def _effect(said: Succeeded | Found) -> dict[str, Any]:
    result, data = recordable.result(said.result)
    if len(data) > LARGEST_RESULT or has_more(data, MOST_VALUES):
        result = recordable.left_out(data)
        data = canonical(result)
    changes = list(recordable.changes(one.payload() for one in said.changes))
    body: dict[str, Any] = {"result": json.loads(data), "external_id": said.external_id, "changes": changes}
    return body | ({"partial": said.partial} if isinstance(said, Succeeded) else {"evidence": said.evidence})


def _as(value: Any, wanted: Any) -> Any:
    """One of the kinds that are wanted, its fields of the types that they are declared with."""
    try:
        said = _Said.model_validate(value)
        found = _KINDS[said.kind].validate_python(said.body)
    except (ValidationError, LookupError, TypeError):
        raise BadFrame("no outcome") from None
    if not isinstance(found, wanted):
        raise BadFrame("another kind of outcome")
    return found
