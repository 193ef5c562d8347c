"""The execution contract's state machine: 9 legal transitions, everything else refused (docs/execution-contract.md)."""

from enum import StrEnum


class Status(StrEnum):
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


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.REJECTED, Status.CANCELLED})

TRANSITIONS: dict[tuple[Status, Trigger], Status] = {
    (Status.PENDING, Trigger.START): Status.RUNNING,
    (Status.RUNNING, Trigger.SUCCEED): Status.COMPLETED,
    (Status.RUNNING, Trigger.FAIL): Status.FAILED,
    (Status.RUNNING, Trigger.REJECT): Status.REJECTED,
    (Status.RUNNING, Trigger.SUSPEND): Status.WAITING,
    (Status.RUNNING, Trigger.CANCEL): Status.CANCELLED,
    (Status.WAITING, Trigger.RESUME): Status.RUNNING,
    (Status.WAITING, Trigger.CANCEL): Status.CANCELLED,
    (Status.WAITING, Trigger.TIMEOUT): Status.CANCELLED,
}


class IllegalTransition(ValueError):
    """A (state, trigger) pair that is refused and changes nothing."""

    code = "illegal_transition"

    def __init__(self, status: Status, trigger: Trigger) -> None:
        super().__init__(f"{trigger} is not possible from {status}")
        self.status = status
        self.trigger = trigger


def advance(status: Status, trigger: Trigger) -> Status:
    """The next state.

    Raises:
        IllegalTransition: the pair is one of the 47 that are refused.
    """
    try:
        return TRANSITIONS[status, trigger]
    except KeyError:
        raise IllegalTransition(status, trigger) from None
