"""The execution contract's state machine: 9 legal transitions, everything else refused (docs/execution-contract.md)."""

from enum import StrEnum


class ContractStatus(StrEnum):
    """Where an execution contract stands."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class Trigger(StrEnum):
    """What may move it."""

    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    REJECT = "reject"
    SUSPEND = "suspend"
    RESUME = "resume"
    CANCEL = "cancel"
    TIMEOUT = "timeout"


TERMINAL = frozenset(
    {ContractStatus.COMPLETED, ContractStatus.FAILED, ContractStatus.REJECTED, ContractStatus.CANCELLED}
)

TRANSITIONS: dict[tuple[ContractStatus, Trigger], ContractStatus] = {
    (ContractStatus.PENDING, Trigger.START): ContractStatus.RUNNING,
    (ContractStatus.RUNNING, Trigger.SUCCEED): ContractStatus.COMPLETED,
    (ContractStatus.RUNNING, Trigger.FAIL): ContractStatus.FAILED,
    (ContractStatus.RUNNING, Trigger.REJECT): ContractStatus.REJECTED,
    (ContractStatus.RUNNING, Trigger.SUSPEND): ContractStatus.WAITING,
    (ContractStatus.RUNNING, Trigger.CANCEL): ContractStatus.CANCELLED,
    (ContractStatus.WAITING, Trigger.RESUME): ContractStatus.RUNNING,
    (ContractStatus.WAITING, Trigger.CANCEL): ContractStatus.CANCELLED,
    (ContractStatus.WAITING, Trigger.TIMEOUT): ContractStatus.CANCELLED,
}


class IllegalTransition(ValueError):
    """A (state, trigger) pair that is refused and changes nothing."""

    code = "illegal_transition"

    def __init__(self, status: ContractStatus, trigger: Trigger) -> None:
        super().__init__(f"{trigger} is not possible from {status}")
        self.status = status
        self.trigger = trigger


def advance(status: ContractStatus, trigger: Trigger) -> ContractStatus:
    """The next state.

    Raises:
        IllegalTransition: the pair is one of the 47 that are refused.
    """
    try:
        return TRANSITIONS[status, trigger]
    except KeyError:
        raise IllegalTransition(status, trigger) from None
