"""Jobs at rest obey what is said to all jobs: they are woken for it where it concerns them, and for nothing else."""

from aetheris.ledger.core.decisions import Answered, Barrier, Emit
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.job_table import QUIET
from aetheris.protocol.messages.commands import FreezeOrder
from aetheris.protocol.messages.events import CancelRequested, JobFrozen
from tests.testkit.histories import TENANT
from tests.unit.ledger.test_freezes_cost import NOW, Frozen

JOBS = 3


def at_rest() -> Frozen:
    """All of whose jobs are."""
    found = Frozen(JOBS, 0)
    for _ in range(QUIET + 1):
        found.core.rest()
    assert found.core.jobs.at_rest == JOBS
    return found


def test_a_freeze_is_carried_by_each_job_that_rests_before_the_barrier_is_raised() -> None:
    resting = at_rest()
    resting.order(FreezeScope(tenant=TENANT))
    found = resting.settle()
    assert [type(one) for one in found] == [*[Emit] * JOBS, Barrier, Answered]
    assert all(job.state.frozen for job in resting.core.jobs.awake())
    for _ in range(QUIET + 1):
        resting.core.rest()
    assert resting.core.jobs.at_rest == 0, "what is frozen waits for the end of that"


def test_a_freeze_and_its_end_wake_nobody_whom_they_do_not_concern() -> None:
    resting, scope = at_rest(), FreezeScope(tenant="another")
    resting.order(scope)
    assert [type(one) for one in resting.settle()] == [Barrier, Answered]
    over = FreezeOrder(scope=scope, number=1, frozen=False, by="bob", at="then")
    assert resting.orders.take(over)
    resting.core.ordered(over, NOW)
    resting.settle()
    assert resting.core.jobs.at_rest == JOBS


def test_a_record_wakes_its_job_and_what_people_said_is_waited_for_awake() -> None:
    resting = at_rest()
    resting.log(JobFrozen(job_id="job-1", scope=FreezeScope(tenant=TENANT), number=9, by="eve", at=""))
    resting.log(CancelRequested(job_id="job-2", by="bob"))
    assert resting.core.jobs.at_rest == JOBS - 2
    for _ in range(QUIET + 1):
        resting.core.rest()
    assert resting.core.jobs.at_rest == JOBS - 2
    assert [at for _, at in resting.core.live()] == [0, 2, 4]
