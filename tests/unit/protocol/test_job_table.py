"""Jobs at rest: they come back as they were, whatever happened meanwhile, and cost little."""

import tracemalloc
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.job_table import QUIET, JobTable
from aetheris.protocol.fold.state import JobState, create_job
from tests.testkit.histories import created


@dataclass
class SmallJob:
    """As small as a job may be."""

    name: str
    birth: int
    may_rest: bool = True
    seen: list[Any] = field(default_factory=list)


def table_of(count: int) -> JobTable[SmallJob, str]:
    table: JobTable[SmallJob, str] = JobTable(lambda job: job.birth, lambda job: job.may_rest, lambda job: job.name)
    for number in range(count):
        table[f"job-{number}"] = SmallJob(f"name {number}", 10 * number)
    return table


def rested(table: JobTable[Any, Any]) -> None:
    for _ in range(QUIET + 1 + len(table) // 80):
        table.rest()


def test_who_rests_comes_back_as_it_was_and_in_its_place() -> None:
    table = table_of(3)
    table["job-1"].seen.append({"what": ["was", 1, None]})
    rested(table)
    assert (table.at_rest, len(table), list(table)) == (3, 3, ["job-0", "job-1", "job-2"])
    assert list(table.births()) == [("job-0", 0), ("job-1", 10), ("job-2", 20)]
    assert dict(table.briefs())["job-2"] == "name 2"
    assert table.at_rest == 3, "nobody was woken for that"
    assert table["job-1"] == SmallJob("name 1", 10, True, [{"what": ["was", 1, None]}])
    assert (table.at_rest, [job.name for job in table.awake()]) == (2, ["name 1"])
    assert table["job-1"] is table["job-1"], "and is one, as long as it is awake"


def test_what_was_changed_since_it_woke_is_there_when_it_wakes_again() -> None:
    table = table_of(1)
    for number in range(3):
        rested(table)
        assert table.at_rest == 1
        table["job-0"].seen.append(number)
    rested(table)
    assert table["job-0"].seen == [0, 1, 2]


def test_who_is_asked_for_or_may_not_stays_awake() -> None:
    table = table_of(3)
    table["job-0"].may_rest = False
    for _ in range(3 * QUIET):
        table.rest()
        table.get("job-1")
    assert [job.name for job in table.awake()] == ["name 0", "name 1"]
    table["job-0"].may_rest = True
    rested(table)
    assert table.at_rest == 3


def test_one_that_is_forgotten_is_gone_and_may_come_anew() -> None:
    table = table_of(2)
    rested(table)
    del table["job-0"]
    assert (table.get("job-0"), "job-0" in table, len(table), table.at_rest) == (None, False, 1, 1)
    table["job-0"] = SmallJob("another", 50)
    rested(table)
    assert [name for _, name in table.briefs()] == ["name 1", "another"]


def test_what_is_done_to_all_is_done_once_to_each_in_turn_before_anybody_has_it() -> None:
    table = table_of(2)
    rested(table)
    table["job-1"].seen.append("woken")
    for number in range(2):
        table.tell_all(lambda job, number=number: job.seen.append(number))
    assert table["job-1"].seen == ["woken", 0, 1]
    table["job-2"] = SmallJob("born later", 90)
    rested(table)
    table.tell_all(lambda job: job.seen.append("last"))
    assert [table[job_id].seen for job_id in table] == [[0, 1, "last"], ["woken", 0, 1, "last"], ["last"]]
    rested(table)
    assert table["job-0"].seen == [0, 1, "last"]


def test_what_can_t_be_packed_stays_as_it_is() -> None:
    table = table_of(2)
    table["job-0"].seen.append(lambda: None)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    table["job-1"].seen.append(deep)
    rested(table)
    assert table.at_rest == 0
    assert [job.name for job in table.awake()] == ["name 0", "name 1"]


def test_a_pause_packs_a_few_so_that_others_have_their_turn() -> None:
    table = table_of(1000)
    for _ in range(QUIET):
        table.rest()
    assert table.at_rest == 0
    packed = []
    for _ in range(13):
        before = table.at_rest
        table.rest()
        packed.append(table.at_rest - before)
    assert max(packed) <= 80
    assert table.at_rest == 1000


def test_jobs_that_are_alike_cost_little() -> None:
    table: JobTable[JobState, None] = JobTable(lambda job: job.creation_offset, lambda _: True, lambda _: None)
    count = 400
    tracemalloc.start()
    try:
        for number in range(count):
            job = create_job(created().model_copy(update={"job_id": f"job-{number}"}), number)
            for node in range(8):
                job.key(f"{number:032x}{node:032x}", f"a-node-of-some-name-{node}").result = {"text": f"{number} " * 20}
            table[f"job-{number}"] = job
        awake = tracemalloc.get_traced_memory()[0] / count
        before = {job_id: str(table[job_id]) for job_id in table}
        so_far = tracemalloc.get_traced_memory()[0]
        rested(table)
        asleep = awake + (tracemalloc.get_traced_memory()[0] - so_far) / count
    finally:
        tracemalloc.stop()
    assert table.at_rest == count
    assert awake > 6000
    assert asleep < 2000
    assert {job_id: str(table[job_id]) for job_id in table} == before


def test_history_is_read_with_few_awake_and_each_is_gone_through_in_turn() -> None:
    table = table_of(50)
    table.rest_on_the_way(0)
    assert table.at_rest == 0, "so few may all be awake"
    table.rest_on_the_way(0, above=10)
    assert (table.at_rest, table.resting.jobs) == (50, 50)
    del table["job-7"]
    seen = []
    for job in table.each():
        seen.append(job.name)
        job.seen.append("visited")
        assert len(list(table.awake())) == 1
        if job.name == "name 3":
            del table["job-3"]
            del table["job-4"]
        if job.name == "name 5":
            job.may_rest = False
            break
    assert seen == ["name 0", "name 1", "name 2", "name 3", "name 5"]
    assert [job.name for job in table.awake()] == ["name 5"]
    assert table["job-1"].seen == ["visited"]


def test_what_they_take_is_counted_whatever_becomes_of_them() -> None:
    table = table_of(3)
    table.rest_on_the_way(0, above=0)
    before = table.resting.packed
    assert before > 0
    table.get("job-0")
    del table["job-1"]
    table["job-2"] = SmallJob("another", 99)
    assert table.resting == (0, 0)
    table.rest_on_the_way(0, above=0)
    assert table.resting.jobs == 2


def test_who_looks_at_one_that_rests_wakes_nobody_and_sees_it_as_it_would_be() -> None:
    table = table_of(3)
    table.rest_on_the_way(0, above=0)
    table.get("job-1")
    table.tell_all(lambda job: job.seen.append("told"))
    seen = [one if isinstance(one, str) else one.seen for one in table.survey()]
    assert seen == ["name 0", ["told"], "name 2"]
    looked = [table.peek(f"job-{number}") for number in range(4)]
    assert [one.seen if one is not None else None for one in looked] == [["told"]] * 3 + [None]
    assert (table.at_rest, table["job-0"].seen) == (2, ["told"])
