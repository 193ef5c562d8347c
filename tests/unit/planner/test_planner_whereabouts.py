"""A sealed job's line in jobs.index says where its records lie, and a row beside it where those behind its seal lie."""

import random

import pytest

from aetheris.planner.core.decisions import Behind, IndexUpdate
from aetheris.protocol.base.stretches import NEAR, in_order
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from tests.testkit.histories import JOB, finished, sealed
from tests.testkit.planners import PURE, Planner, events_of, ran, started_planner


def others(planner: Planner, count: int) -> None:
    """Other jobs' records, as far as they take up offsets."""
    for _ in range(count):
        planner.append(ev.SignalReceived(job_id="other", correlation_key="k"), "other")
    planner.folded = len(planner.surroundings.log)


def confirmed() -> ev.ViolationFound:
    """What no fold reads."""
    return ev.ViolationFound(job_id=JOB, rule="r", event_id="e", offset=0, message="m")


@pytest.fixture
def ended() -> Planner:
    """A job that has ended, with others' records between its beginning and its end."""
    planner = started_planner(PURE)
    others(planner, NEAR + 5)
    planner.happens(*ran("a"), *ran("b"))
    assert planner.surroundings.index[JOB].status == "completed"
    return planner


def test_a_job_that_is_not_sealed_says_nothing_of_it(ended: Planner) -> None:
    assert ended.surroundings.index[JOB].stretches == ()


def test_the_seal_is_the_last_record_that_is_told_and_all_of_them_are(ended: Planner) -> None:
    own = [at for at, event in enumerate(ended.surroundings.log) if event.job_id == JOB]
    ended.happens(sealed())
    seal = len(ended.surroundings.log) - 1
    reported = ended.surroundings.index[JOB].stretches
    assert reported == ((0, 2), (own[2], seal + 1))
    assert len(own) + 1 == sum(end - begin for begin, end in reported)
    assert list(ended.core.live()) == []


def test_what_comes_behind_the_seal_is_told_beside_the_line(ended: Planner) -> None:
    ended.happens(sealed())
    first = len(ended.surroundings.log)
    ended.take()
    ended.happens(confirmed())
    assert events_of(ended.take()) == [f"behind {((first, first + 1),)}"]
    others(ended, NEAR + 5)
    last = len(ended.surroundings.log)
    ended.happens(finished("a", "late"), confirmed())
    assert ended.surroundings.behind[JOB] == ((first, first + 1), (last, last + 2))
    assert not any(isinstance(output, IndexUpdate) for output in ended.take())


def test_what_comes_with_the_seal_in_one_round_is_told_too(ended: Planner) -> None:
    seal = len(ended.surroundings.log)
    ended.happens(sealed(), confirmed(), sealed())
    assert ended.surroundings.index[JOB].stretches[-1][1] == seal + 1
    assert ended.surroundings.behind[JOB] == ((seal + 1, seal + 3),)


def test_who_takes_over_tells_what_was_not_told_and_nothing_again(ended: Planner) -> None:
    surroundings = ended.surroundings
    ended.append(sealed(), "seal")
    ended.append(confirmed(), "behind")
    again = surroundings.planner().restore()
    sealed_at = len(surroundings.log) - 2
    assert surroundings.index[JOB].stretches[-1][1] == sealed_at + 1
    assert surroundings.behind[JOB] == ((sealed_at + 1, sealed_at + 2),)
    again.take()
    once_more = surroundings.planner().restore()
    assert [one for one in once_more.take() if isinstance(one, IndexUpdate | Behind)] == []
    once_more.happens(confirmed())
    assert surroundings.behind[JOB] == ((sealed_at + 1, sealed_at + 3),)


def test_the_line_is_known_before_the_table_shows_it(ended: Planner) -> None:
    """The table is read in pauses: what comes behind the seal meanwhile is not taken for a job without a seal."""
    before = ended.surroundings.index[JOB]
    ended.happens(sealed())
    seal = ended.surroundings.index[JOB].stretches[-1][1]
    ended.surroundings.index[JOB] = before
    ended.happens(confirmed())
    assert ended.surroundings.behind[JOB] == ((seal, seal + 1),)


def test_records_of_jobs_that_are_not_known_or_whose_line_says_nothing_are_left(ended: Planner) -> None:
    others(ended, 1)
    ended.core.lies("other", 7)
    ended.surroundings.index["other"] = ended.surroundings.index[JOB].model_copy(update={"job_id": "other"})
    ended.core.lies("other", 8)
    assert ended.core.decide() == []


def test_a_line_that_nobody_can_read_ends_no_planner(ended: Planner) -> None:
    def unread(_job_id: str) -> None:
        raise ValueError("no line")

    ended.core.indexed = unread
    ended.core.lies("strange", 10)
    assert "strange" not in ended.surroundings.behind


@pytest.mark.parametrize("seed", range(60))
def test_whatever_dies_and_when_every_record_lies_where_it_is_said_to(seed: int) -> None:
    """Planners die before and behind what they write; the job's records come among others', and behind its seal."""
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)  # noqa: S311  not for secrets
    planner = started_planner(PURE)
    surroundings = planner.surroundings
    todo = [*ran("a"), *ran("b"), sealed(), *(confirmed() for _ in range(chance.randrange(5)))]
    while todo or planner.folded < len(surroundings.log):
        step = chance.choice(("happens", "others", "dies", "dies unheard"))
        if step == "others":
            count = chance.choice((1, NEAR + 1))
            for _ in range(count):
                planner.append(ev.SignalReceived(job_id="other", correlation_key="k"), "other")
            planner.settle()
        elif step == "happens" and todo and (not isinstance(todo[0], ev.JobSealed) or has_ended(surroundings.log)):
            planner.happens(todo.pop(0))
        elif step == "dies":
            planner = surroundings.planner().restore()
        elif step == "dies unheard":
            planner.fold()
            planner.core.decide()  # and writes nothing of it
            planner = surroundings.planner().restore()
        else:
            planner.settle()
    own = [at for at, event in enumerate(surroundings.log) if event.job_id == JOB]
    seal = next(at for at, event in enumerate(surroundings.log) if isinstance(event, ev.JobSealed))
    told, behind = surroundings.index[JOB].stretches, surroundings.behind.get(JOB, ())
    assert (told[0][0], told[-1][1]) == (own[0], seal + 1)
    assert all(any(begin <= at < end for begin, end in told) for at in own if at <= seal)
    assert all(any(begin <= at < end for begin, end in behind) for at in own if at > seal)
    assert in_order(own[0], len(surroundings.log), (*told, *behind))


def has_ended(log: list[Event]) -> bool:
    return any(isinstance(event, ev.JobCompleted) for event in log)


def test_who_starts_behind_a_jobs_creation_tells_only_what_came_behind_its_seal(ended: Planner) -> None:
    """Its mark may lie anywhere between: the index knows where the seal is."""
    ended.happens(sealed())
    surroundings, first = ended.surroundings, len(ended.surroundings.log)
    started_in_the_middle = surroundings.planner()
    started_in_the_middle.folded = first - 3
    started_in_the_middle.restore()
    assert started_in_the_middle.take() == []
    started_in_the_middle.happens(confirmed())
    assert surroundings.behind[JOB] == ((first, first + 1),)
