"""Write tools, probes and verifiers; call the gateway."""

from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.outcomes import (
    Confirmed,
    Drifted,
    Failed,
    Found,
    NotExecuted,
    NotFound,
    Partial,
    Result,
    StateChange,
    Unknown,
)
from aetheris.sdk.schema import Personal
from aetheris.sdk.tools import Tool, tool

__all__ = [
    "Confirmed",
    "Drifted",
    "Failed",
    "Found",
    "NotExecuted",
    "NotFound",
    "Partial",
    "Personal",
    "ProbeContext",
    "Result",
    "StateChange",
    "Tool",
    "ToolContext",
    "Unknown",
    "tool",
]
