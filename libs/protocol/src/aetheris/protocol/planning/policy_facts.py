"""What a policy is shown of a call."""

from typing import Any

from aetheris.protocol.fold.state import JobState
from aetheris.protocol.planning.invocation import Invocation


def policy_facts(job: JobState, call: Invocation) -> dict[str, Any]:
    """What a rule's condition may look at (docs/policy.md)."""
    created, entry = job.created, call.entry
    return {
        "args": call.args,
        "job": {
            "id": job.job_id,
            "tenant": created.tenant,
            "submitted_by": created.submitted_by,
            "agent": created.agent or "",
            "session": created.session or "",
            "depth": created.begun.depth if created.begun is not None else 0,
        },
        "tool": {
            "name": entry.node.tool_name,
            "version": entry.tool_version,
            "irreversible": entry.irreversible,
            "effect_class": entry.effect_class.value,
        },
        "node": {"id": call.node_id},
    }
