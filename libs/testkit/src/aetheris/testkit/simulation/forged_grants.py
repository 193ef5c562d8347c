"""Who may write grants, which nobody signs, has each call made about which a human is asked (docs/simulation.md)."""

from collections.abc import Iterable, Iterator

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import ToolGrant
from aetheris.testkit.simulation.log import SimLog, WholeBatch
from aetheris.testkit.simulation.scenario import TTL_S


def grant_behind_questions(log: SimLog, jobs: Iterable[JobState], activation: int) -> list[str]:
    """The nodes whose calls he grants, of jobs of this partition; each by the newest activation."""
    grants = list(_grants(jobs, activation))
    for grant in grants:
        log.adrift(WholeBatch(Topic.TOOLS_GRANTS, ((grant.lease_id, grant),)))
    return [node_id for grant in grants for node_id in grant.nodes]


def _grants(jobs: Iterable[JobState], activation: int) -> Iterator[ToolGrant]:
    for job in jobs:
        for key, state in job.keys.items():
            if job.terminal is None and state.is_asking:
                yield ToolGrant(
                    job_id=job.job_id,
                    birth=job.creation_offset,
                    as_of=job.last_offset,
                    revision=job.revision,
                    plan_hash=job.plan_hash,
                    nodes=(state.node_id,),
                    activation=activation,
                    idempotency_key=key,
                    token=state.fencing_token,
                    lease_id=f"forged-{key}-{state.fencing_token}",
                    deadline_s=TTL_S,
                )
