"""What a workflow's code is told by exceptions (docs/workflows.md, "When a call fails").

CallEnded                  a call has ended, and not as a success
├── ToolFailed             there is no effect of it, and there never will be
├── OutcomeUnknown         it may have taken effect, so it is no ToolFailed
└── ChildFailed            a job that was begun has not completed; what it did before stays done, or is undone, by it
Misuse(TypeError)          what can't be asked for: nothing was planned
WorkflowControl(BaseException)   this run of the code is over: `except Exception` doesn't catch it
├── WorkflowCancelled      its job is stopped
├── WorkflowSuperseded     another run of the workflow has taken over
├── WorkflowDiverged       this code asks for other calls than those that are recorded
└── WorkflowContinues      another job goes on in its place
"""

from collections.abc import Mapping
from typing import Any, Literal

StopReason = Literal["cancelled", "superseded", "revoked", "diverged"]
"""Why a body is stopped: its job ends, another body runs, its executor gives it up, or its code has changed."""


class CallEnded(Exception):
    """A call has ended, and not as a success; `reason` is as it is recorded."""

    sure: bool
    """Whether there is certainly no effect of it."""

    def __init__(
        self,
        node_id: str,
        reason: str,
        *,
        rejected_by: str | None = None,
        duplicate_of: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{node_id}: {reason}")
        self.node_id = node_id
        self.reason = reason
        self.rejected_by = rejected_by
        """policy, approval, expired, budget, …: why it was not to start, where that is so."""
        self.duplicate_of = duplicate_of
        """The call that means the same and was made before, where it was refused for that."""


class ToolFailed(CallEnded):
    """It has failed or was refused: there is no effect of this call, and there never will be."""

    sure = True


class OutcomeUnknown(CallEnded):
    """It has failed, and nobody knows whether it took effect: what would do the same again must not be called."""

    sure = False


class ChildFailed(CallEnded):
    """A job that was begun has not completed: it has failed, was cancelled, or was never taken."""

    sure = False

    def __init__(self, node_id: str, reason: str, *, job_id: str, status: str) -> None:
        super().__init__(node_id, reason)
        self.job_id = job_id
        self.status = status
        """failed, cancelled or refused; completed, where its result was too large to be told."""


class Misuse(TypeError):
    """What a workflow can't ask for: an unknown tool, arguments that its schema refuses. Nothing was planned."""


class WorkflowControl(BaseException):
    """This run of a workflow's code is over: it can call nothing any more."""


class WorkflowCancelled(WorkflowControl):
    """Its job is stopped."""


class WorkflowSuperseded(WorkflowControl):
    """Another run of this workflow has taken over."""


class WorkflowDiverged(WorkflowControl):
    """The code asks for other calls than those that are recorded of an earlier run."""


class WorkflowContinues(WorkflowControl):
    """Another job goes on in its place."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} goes on in its place")
        self.job_id = job_id


def stopped(why: StopReason) -> WorkflowControl:
    """What a body that is stopped is told by."""
    if why == "cancelled":
        return WorkflowCancelled("its job is stopped")
    if why == "diverged":
        return WorkflowDiverged("it asks for other calls than those that are recorded")
    return WorkflowSuperseded("it is run elsewhere from here on")
