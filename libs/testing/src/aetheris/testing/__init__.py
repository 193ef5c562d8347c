"""Tests of your own tools, plans and policies: the services' own rules, in memory, in milliseconds (docs/testing.md).

It lies beside the services, above the SDK, because it drives their cores, and the SDK imports none of them:
`aetheris-tool-sdk[testing]` installs it.
"""

from aetheris.sdk.workflows.declaration import NODE
from aetheris.testing.contexts import probe_context, tool_context
from aetheris.testing.faults import (
    FaultNotMet,
    InjectedFault,
    crash_after,
    crash_before,
    duplicate_delivery,
    lost_answer,
)
from aetheris.testing.job_under_test import JobUnderTest
from aetheris.testing.memory_system import MemorySystem, NotAllowed, NotAsked, PlanRefused
from aetheris.testing.scripted_model import ScriptedModel, running_model
from aetheris.testing.session_gateway import StillWaits
from aetheris.testing.workflow_runs import BodyDiffers, run_workflow

__all__ = [
    "NODE",
    "BodyDiffers",
    "FaultNotMet",
    "InjectedFault",
    "JobUnderTest",
    "MemorySystem",
    "NotAllowed",
    "NotAsked",
    "PlanRefused",
    "ScriptedModel",
    "StillWaits",
    "crash_after",
    "crash_before",
    "duplicate_delivery",
    "lost_answer",
    "probe_context",
    "run_workflow",
    "running_model",
    "tool_context",
]
