"""Lines of tools.registry: what plans may name."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.messages.message_base import TableLine
from aetheris.protocol.plan.graph import (
    DuplicateScope,
    DuplicateWindow,
    EffectClass,
    Name,
    OnInDoubt,
    SettlesWithin,
    ToolName,
    ToolTimeout,
)
from aetheris.protocol.plan.prompts import ModelName


def _exact(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema is shown to people and models: what has no canonical form can't be.

    Raises:
        InvalidArgs: it has none.
    """
    canonical(schema)
    return schema


class RegistryEntry(TableLine):
    """tools.registry: what a tool is, under its name@version."""

    type_name: ClassVar[str] = "tool"
    name: ToolName
    version: Name
    description: str = ""
    schema_: Annotated[dict[str, Any], AfterValidator(_exact)] = Field(alias="schema")
    schema_hash: str
    effect_class: EffectClass
    irreversible: bool = False
    timeout_s: ToolTimeout = 30.0
    settles_within_s: SettlesWithin | None = None
    volatile: tuple[str, ...] = ()
    on_in_doubt: OnInDoubt | None = None
    duplicate_scope: DuplicateScope = "job"
    duplicate_window_s: DuplicateWindow = 86_400.0
    probe: bool = False
    verifier: bool = False
    kind: Literal["tool", "workflow", "local"] = "tool"
    """local: what only a workflow's body can call, as its own function makes it."""
    calls: tuple[ToolName, ...] = ()
    """Of a workflow: the tools that its body may call, also to undo."""
    starts: tuple[ToolName, ...] = ()
    """Of a workflow: the workflows that its body may have begin as jobs of their own."""
    code_hash: str | None = None
    """Of a workflow: its code, hex SHA-256."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, serialize_by_alias=True)

    @model_validator(mode="after")
    def _code_itself_does_nothing(self) -> "RegistryEntry":
        if self.kind == "workflow" and (self.effect_class is not EffectClass.PURE or self.irreversible):
            raise ValueError("a workflow does nothing but by its calls: it is pure")
        return self

    @property
    def key(self) -> str:
        """The record key."""
        return f"{self.name}@{self.version}"


class ModelEntry(TableLine):
    """tools.registry: a model that jobs may name, beside the tools; `provider_model` is as its provider names it."""

    type_name: ClassVar[str] = "model"
    name: ModelName
    provider_model: str
    priced: bool = False

    @property
    def key(self) -> str:
        """The record key; no tool has one like it."""
        return f"model:{self.name}"


DEFAULT_POOL = "default"
"""Of executors to which nobody has given another."""


class ExecutorTools(TableLine):
    """tools.registry: what one life of an executor can call; it counts for as long as that life is the name's.

    A lie about it decides nothing: it only has calls wait, or be granted where nobody takes them up.
    """

    type_name: ClassVar[str] = "executor_tools"
    worker_id: Name
    incarnation: str
    pool: Name = DEFAULT_POOL
    serves: dict[str, str] = Field(default_factory=dict)
    """Key of a tool, a workflow or a model → the hash of its schema; of a model, which has none, the empty text."""

    @property
    def key(self) -> str:
        """The record key; no tool, model or release has one like it."""
        return f"executor:{self.worker_id}"


class ToolRelease(TableLine):
    """tools.registry: a person's word that a tool's calls wait no longer in a tenant's jobs, whatever it failed before.

    `below` is where each partition of jobs.events ended when it was said: failures before that count no more.
    """

    type_name: ClassVar[str] = "tool_release"
    tenant: str
    tool: str
    by: str
    reason: str
    at: str
    below: tuple[int, ...]
    principal: RecordedPrincipal | None = None
    activation: int | None = None
    """By which policy he may say so, as the gateway has it."""

    @property
    def key(self) -> str:
        """The record key; no tool, no model and no other tenant's release has one like it."""
        return f"release:{len(self.tenant)}:{self.tenant}:{self.tool}"

    def below_in(self, partition: int) -> int:
        """Where a partition of jobs.events ended; 0 for one that there was not."""
        return self.below[partition] if partition < len(self.below) else 0
