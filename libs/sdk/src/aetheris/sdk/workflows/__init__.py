"""Durable workflows in plain Python: code whose calls take effect once, whatever dies (docs/workflows.md)."""

from aetheris.sdk.workflows.call_arguments import own, undo
from aetheris.sdk.workflows.declaration import Workflow, workflow
from aetheris.sdk.workflows.errors import (
    CallEnded,
    ChildFailed,
    Misuse,
    OutcomeUnknown,
    ToolFailed,
    WorkflowCancelled,
    WorkflowContinues,
    WorkflowControl,
    WorkflowDiverged,
    WorkflowSuperseded,
)
from aetheris.sdk.workflows.result_references import ResultReference
from aetheris.sdk.workflows.workflow_context import WorkflowContext

__all__ = [
    "CallEnded",
    "ChildFailed",
    "Misuse",
    "OutcomeUnknown",
    "ResultReference",
    "ToolFailed",
    "Workflow",
    "WorkflowCancelled",
    "WorkflowContext",
    "WorkflowContinues",
    "WorkflowControl",
    "WorkflowDiverged",
    "WorkflowSuperseded",
    "own",
    "undo",
    "workflow",
]
