"""A sealed job's signed records, laid once more behind its seal, with forged requests: nothing is called again.

Where a birth counts has several rules (ADR 9, `docs/model/Births.tla`). For each but one there is a test that fails
without it alone. That one is the reach of `as_of`: of those who restart none takes a copy whose writer had read less.
The planner sleeps from before a copy is laid until all is judged, or its `birth_repeated` would stand before the rule;
executors are granted the call, too.
"""

import json
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from aetheris.proofs import RawRecord
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
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
    tries_behind,
    wait_taken_up,
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

    def declared_behind(self, offset: int) -> Sequence[Record]:
        """The tries of it that were declared behind that."""
        return tries_behind(self._rig, self.job, offset)

    def count_is_one(self) -> None:
        assert self._rig.external.count(self.tag) == 1


def is_called_no_more(rig: Rig, done: Done, beside: Beside) -> None:
    """Laid there again, and asked for, while the planner sleeps; what comes of it has come."""
    with rig.system.asleep("planner-0"):
        done.ask_for(done.lay_again())
        comes_to_pass(rig, beside)
        done.count_is_one()


def test_who_lives_remembers_the_names_of_the_jobs_that_were_sealed_last(rig: Rig) -> None:
    done = Done(rig)
    is_called_no_more(rig, done, waits_beside(rig, done.home))
    assert rig.system.verified(done.job)["violations"] == []


def test_who_restarts_reads_them_from_as_far_below_its_mark_as_a_birth_may_lie(rig: Rig) -> None:
    """Who did not would still take no birth whose writer had read less: without both it is called again."""
    done = Done(rig)
    beside = waits_beside(rig, done.home)
    marks_are_told(rig, done.home)
    restart(rig, "ledger-0", "executor-0")
    is_called_no_more(rig, done, beside)


def marks_are_told(rig: Rig, number: int) -> None:
    """By ledger and executor, since they have read all that lies there now: what a later job asked for is over."""
    while home_of(rig, rig.system.completed(poke("a", fresh("later")))) != number:
        pass
    wait_taken_up(rig, number)


def test_a_birth_in_another_partition_is_none_though_by_its_offset_it_could_lie_there(rig: Rig) -> None:
    """A try would be declared where its job's key lies, and nobody call it: he lays that in the other, too."""
    done = Done(rig)
    other = (done.home + 1) % partitions(rig)
    lacks = done.records[0].offset + SPACE - end_of(rig, other)
    fill(rig, other, max(lacks, 0))
    assert end_of(rig, other) < done.records[0].offset + REACH, "within reach"
    assert max(read_from(rig, other)) <= done.records[0].offset, "nor is it taken for a copy of what lies below"
    first, second = (waits_beside(rig, other) for _ in range(2))
    with rig.system.asleep("planner-0"):
        done.ask_for(done.lay_again(other), other)
        comes_to_pass(rig, first)
        if declared := done.declared_behind(done.end):
            lay(rig, declared, other)
        comes_to_pass(rig, second)
        done.count_is_one()


def read_from(rig: Rig, number: int) -> Sequence[int]:
    """Not below where ledger and executor have begun to read: no mark is."""
    return [marks(rig, number)[one] for one in ("aetheris.ledger", "aetheris.tool_executor")]


def test_a_birth_far_behind_its_place_is_none_though_nobody_knows_its_job_any_more(rig: Rig) -> None:
    """Its writer had read less than who restarts, too: without both it is called again."""
    done = Done(rig)
    fill(rig, done.home, REACH + SPACE)
    beside = waits_beside(rig, done.home)
    until(lambda: least_mark(rig, done.home) > done.end, PATIENCE_S)
    restart(rig, "ledger-0", "executor-0")
    is_called_no_more(rig, done, beside)
    assert rig.system.verified(done.job)["violations"] == []


@contextmanager
def beside_a_copy(rig: Rig) -> Generator[tuple[Done, int]]:
    """A copy of a birth, within reach of it, and marks between the two; inside the planner sleeps since before it."""
    done = Done(rig)
    fill(rig, done.home, SPACE)
    until(lambda: marks(rig, done.home)["aetheris.planner"] > done.end, PATIENCE_S)
    with rig.system.asleep("planner-0"):
        copy = done.lay_again()
        fill(rig, done.home, done.end + REACH + SPACE // 2 - end_of(rig, done.home))
        until(lambda: least_mark(rig, done.home) > done.end, PATIENCE_S)
        assert max(read_from(rig, done.home)) <= copy <= done.records[0].offset + REACH
        yield done, copy


def is_asked_for_in_vain(rig: Rig, done: Done, copy: int) -> None:
    """The planner sleeps: nobody says that the birth is one that was there before, until all is judged."""
    done.ask_for(copy)
    wait_taken_up(rig, done.home)
    assert not done.declared_behind(copy)


def test_a_birth_whose_writer_had_read_less_than_who_restarts_is_none(rig: Rig) -> None:
    with beside_a_copy(rig) as (done, copy):
        restart(rig, "ledger-0", "executor-0")
        is_asked_for_in_vain(rig, done, copy)
    comes_to_pass(rig, waits_beside(rig, done.home))
    done.count_is_one()


def test_below_what_is_committed_the_log_can_be_cut_and_all_restart_as_often_as_they_like(rig: Rig) -> None:
    """One that was sealed below it comes again for nobody, and a job that waits goes on behind that."""
    with beside_a_copy(rig) as (done, copy):
        cut(rig, done.home, least_mark(rig, done.home))
        for _ in range(2):
            restart(rig, "ledger-0", "executor-0", "verifier-0")
        is_asked_for_in_vain(rig, done, copy)
    beside = waits_beside(rig, done.home)
    cut(rig, done.home, least_mark(rig, done.home))
    for _ in range(2):
        restart(rig)
    comes_to_pass(rig, beside)
    done.count_is_one()
    rig.system.wait_ended([beside.job], PATIENCE_S)
    rig.system.wait_sealed(beside.job, PATIENCE_S)


def test_who_has_lost_its_marks_begins_where_the_log_was_cut_and_stays_there(rig: Rig) -> None:
    done = Done(rig)
    fill(rig, done.home, SPACE)
    beside = waits_beside(rig, done.home)
    cut(rig, done.home, done.end)
    with rig.system.all_killed():
        until(lambda: forget_marks(rig), PATIENCE_S)
    rig.system.wait_ready(PATIENCE_S)
    for _ in range(2):
        restart(rig)
    is_called_no_more(rig, done, beside)
    rig.system.wait_ended([beside.job], PATIENCE_S)


def test_a_job_that_was_created_together_with_another_goes_on_wherever_others_restart(rig: Rig) -> None:
    """Its planner had not read the other: who began at its birth would take it for a copy of one that lies below."""
    number, beside = born_behind_another(rig)
    marks_are_told(rig, number)
    restart(rig, "ledger-0", "executor-0")
    comes_to_pass(rig, beside)


def born_behind_another(rig: Rig) -> tuple[int, Beside]:
    """A job that waits, created in one round with another that is over; its partition."""
    tags = [fresh("together") for _ in range(2 * partitions(rig) + 1)]
    with ThreadPoolExecutor(len(tags)) as pool:
        with rig.system.asleep("planner-0"):
            before = sum(rig.system.ends(Topic.JOBS_COMMANDS).values())
            found = [pool.submit(rig.system.submit, poke("a", tag, tool="poke_irreversible")) for tag in tags]
            until(lambda: sum(rig.system.ends(Topic.JOBS_COMMANDS).values()) >= before + len(tags), PATIENCE_S)
        jobs = {one.result(): tag for one, tag in zip(found, tags, strict=True)}
    births = {job: stream(rig, job)[0] for job in jobs if rig.system.wait_asked(job, PATIENCE_S)}
    late, birth = max(births.items(), key=lambda one: one[1].offset - json.loads(one[1].value)["as_of"])
    assert json.loads(birth.value)["as_of"] < birth.offset - 1, "they were created one by one"
    others = births.keys() - {late}
    for job in others:
        rig.system.api.post(f"/jobs/{job}/cancel", json={})
    for job in others:
        rig.system.wait_sealed(job, PATIENCE_S)
    return home_of(rig, late), Beside(late, jobs[late])
