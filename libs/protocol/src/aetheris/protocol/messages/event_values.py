"""The values that events carry: enumerations, and the small records that stand in several of them."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

from aetheris.protocol.base import recordable
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.messages.record_struct import RecordStruct
from aetheris.protocol.messages.unknown_values import open_to
from aetheris.protocol.plan.graph import EffectKind


class Outcome(StrEnum):
    """How a try ended; what is not known is no outcome."""

    SUCCESS = "success"
    COMPENSATABLE = "compensatable_failure"
    RETRYABLE = "retryable_failure"
    PERMANENT = "permanent_failure"

    @property
    def took_effect(self) -> bool:
        """Settles as a success: the effect stands."""
        return self in (Outcome.SUCCESS, Outcome.COMPENSATABLE)


class Via(StrEnum):
    """Who says so: the try itself, or who settled it in its place."""

    EXECUTOR = "executor"
    CATCH_UP = "catch_up"
    PROBE = "probe"
    LATE = "late"
    HUMAN = "human"
    LEDGER = "ledger"


class Decision(StrEnum):
    """A human's answer to an approval request."""

    APPROVE = "approve"
    EDIT = "edit"
    REJECT = "reject"


class Observed(RecordStruct):
    """What a rule that only observes would have done with a call: deny it, or ask somebody."""

    rule: str
    would: Annotated[str, open_to("deny", "approval")]


class Answer(StrEnum):
    """What the external system says of an external key."""

    FOUND = "found"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"


class RejectReason(StrEnum):
    """Why a call is not to start."""

    POLICY = "policy"
    DUPLICATE_OF = "duplicate_of"
    APPROVAL = "approval"
    APPROVAL_MISMATCH = "approval_mismatch"
    EDITED = "edited"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    BUDGET = "budget"
    CONFIRMATION = "confirmation"


class Change(RecordStruct):
    """What a call changed outside."""

    resource_type: str
    resource_id: str
    operation: str
    version: str | None = None
    etag: str | None = None
    external_ref: str | None = None


def changes_of(reported: Iterable[Mapping[str, Any]]) -> tuple[Change, ...]:
    """Changes as they are recorded, as far as there is room."""
    return tuple(Change.model_validate(one) for one in recordable.changes(reported))


class BlobRef(RecordStruct):
    """A result over 64 KiB: where its bytes are, by content."""

    sha256: str
    size: int


class DuplicateOf(RecordStruct):
    """The call that means the same as a refused one."""

    job_id: str
    node_id: str
    execution_id: str


class CodeVersion(RecordStruct):
    """Which code runs as a body: where it is, the version that its author gave it, its hash."""

    ref: str
    version: str
    hash: str


class After(RecordStruct):
    """An earlier invocation whose result a started one uses."""

    invocation_id: str
    result_hash: str


RecordedReason = Annotated[str, open_to(*RejectReason)]
RecordedEffectKind = Annotated[str, open_to(*EffectKind)]
RecordedRole = Annotated[str, open_to(*Role)]
RecordedPrincipalKind = Annotated[str, open_to(*PrincipalKind)]
WaitType = Annotated[
    str,
    open_to(
        *("signal", "human", "timer", "approval", "resolve"),
        *("upgrade", "confirmation", "duplicate", "verifier", "executor"),
    ),
]


ConfirmationMode = Annotated[str, open_to("strict", "warn", "human_in_loop", "reconcile")]
"""Why a recorded effect is compared with the external system: by the job's option, before it goes on, or asked for."""
