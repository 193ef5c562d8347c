"""What a job that continues another says of it: its seal, and what is adopted of it (docs/continue.md)."""

from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.base.references import adopted_name
from aetheris.protocol.messages.event_values import BlobRef


class SealOf(BaseModel):
    """What a job's seal says, where another job names it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    event_count: int
    root: str
    outcome_hash: str
    key_id: str


class Adopted(BaseModel):
    """A step that an earlier job settled as a success, and that is not run again; `content_key` where irreversible.

    `result_ref`: where its result lies, which is too large for a record.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str
    node_id: str
    idempotency_key: str
    invocation_id: str | None = None
    tool_name: str
    args_hash: str | None = None
    result_hash: str | None = None
    result_ref: BlobRef | None = None
    external_id: str | None = None
    content_key: str | None = None
    occurrence: int = 1

    @property
    def name(self) -> str:
        """What a reference to its result calls it."""
        return adopted_name(self.job_id, self.node_id)


class StepSettlement(BaseModel):
    """What who continues a job says became of a step of it that nobody was sure of; he submits the new one."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    node_id: str
    idempotency_key: str
    invocation_id: str | None = None
    verdict: Literal["happened", "not_executed"]
    evidence: str
    result: Any = None


class Use(BaseModel):
    """Where a value stands for an adopted result: the place in the node (JSON Pointer), and the reference that led."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    node_id: str
    at: str
    ref: str


class Given(BaseModel):
    """The whole result of an adopted step, for the references that lead into it (`name`: what they call the step)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    result: Any = None


class Continues(BaseModel):
    """The failed or cancelled job that a job goes on from, its seal, and what is adopted of it (docs/continue.md).

    `depth`: how many jobs, each continuing the next, stand behind the new one. A result that the plan refers to stands
    in it (`uses`), or is `given`, or lies where its `result_ref` says.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str
    seal: SealOf
    depth: int = 1
    adopted: tuple[Adopted, ...] = ()
    settled: tuple[StepSettlement, ...] = ()
    said_by: RecordedPrincipal | None = None
    """Who has settled those: who submits the new job."""
    uses: tuple[Use, ...] = ()
    given: tuple[Given, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Adopted]:
        """What is adopted, as references call it."""
        return {one.name: one for one in self.adopted}

    @cached_property
    def results(self) -> dict[str, Any]:
        """The results that are given, as references call them."""
        return {one.name: one.result for one in self.given}

    @cached_property
    def by_meaning(self) -> dict[tuple[str, int], Adopted]:
        """The adopted effects that can't be undone, by content key and occurrence: none of them is done again."""
        return {(one.content_key, one.occurrence): one for one in self.adopted if one.content_key is not None}
