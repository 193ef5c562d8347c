"""Restart works from any prefix: who starts there, from checkpoints or not, decides as one who lived through it.

Looked at when a run is over, on its history, with processes of their own: it changes nothing of the run.
"""

import random
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from aetheris.planner.core.behind import Behinds
from aetheris.planner.core.decisions import Append, Behind, IndexUpdate, NodesRequest, Output
from aetheris.planner.core.partition import Partition as PlannerPartition
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.provenance import Standing
from aetheris.protocol.messages.commands import JobBehind, JobIndexEntry
from aetheris.protocol.messages.events import TERMINAL, BirthRepeated, JobCreated, JobStopping, ToolInvocationStarted
from aetheris.runtime.keys.records import RecordKeys
from aetheris.testkit.simulation.actors.ledger import SimulatedLedger
from aetheris.testkit.simulation.checks import Broken
from aetheris.testkit.simulation.installation import SimRecords
from aetheris.testkit.simulation.log import Entry, SimLog
from aetheris.testkit.simulation.restored import Prefix, check_restored
from aetheris.testkit.simulation.scenario import Scenario

Known = tuple[dict[str, JobIndexEntry], dict[str, JobBehind]]
"""The table of jobs.index, as far as it was read."""

Node = tuple[str, str]
"""job_id, node_id"""

REQUEST = "request"
LINE, BEHIND = TABLE = "line", "behind"
_ENDS = frozenset(event.event_type for event in TERMINAL)


@dataclass(frozen=True, slots=True, order=True)
class Word:
    """Something decided, less what depends on when it was."""

    kind: str
    job_id: str
    text: str
    """Of an event and of a line: all of it; of a request: its node and the revision."""


@dataclass(slots=True)
class ShadowPlanner:
    """A planner beside the run, which writes nothing but its own table."""

    known: Known
    records: SimRecords
    core: PlannerPartition = field(init=False)
    births_in_vain: set[int] = field(default_factory=set[int])
    """The offsets of births that are void by where they lie, to who does not know their jobs."""

    def __post_init__(self) -> None:
        lines, behind = self.known
        self.core = PlannerPartition(
            lines.get, behind=Behinds(lambda job_id: behind[job_id].stretches if job_id in behind else ())
        )

    def fold(self, entries: Iterable[Entry]) -> None:
        """As the real edge does, in its restart and behind it."""
        for entry in entries:
            standing = self.records.judge(entry)
            if standing is Standing.COUNTS:
                self.core.evolve(entry)
            elif standing is Standing.UNKNOWN_ROOT:
                self.core.needs_upgrade(entry.body.job_id, entry.record.offset)
            elif isinstance(entry.body, JobCreated):
                self.births_in_vain.add(entry.record.offset)
            self.core.lies(entry.body.job_id, entry.record.offset)

    def said(self, outputs: Iterable[Output]) -> list[Word]:
        """What these outputs come to; lines are in the table at once."""
        return [word for output in outputs for word in self._words(output)]

    def _words(self, output: Output) -> Iterator[Word]:
        match output:
            case Append():
                for one in output.facts:
                    id_ = event_id(one.event.job_id, one.event.event_type, *one.cause)
                    yield Word(one.event.event_type, one.event.job_id, f"{id_} {one.event.model_dump_json()}")
            case NodesRequest(body=body):
                yield Word(REQUEST, body.job_id, f"{body.nodes[0]} {body.revision}")
            case IndexUpdate(entry=entry):
                self.known[0][entry.job_id] = entry
                yield Word(LINE, entry.job_id, entry.model_dump_json())
            case Behind(entry=entry):
                self.known[1][entry.of_job] = entry
                yield Word(BEHIND, entry.of_job, entry.model_dump_json())
            case _:
                raise TypeError("results of the simulation are small: nothing is loaded")


@dataclass(slots=True)
class Lived:
    """A planner's whole life over a history, which decides behind every record."""

    entries: Sequence[Entry]
    keys: RecordKeys
    said: list[list[Word]] = field(default_factory=list[list[Word]])
    """By record."""
    known: list[Known] = field(default_factory=list[Known])
    """By prefix, as `live`."""
    live: list[list[tuple[str, int]]] = field(default_factory=list[list[tuple[str, int]]])

    @classmethod
    def through(cls, entries: Sequence[Entry], keys: RecordKeys) -> "Lived":
        """From the first record to the last."""
        life, planner = cls(entries, keys), ShadowPlanner(({}, {}), SimRecords(keys))
        for entry in entries:
            life._remember(planner)
            planner.fold((entry,))
            life.said.append(planner.said(planner.core.decide()))
        life._remember(planner)
        return life

    def _remember(self, planner: ShadowPlanner) -> None:
        lines, behind = planner.known
        self.known.append((dict(lines), dict(behind)))
        self.live.append(list(planner.core.live()))


@dataclass(frozen=True, slots=True)
class Restart:
    """Of a planner, at a prefix of a history that another has lived through."""

    life: Lived
    prefix: int
    mark: int
    """Below it lies only what checkpoints hold of the jobs that live there."""
    seen: int
    """The prefix whose lines of the index have been read at the start."""

    def __str__(self) -> str:
        return f"a planner from {self.prefix}, with checkpoints up to {self.mark},"

    def lived(self) -> tuple[list[Word], list[Word], Container[int]]:
        """What it says at its start, and from there to the end of the history; the births that it finds void."""
        life = self.life
        lines, behind = life.known[self.seen]
        planner = ShadowPlanner((dict(lines), dict(behind)), SimRecords(life.keys))
        for job_id, creation_offset in sorted(life.live[self.mark], key=lambda one: one[1]):
            below = life.entries[creation_offset : self.mark]
            planner.fold(entry for entry in below if entry.body.job_id == job_id)
        planner.fold(life.entries[self.mark : self.prefix])
        first, later = planner.said(planner.core.recover()), list[Word]()
        for entry in life.entries[self.prefix :]:
            planner.fold((entry,))
            later += planner.said(planner.core.decide())
        return first, later, planner.births_in_vain

    def check(self, called: Container[str]) -> None:
        """It says nothing else than one who lived through it, and all that was still to be said.

        Raises:
            Broken: it does not.
        """
        first, later, in_vain = self.lived()
        own, before, after = {*first, *later}, self.before(), self._after()
        ending = {word.job_id for word in before if word.kind in _ENDS}
        for word in sorted(own.difference(before, after)):
            # who has written the end of a job passes over what comes in before it
            if word.job_id not in ending:
                raise Broken("a_restart_says_nothing_else", f"{self} says {word}")
        for word in sorted({*self._after(in_vain)} - own | {*self._under_way(in_vain)} - {*first}):
            raise Broken("a_restart_says_all", f"{self} does not say {word}")
        for node in sorted(self._unanswered(before, called) - _requested(own)):
            raise Broken("a_restart_says_all", f"{self} does not request {node}")

    def before(self) -> list[Word]:
        """What the other had said there."""
        return [word for words in self.life.said[: self.prefix] for word in words]

    def _after(self, in_vain: Container[int] = ()) -> list[Word]:
        return [word for place in range(self.prefix, len(self.life.said)) for word in self._needed(place, in_vain)]

    def _under_way(self, in_vain: Container[int]) -> Iterator[Word]:
        """What had been said of each job behind the last that lies there of it: nothing of that is in the log."""
        last = {entry.body.job_id: place for place, entry in enumerate(self.life.entries[: self.prefix])}
        for job_id, place in last.items():
            words = self._needed(place, in_vain)
            yield from (one for one in words if one.job_id == job_id and one.kind not in TABLE)

    def _needed(self, place: int, in_vain: Container[int]) -> Iterator[Word]:
        """What was said behind a record; a birth that is void where it lies is none to anybody, and needs no word."""
        is_void = self.life.entries[place].record.offset in in_vain
        return (one for one in self.life.said[place] if not (is_void and one.kind == BirthRepeated.event_type))

    def _unanswered(self, before: Iterable[Word], called: Container[str]) -> set[Node]:
        """Requests that had been made, and of which nothing had come; a call did later."""
        stopped = {word.job_id for word in before if word.kind == JobStopping.event_type}
        touched = {
            (entry.body.job_id, getattr(entry.body, "node_id", "")) for entry in self.life.entries[: self.prefix]
        }
        later = (entry.body for entry in self.life.entries[self.prefix :])
        starts = (
            event for event in later if isinstance(event, ToolInvocationStarted) and event.invocation_id in called
        )
        return {(event.job_id, event.node_id) for event in starts if event.job_id not in stopped} & _requested(
            before
        ) - touched


def check_restarts(
    logs: Iterable[SimLog],
    scenario: Scenario,
    called: Container[str],
    *,
    seed: int,
    keys: RecordKeys,
    ledger: SimulatedLedger,
) -> None:
    """A planner that starts at a prefix, from its beginning and from checkpoints, and lives on to the end.

    What a ledger and an executor decide there. `called`: the invocation_ids of all calls that were made; `keys`: which
    roots they know; `ledger`: one that has read what is activated.

    Raises:
        Broken: one does not decide as another that lived through it.
    """
    draws = random.Random(seed)  # noqa: S311  it is no secret
    for log in logs:
        life = Lived.through(log.topics[Topic.JOBS_EVENTS], keys)
        for from_checkpoints in (False, True):
            prefix = draws.choice(log.wholes)
            mark = draws.choice([one for one in log.wholes if one <= prefix]) if from_checkpoints else 0
            Restart(life, prefix, mark, seen=draws.choice((mark, prefix))).check(called)
        reach = scenario.reach if keys.roots else 0
        check_restored(Prefix(log, prefix, mark, life.live[mark], keys, reach, ledger), scenario, draws)


def _requested(words: Iterable[Word]) -> set[Node]:
    return {(word.job_id, word.text.partition(" ")[0]) for word in words if word.kind == REQUEST}
