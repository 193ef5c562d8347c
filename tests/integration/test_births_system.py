"""A sealed job's signed records, laid once more behind its seal, with forged requests: nothing is called again.

Where a birth counts has several rules (ADR 9, `docs/model/Births.tla`). For each there is a test in which it alone
stands before a second call: the planner sleeps, or it would say `birth_repeated`; executors are granted the call, too.
"""

from collections.abc import Generator, Sequence

import pytest

from aetheris.proofs import RawRecord
from aetheris.protocol.base.sealed import REACH
from tests.testkit.attempts import fresh
from tests.testkit.broker_rights import (
    PATIENCE_S,
    Beside,
    ask_for,
    before_its_call,
    comes_to_pass,
    cut,
    end_of,
    fill,
    forget_marks,
    home_of,
    lay,
    least_mark,
    marks,
    partitions,
    restart,
    stream,
    waits_beside,
)
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SPACE = 600
"""Records between a seal and a copy of its job, so that a mark can be made to lie between the two."""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("births")) as rig:
        yield rig


class Done:
    """A sealed job whose opaque call took effect once, and what the log had of it then."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.tag = fresh("again")
        self.job = rig.system.completed(poke("a", self.tag, tool="poke_opaque"))
        rig.system.wait_sealed(self.job, PATIENCE_S)
        self.records: Sequence[RawRecord] = stream(rig, self.job)
        self.home = home_of(rig, self.job)
        self.count_is_one()

    @property
    def end(self) -> int:
        """Behind its seal."""
        return self.records[-1].offset + 1

    def lay_again(self, number: int | None = None) -> int:
        """What of it lies before its call, in its partition or another; where."""
        return lay(self._rig, before_its_call(self.records), self.home if number is None else number)

    def ask_for(self, birth: int, number: int | None = None) -> None:
        ask_for(self._rig, self.records, birth, self.home if number is None else number)

    def count_is_one(self) -> None:
        assert self._rig.external.count(self.tag) == 1


def is_called_no_more(rig: Rig, done: Done, beside: Beside, number: int | None = None) -> None:
    """Laid there again, and asked for, while the planner sleeps; what comes of it has come."""
    with rig.system.asleep("planner-0"):
        done.ask_for(done.lay_again(number), number)
        comes_to_pass(rig, beside)
        done.count_is_one()


def test_who_lives_remembers_the_names_of_the_jobs_that_were_sealed_last(rig: Rig) -> None:
    done = Done(rig)
    is_called_no_more(rig, done, waits_beside(rig, done.home))
    assert rig.system.verified(done.job)["violations"] == []


def test_who_restarts_reads_them_from_as_far_below_its_mark_as_a_birth_may_lie(rig: Rig) -> None:
    done = Done(rig)
    beside = waits_beside(rig, done.home)
    restart(rig, "ledger-0", "executor-0")
    is_called_no_more(rig, done, beside)


def test_a_birth_in_another_partition_is_none_though_by_its_offset_it_could_lie_there(rig: Rig) -> None:
    done = Done(rig)
    other = (done.home + 1) % partitions(rig)
    lacks = done.records[0].offset + SPACE - end_of(rig, other)
    fill(rig, other, max(lacks, 0))
    assert end_of(rig, other) < done.records[0].offset + REACH, "within reach"
    is_called_no_more(rig, done, waits_beside(rig, other), other)


def test_a_birth_far_behind_its_place_is_none_though_nobody_knows_its_job_any_more(rig: Rig) -> None:
    done = Done(rig)
    fill(rig, done.home, REACH + SPACE)
    beside = waits_beside(rig, done.home)
    until(lambda: least_mark(rig, done.home) > done.end, PATIENCE_S)
    restart(rig, "ledger-0", "executor-0")
    is_called_no_more(rig, done, beside)
    assert rig.system.verified(done.job)["violations"] == []


def beside_a_copy(rig: Rig) -> tuple[Done, Beside, int]:
    """A copy of a birth, within reach of it, and a job that waits so far behind that who restarts reads it alone."""
    done = Done(rig)
    fill(rig, done.home, SPACE)
    copy = done.lay_again()
    fill(rig, done.home, done.end + REACH + SPACE // 2 - end_of(rig, done.home))
    beside = waits_beside(rig, done.home)
    until(lambda: least_mark(rig, done.home) > done.end, PATIENCE_S)
    assert max(marks(rig, done.home)[one] for one in ("aetheris.ledger", "aetheris.tool_executor")) <= copy
    assert copy <= done.records[0].offset + REACH
    return done, beside, copy


def test_a_birth_whose_writer_had_read_less_than_who_restarts_is_none(rig: Rig) -> None:
    done, beside, copy = beside_a_copy(rig)
    restart(rig, "ledger-0", "executor-0")
    with rig.system.asleep("planner-0"):
        done.ask_for(copy)
        comes_to_pass(rig, beside)
        done.count_is_one()


def test_below_what_is_committed_the_log_can_be_cut_and_all_restart_as_often_as_they_like(rig: Rig) -> None:
    """A job that waits goes on behind that, and one that was sealed below it comes again for nobody."""
    done, beside, copy = beside_a_copy(rig)
    cut(rig, done.home, least_mark(rig, done.home))
    for _ in range(2):
        restart(rig)
    with rig.system.asleep("planner-0"):
        done.ask_for(copy)
        comes_to_pass(rig, beside)
        done.count_is_one()
    rig.system.wait_ended([beside.job], PATIENCE_S)
    rig.system.wait_sealed(beside.job, PATIENCE_S)


def test_who_has_lost_its_marks_begins_where_the_log_was_cut_and_stays_there(rig: Rig) -> None:
    done, beside, copy = beside_a_copy(rig)
    cut(rig, done.home, least_mark(rig, done.home))
    with rig.system.all_killed():
        until(lambda: are_forgotten(rig), PATIENCE_S)
    rig.system.wait_ready(PATIENCE_S)
    for _ in range(2):
        restart(rig)
    with rig.system.asleep("planner-0"):
        done.ask_for(copy)
        comes_to_pass(rig, beside)
        done.count_is_one()
    rig.system.wait_ended([beside.job], PATIENCE_S)


def are_forgotten(rig: Rig) -> bool:
    """Brokers let go of a group's marks once its last member is known to be gone."""
    try:
        forget_marks(rig)
    except Exception as error:  # noqa: BLE001 - each way in which it is not yet so
        return "NonEmptyGroup" not in type(error).__name__
    return True
