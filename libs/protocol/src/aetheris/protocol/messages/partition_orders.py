"""What people order of every partition, its barriers, and what its ledger answers: freezes, policies, rules, places."""

from abc import ABC, abstractmethod
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.messages.message_base import Message

POLICY_KEY = "policy"
"""The record key of all that `policies` says of policies."""
BARRIER_KEY = "policy:barrier"
"""That of a policy's barrier: a job's name has no colon."""
RULES_KEY = "rules"
"""The record key of what `policies` says of rules."""
RULES_BARRIER_KEY = "rules:barrier"
PLACED_KEY = "jobs:placed"
"""That of all that a partition says of jobs that are created in others."""


class NumberedOrder(Message, ABC):
    """A person's word that every partition's ledger answers. The orders of a key are numbered from 1."""

    number: int = Field(ge=1)
    by: str
    at: str
    reason: str | None = None
    principal: RecordedPrincipal | None = None

    @property
    @abstractmethod
    def key(self) -> str:
        """The record key."""


class PartitionAnswer(Message, ABC):
    """What a partition's ledger says to the last order of a key."""

    number: int
    partition: int = Field(ge=0)

    @property
    @abstractmethod
    def key(self) -> str:
        """The record key, which is the order's."""


class FreezeOrder(NumberedOrder):
    """freezes: what a scope names does not start, or may again.

    `number` is the freeze's, counted in its scope: an order counts where it begins the next one, or ends the
    one in force. In a `freeze_barrier` it is what the partition has come to.
    """

    type_name: ClassVar[str] = "freeze_order"
    scope: FreezeScope
    frozen: bool
    activation: int | None = None
    """Of the end of a freeze: by which policy he may say so, as the gateway has it."""

    @property
    def key(self) -> str:
        """The record key."""
        return self.scope.key


class PartitionBarrier(Message, ABC):
    """jobs.events, of a partition and no job: something holds for all that lies behind this record."""

    @property
    @abstractmethod
    def cause(self) -> tuple[str, ...]:
        """What tells it from the partition's other ones."""

    @property
    @abstractmethod
    def job_id(self) -> str:
        """The record key, where the log has jobs' names: no job has such a one."""


class FreezeBarrier(PartitionBarrier):
    """Behind it nothing starts that the order holds.

    Every live job concerned carries the freeze by then; who has read this knows the order also for jobs to come.
    """

    type_name: ClassVar[str] = "freeze_barrier"
    order: FreezeOrder

    @property
    def cause(self) -> tuple[str, ...]:
        """Scope, number, and whether it begins."""
        return self.order.key, f"{self.order.number} {self.order.frozen}"

    @property
    def job_id(self) -> str:
        """The scope's."""
        return self.order.key


class ActingCall(BaseModel):
    """A call that had started when its partition was frozen, and may still act."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str
    node_id: str
    tool: str
    execution_id: str


class FreezeAnswer(PartitionAnswer):
    """freezes: the ledger has read its barrier back; `acting` had started before it, `more` beside those."""

    type_name: ClassVar[str] = "freeze_answer"
    scope: FreezeScope
    frozen: bool
    acting: tuple[ActingCall, ...] = ()
    more: int = 0

    @property
    def key(self) -> str:
        """The record key."""
        return self.scope.key


class PolicyActivation(NumberedOrder):
    """policies: from here on this policy decides. It counts where it has the next number."""

    type_name: ClassVar[str] = "policy_activation"
    policy: str
    """The whole text."""
    policy_hash: str
    """hex SHA-256 of the text."""

    @property
    def key(self) -> str:
        """The record key: there is one."""
        return POLICY_KEY


class PolicyBarrier(PartitionBarrier):
    """Behind it no call is made that was granted by an earlier activation."""

    type_name: ClassVar[str] = "policy_barrier"
    number: int = Field(ge=1)
    """Of the activation."""

    @property
    def cause(self) -> tuple[str, ...]:
        """The number."""
        return (str(self.number),)

    @property
    def job_id(self) -> str:
        """There is one."""
        return BARRIER_KEY


class PolicyAnswer(PartitionAnswer):
    """policies: the ledger has read its barrier back; what it decides goes by that activation, or a later one."""

    type_name: ClassVar[str] = "policy_answer"

    @property
    def key(self) -> str:
        """The record key: there is one."""
        return POLICY_KEY


class RulesOrder(NumberedOrder):
    """policies: jobs are created under a later version of the rules; `number` is the version, above the last one's."""

    type_name: ClassVar[str] = "rules_order"
    line: str = Field(default="", exclude=True)
    """The value of the record that it was read from; "" where it was not."""

    @property
    def key(self) -> str:
        """The record key: there is one."""
        return RULES_KEY


class RulesBarrier(PartitionBarrier):
    """Behind it no job is created under earlier rules."""

    type_name: ClassVar[str] = "rules_barrier"
    number: int
    """The version."""
    order: str
    """The order as it lies in its topic: a barrier that nobody has ordered is none, and nobody has to ask for it."""

    @property
    def cause(self) -> tuple[str, ...]:
        """The version."""
        return (str(self.number),)

    @property
    def job_id(self) -> str:
        """There is one."""
        return RULES_BARRIER_KEY


class RulesAnswer(PartitionAnswer):
    """policies: the ledger has read its barrier back, at the offset `barrier` of its partition."""

    type_name: ClassVar[str] = "rules_answer"
    barrier: int = Field(ge=0)

    @property
    def key(self) -> str:
        """The record key: there is one."""
        return RULES_KEY


class JobPlaced(PartitionBarrier):
    """Behind it the job is not created here, but in another partition, if at all (docs/growing.md).

    It counts in the partition that the job's id names, where no creation of the job precedes it, nor another of these.
    """

    type_name: ClassVar[str] = "job_placed"
    of_job: str
    partition: int = Field(ge=0)
    command: int = Field(ge=0)
    """The offset of its submission in this partition of jobs.commands."""

    @property
    def cause(self) -> tuple[str, ...]:
        """The job."""
        return (self.of_job,)

    @property
    def job_id(self) -> str:
        """There is one."""
        return PLACED_KEY
