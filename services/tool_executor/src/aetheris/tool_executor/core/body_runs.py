"""One body as its executor keeps to the rules: what it has asked for, was told, and may plan next; pure.

(docs/guarantees.md, "Calls of a body".) What a body says is its code's word, and nothing of it is believed: what the
fold would not count is not planned, and what it does not count stops the body.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any

from pydantic import ValidationError

from aetheris.protocol.base.child_ids import frontier, weight
from aetheris.protocol.fold.bodies import body_in_charge, has_open_calls
from aetheris.protocol.fold.child_calls import may_replan, only_reads, refers_well
from aetheris.protocol.fold.start import is_stopped
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import After, CodeVersion
from aetheris.protocol.plan.graph import LOCAL_TOOLS, Node
from aetheris.protocol.planning.invocation import Invocation
from aetheris.tool_executor.core.tries import DeclaredInvocation


class Stop(StrEnum):
    """Why a body must not go on, although its code would."""

    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    REVOKED = "revoked"
    DIVERGED = "diverged"
    ASLEEP = "asleep"
    """It has waited for long: it is begun anew when one of the calls that it waits for has settled."""
    LOST = "lost"
    """Its process has died, or it was told what the log does not say: it begins anew from the log."""


DOUBTS = frozenset({Stop.DIVERGED, Stop.LOST})
"""Stops that are no end: the ledger decides what becomes of the body."""
MOST_ENDS = 100
"""So often an end is written that was void because a call had begun before it."""


class EndStep(Enum):
    """What is to be done next about a body's end."""

    WAIT = auto()
    """It has none, or something must be read first."""
    STOP = auto()
    """That it was stopped is to be written; then it is over."""
    END = auto()
    """What its code has come to is to be written."""
    OVER = auto()
    """Nothing more."""


@dataclass(frozen=True, slots=True)
class BodyOutcome:
    """How a body ended: by itself, with a result or an error, or it was stopped."""

    result: Any = None
    error: str | None = None
    stop: Stop | None = None
    reason: str | None = None
    """Of a stop, for people."""
    until: tuple[str, ...] = ()
    """Of one that sleeps: the calls that it waits for."""
    evidence: Mapping[str, Any] | None = None
    """Of one that has diverged: what of its calls, and which code."""


USED_UP = BodyOutcome(stop=Stop.REVOKED, reason="it has planned as many calls as one body can")
"""The next one has more words."""


@dataclass(slots=True)
class _Told:
    """Results that the body was told and that were not read back: (invocation_id, result_hash) by node."""

    early: dict[str, After] = field(default_factory=dict[str, After])
    all: set[str] = field(default_factory=set[str])


class RunningBody:
    """A body that runs: the try of its node, and what must be asked for first."""

    def __init__(
        self, invocation: DeclaredInvocation, expected: Iterable[str], recorded_code: CodeVersion | None
    ) -> None:
        """`expected`: as the fold has it right behind its start; `recorded_code`: what ran before, if anything did."""
        self.invocation = invocation
        self.licence: Mapping[str, str] = invocation.run.taken.grant.licence or {}
        self.over: BodyOutcome | None = None
        self.news: list[str] = []
        """Calls that have settled in the log, in its order, and that the body is to be told."""
        self.end_is_read = False
        """Whether what it came to has come back in the log, counted or not."""
        self._ends_written = 0
        """How often that was written: it is void while a call of it is under way."""
        self._awaits_end = False
        """It is written, and not read back."""
        self._expected = frozenset(expected)
        self._unasked = set(self._expected)
        self._recorded_code = recorded_code
        self._asked: dict[str, Node] = {}
        self._unread_results: set[str] = set()
        """Calls whose results its code hands on, and is not told."""
        self._from_log: set[str] = set()
        """Calls of which it is told nothing before the log has it."""
        self._wanted: dict[str, Node] = {}
        self._reads: set[str] = set()
        """Of the wanted, those that only read: they wait for nothing."""
        self._awaited: frozenset[str] = frozenset()
        self._planned: dict[str, Node] = {}
        """What it has planned, and was not read back."""
        self._words = 0
        self._unread: set[str] = set()
        """The words of its records that were not read back."""
        self._has_said = False
        """That it has asked for what was recorded."""
        self._told = _Told()

    @property
    def parent(self) -> str:
        """Its node."""
        return self.invocation.started.node_id

    @property
    def invocation_id(self) -> str:
        """Its name."""
        return self.invocation.invocation_id

    @property
    def frontier(self) -> str:
        """What it says of having asked for what was recorded."""
        return frontier(sum(map(weight, self._expected)))

    def asks(
        self, job: JobState, said: Mapping[str, Any], *, by_reference: bool = False, from_log: bool = False
    ) -> None:
        """The body makes a call: a node of a plan; whether it is recorded already, is found out here.

        `by_reference`: it is told that the call has succeeded, and not what came of it; `from_log`: nothing before
        the log has it.
        """
        if self.over is not None:
            return
        self._awaited = frozenset()
        try:
            node = Node.model_validate(said)
        except ValidationError:
            self._end(BodyOutcome(error="InvalidCall: it is no node of a plan"))
            return
        if by_reference:
            self._unread_results.add(node.id)
        if from_log:
            self._from_log.add(node.id)
        before = self._asked.setdefault(node.id, node)
        if before != node:
            self._diverge(changed=node.id)
        elif node.id not in self._wanted and node.id not in self._planned:
            self._unasked.discard(node.id)
            self._compare(job, node)

    def idles(self, awaited: Iterable[str]) -> None:
        """It waits for these; nothing that it was told is left to think about."""
        if self.over is not None:
            return
        self._awaited = frozenset(awaited)
        if self._unasked and self._wanted.keys() - self._reads and not self.news:
            self._diverge()

    def sleeps(self) -> None:
        """It has waited for long enough, if it still only waits, and the log has all that it has said."""
        is_still = not (self._wanted or self._planned or self.news or self._told.early or self._makes_some())
        if self._awaited and is_still and self.over is None:
            self._end(BodyOutcome(stop=Stop.ASLEEP, until=tuple(sorted(self._awaited))))

    def ends(self, end: BodyOutcome) -> None:
        """Its code has ended; not before it has asked for what is recorded."""
        if self._unasked and end.stop is None and self.over is None:
            self._diverge()
        else:
            self._end(end)

    def due(self) -> list[Node]:
        """What it may plan now, in the order in which it asked; each is given once."""
        if self.over is not None:
            return []
        found = {name: one for name, one in self._wanted.items() if not self._unasked or name in self._reads}
        self._planned |= found
        for name in found:
            del self._wanted[name]
        return list(found.values())

    def reads(self, node_id: str) -> bool:
        """Whether its code is told what came of a call."""
        return node_id not in self._unread_results

    def refused(self, node_id: str, why: str) -> None:
        """A call of it can't be planned."""
        self._end(BodyOutcome(error=f"CallRefused: {node_id}: {why}"))

    def planned(self, job: JobState, node: Node, call: Invocation | None = None) -> ev.CallPlanned:
        """The record by which it plans a call; built on all that it was told and that was not read back.

        `call`: of a node that refers to results, what it makes with them.

        Raises:
            IndexError: it has planned as many as a body can.
        """
        words = self.invocation.call_words
        if words is None:
            raise IndexError("it has no words")
        word = words.word(self._words)
        event = ev.CallPlanned(
            job_id=job.job_id,
            node_id=node.id,
            parent=self.parent,
            invocation_id=self.invocation_id,
            entry={"kind": node.kind.value} | node.model_dump(mode="json", exclude_defaults=True),
            word=word,
            after=tuple(self._told.early.values()),
            call_key=call.key if call is not None and node.references else None,
            args_hash=call.args_hash if call is not None and node.references else None,
            frontier=self.said_frontier,
        )
        self._words += 1
        self._unread.add(word)
        self._has_said = self._has_said or not self._unasked
        return event

    @property
    def said_frontier(self) -> str | None:
        """What its next record must say: once it has asked for all, and has not said so."""
        return None if self._unasked or self._has_said else self.frontier

    def may_be_told_early(self, node_id: str) -> bool:
        """Whether a result may reach it before the log has it: it waits for nothing else.

        What it hands on unread must be in the log first: whoever is given it reads it there.
        """
        is_next = self._awaited == frozenset((node_id,)) and node_id not in self._told.all
        return self.over is None and is_next and self.reads(node_id) and node_id not in self._from_log

    def told_early(self, node_id: str, after: After) -> None:
        """It is told what is not in the log yet."""
        self._told.all.add(node_id)
        self._told.early[node_id] = after
        self._awaited = frozenset()

    def settled(self, node_id: str, state: KeyState) -> bool:
        """A call of its node has settled in the log; whether the body is to be told."""
        early = self._told.early.pop(node_id, None)
        if early is not None:
            said = (state.outcome, state.settled_by, state.result_hash, state.partial)
            if said != (Settled.SUCCESS, early.invocation_id, early.result_hash, False):
                self._end(BodyOutcome(stop=Stop.LOST))
            return False
        if node_id in self._told.all:
            return False
        self._told.all.add(node_id)
        return True

    def read_back(self, job: JobState, event: ev.CallPlanned, *, counts: bool) -> None:
        """Its own record has come back in the log; a copy of one that has is void, and says nothing of it."""
        if event.word not in self._unread:
            self.look(job)
            return
        self._unread.remove(event.word)
        self._planned.pop(event.node_id, None)
        if counts:
            return
        self.look(job)
        if event.after or (self._was_overtaken(job, event) and event.frontier is not None):
            self._end(BodyOutcome(stop=Stop.LOST))
        elif not self._was_overtaken(job, event):
            self._end(BodyOutcome(error=f"CallRefused: {event.node_id}"))

    def _was_overtaken(self, job: JobState, event: ev.CallPlanned) -> bool:
        """Whether just this call was begun, or refused, before the record by which it was planned anew."""
        entry = job.entry(event.node_id)
        call = entry.call if entry is not None else None
        if entry is None or call is None or call.parent != self.parent or call.planned != event.node:
            return False
        return not may_replan(job, entry, event.node)

    def look(self, job: JobState) -> None:
        """Whether it may still go on, as the log stands."""
        entry = job.entry(self.parent)
        if job.terminal is not None or entry is None or is_stopped(job, entry):
            self._end(BodyOutcome(stop=Stop.CANCELLED))
        elif body_in_charge(job, self.parent, self.invocation_id) is None:
            self._end(BodyOutcome(stop=Stop.SUPERSEDED))
        elif job.needs_upgrade:
            self._end(BodyOutcome(stop=Stop.REVOKED))

    def may_report(self, job: JobState) -> bool:
        """Whether its end may be written: what it was told is in the log, and none of its calls is under way."""
        if self.over is None:
            return False
        return self.over.stop is not None or not (self._told.early or has_open_calls(job, self.parent))

    def end_step(self, job: JobState | None, *, closing: bool) -> EndStep:
        """What is to be done now about its end; `closing`: its partition is given back. What is named is to be done."""
        while self.over is not None:
            if job is None or self._is_settled_by_it(job):
                return EndStep.OVER
            if not self.may_report(job):
                return EndStep.WAIT
            if self._awaits_end and not self.end_is_read:
                return EndStep.OVER if closing else EndStep.WAIT  # whether it counts, the log says
            if self.over.stop is not None:  # one try does not report two ends
                return EndStep.OVER if self._ends_written and self.over.stop not in DOUBTS else EndStep.STOP
            if not self.end_is_read and self._ends_written < MOST_ENDS:
                self._ends_written, self._awaits_end = self._ends_written + 1, True
                return EndStep.END
            if self.end_is_read:
                self.look(job)  # it was void: a call has begun, or another body has
                self.end_is_read, self._awaits_end = False, False
            else:
                self._end(BodyOutcome(stop=Stop.LOST, reason="its end does not count"))
        return EndStep.WAIT

    def end_was_refused(self) -> None:
        """What it has come to can't be written."""
        self._awaits_end = False
        self._end(BodyOutcome(stop=Stop.LOST, reason="its end can't be written"))

    def _is_settled_by_it(self, job: JobState) -> bool:
        state = job.keys[self.invocation.started.idempotency_key]
        return state.status is KeyStatus.SETTLED and state.settled_by == self.invocation_id

    def _makes_some(self) -> bool:
        """Whether it waits for what its own code is to make: that needs it here."""
        return any(self._asked[one].tool in LOCAL_TOOLS for one in self._awaited if one in self._asked)

    def _compare(self, job: JobState, node: Node) -> None:
        """With what is recorded under this id."""
        entry = job.entry(node.id)
        if entry is None:
            self._want(job, node)
        elif entry.call is None or entry.call.parent != self.parent:
            self._end(BodyOutcome(error=f"CallRefused: {node.id} is another node's"))
        elif may_replan(job, entry, node):
            self._want(job, node)
        elif entry.call.planned != node:
            self._diverge(changed=node.id)

    def _want(self, job: JobState, node: Node) -> None:
        wrong = next((one for one in node.references if not refers_well(job, self.parent, node, one)), None)
        if wrong is not None:
            self.refused(node.id, f"it can't be given {wrong.target}")
            return
        self._wanted[node.id] = node
        if job.bodies is not None and only_reads(job.bodies, node):
            self._reads.add(node.id)

    def _diverge(self, changed: str | None = None) -> None:
        code = self.invocation.started.code
        evidence: dict[str, Any] = {
            "unasked": sorted(self._unasked),
            "held": sorted(self._wanted.keys() - self._reads),
            "changed": changed,
            "recorded_code": None if self._recorded_code is None else self._recorded_code.model_dump(mode="json"),
            "code": None if code is None else code.model_dump(mode="json"),
        }
        self._end(
            BodyOutcome(stop=Stop.DIVERGED, evidence={name: one for name, one in evidence.items() if one is not None})
        )

    def _end(self, end: BodyOutcome) -> None:
        """The first word stands, but that a stop goes before what its code has come to."""
        if self.over is None or (self.over.stop is None and end.stop is not None):
            self.over = end
