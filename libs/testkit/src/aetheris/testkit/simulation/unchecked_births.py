"""Who does not look at the birth that a message carries, for `ablations`."""

from collections.abc import Callable
from typing import Any

from aetheris.tool_executor.core.partition import DeclaredInvocation


def without_birth_in_executor(real: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever birth a grant names, the fold's own is taken for it."""

    def in_force(core: Any, grant: Any, node_id: str) -> Any:
        job = core.jobs.get(grant.job_id)
        return real(core, grant if job is None else grant.model_copy(update={"birth": job.creation_offset}), node_id)

    return in_force


def without_birth_in_read_back(_: Callable[..., Any]) -> Callable[..., Any]:
    def born(core: Any, invocation: DeclaredInvocation) -> Any:
        return core.jobs.get(invocation.started.job_id)

    return born


def without_birth_in_ledger(real: Callable[..., Any]) -> Callable[..., Any]:
    def in_force(job: Any, request: Any) -> Any:
        return real(job, request.model_copy(update={"birth": job.state.creation_offset}))

    return in_force
