"""How much others say of a name: a line costs what it is long, and lives that somebody makes up fill nothing."""

from aetheris.protocol.base.words import MAX_REMEMBERED
from aetheris.protocol.fold.workers import MAX_LIVES, Name
from aetheris.protocol.messages.commands import WorkerEntry
from tests.testkit.lives import ended_word, incarnation_of, left_word
from tests.unit.tool_executor.test_worker_names import NAME, end, entry, folded


class Hashed(str):
    """A word that counts how often any of them is looked up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        Hashed.lookups += 1
        return super().__hash__()


def invented(number: int) -> WorkerEntry:
    """A line of somebody else, as large as one may be, about lives that nobody has seen."""
    lives = [f"{number}-{one}" for one in range(2 * MAX_REMEMBERED)]
    left = tuple(Hashed(left_word(one)) for one in lives[:MAX_REMEMBERED])
    ended = tuple(Hashed(ended_word(one)) for one in lives[MAX_REMEMBERED:])
    return WorkerEntry.model_construct(worker_id=NAME, live=None, since=None, left=left, ended=ended)


def test_a_line_costs_what_it_is_long_however_many_lie_before_it() -> None:
    """Whoever lives under the name takes each, sees whether it hides an end, and answers."""
    name, costs = Name(), list[int]()
    name.take(WorkerEntry.model_validate_json(entry("a")))
    for number in range(20):
        line = invented(number)
        partly = line.model_copy(update={"ended": line.ended[:-1]})
        Hashed.lookups = 0
        name.take(line)
        assert name.hides(partly)
        answer = name.entry(NAME, name.live, name.since)
        costs.append(Hashed.lookups)
        assert (answer.left, answer.ended) == (line.left, line.ended)
    assert max(costs[2:]) == min(costs[2:])
    assert name.live == incarnation_of("a")


def test_words_about_lives_that_were_nobody_has_seen_fill_no_name() -> None:
    names, _ = folded(entry("a"), entry(None, left=["a"]), entry("b"))
    name = names[NAME]
    for number in range(2 * MAX_LIVES // (2 * MAX_REMEMBERED)):
        name.take(invented(number))
    assert len(name.left) + len(name.ended) == MAX_LIVES
    made_up = entry(None, "z", left=["y"])
    assert names.takes(made_up, entry("c", "a", "b")) == [False, True], "who lives, or has left, still ends"
    assert names.live == "c"
    assert len(name.left) + len(name.ended) == MAX_LIVES + 1
    assert not {incarnation_of("y"), incarnation_of("z")} & {*name.left, *name.ended}
    names.takes(end("c"))
    assert names.live is None
