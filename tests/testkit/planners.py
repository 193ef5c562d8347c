"""Planners of one job that come and go, and what outlives them: the log and the index of jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aetheris.planner.core.behind import Behinds
from aetheris.planner.core.decisions import (
    Append,
    Behind,
    IndexUpdate,
    Look,
    NewEvent,
    NodesRequest,
    Output,
    Place,
    RefusedSubmission,
    SubmissionConflict,
)
from aetheris.planner.core.partition import Partition
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.stretches import Stretch
from aetheris.protocol.messages.commands import Cancel, JobIndexEntry, Submit
from aetheris.protocol.messages.envelope import Envelope
from aetheris.protocol.messages.events import Event
from tests.testkit.histories import JOB, TENANT, finished, graph, started

CHAIN = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c", "depends_on": ["b"]})
WIDE = graph({"id": "a"}, {"id": "b"}, {"id": "c", "depends_on": ["a", "b"]})
PURE = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}, act={"effect_class": "pure"})


def submit(plan: dict[str, Any] | None, request_hash: str = "r", job_id: str = JOB) -> Submit:
    return Submit(job_id=job_id, by="ann", tenant=TENANT, request_hash=request_hash, plan=plan)


def cancel(reason: str = "enough") -> Cancel:
    return Cancel(job_id=JOB, by="bob", tenant=TENANT, reason=reason)


@dataclass
class PlannerSurroundings:
    """A log and an index that outlive the planners on them."""

    log: list[Event] = field(default_factory=list[Event])
    ids: list[str] = field(default_factory=list[str])
    index: dict[str, JobIndexEntry] = field(default_factory=dict[str, JobIndexEntry])
    unreadable: set[int] = field(default_factory=set[int])
    behind: dict[str, tuple[Stretch, ...]] = field(default_factory=dict[str, tuple[Stretch, ...]])

    def planner(self, *, runs: bool = True) -> "Planner":
        return Planner(self, Partition(self.index.get, runs, Behinds(lambda job_id: self.behind.get(job_id, ()))))


SUBMITTED = 100
"""Where submissions lie in jobs.commands: behind what tests hold back."""


@dataclass
class Planner:
    surroundings: PlannerSurroundings
    core: Partition
    folded: int = 0
    outputs: list[Output] = field(default_factory=list[Output])

    def submit(
        self, command: Submit, command_id: str = "cmd-1"
    ) -> Append | Look | Place | SubmissionConflict | RefusedSubmission | None:
        decided = self.core.submit(command, command_id, SUBMITTED)
        if isinstance(decided, Append):
            self.write([decided])
        return decided

    def cancel(self, command: Cancel, command_id: str = "cmd-2", offset: int = 7) -> None:
        decided = self.core.cancel(command, command_id, offset)
        self.write([decided] if decided is not None else [])

    def happens(self, *events: Event) -> "Planner":
        """Others append, then the planner takes a round; its own events are folded in the rounds after."""
        for event in events:
            self.append(event, "other")
        return self.settle()

    def settle(self) -> "Planner":
        while self.folded < len(self.surroundings.log):
            self.round()
        return self

    def round(self) -> None:
        self.fold()
        self.write(self.core.decide())

    def fold(self) -> None:
        for offset in range(self.folded, len(self.surroundings.log)):
            event = self.surroundings.log[offset]
            if offset in self.surroundings.unreadable:
                self.core.needs_upgrade(event.job_id, offset)
            else:
                self.core.evolve(Envelope(self.surroundings.ids[offset], event, record(offset)))
            self.core.lies(event.job_id, offset)
        self.folded = len(self.surroundings.log)

    def restore(self) -> "Planner":
        self.fold()
        self.write(self.core.recover())
        return self.settle()

    def write(self, outputs: Sequence[Output]) -> None:
        self.outputs.extend(outputs)
        for output in outputs:
            if isinstance(output, Append):
                for one in output.facts:
                    self.append(one.event, id_of(one))
            elif isinstance(output, IndexUpdate):
                self.surroundings.index[output.entry.job_id] = output.entry
            elif isinstance(output, Behind):
                self.surroundings.behind[output.entry.of_job] = output.entry.stretches

    def append(self, event: Event, id_: str) -> None:
        self.surroundings.log.append(event)
        self.surroundings.ids.append(id_)

    def take(self) -> list[Output]:
        """What was put out since the last call."""
        found, self.outputs = self.outputs, []
        return found


def record(offset: int) -> Record:
    headers = (("ce_time", b"2026-01-01T00:00:00Z"),)
    return Record("t", 0, offset, 0, JOB.encode(), headers, b"")


def id_of(one: NewEvent) -> str:
    return event_id(one.event.job_id, one.event.event_type, *one.cause)


def events_of(outputs: Sequence[Output]) -> list[Any]:
    """Outputs in short: event types with their node, requests as tuples of nodes, index lines by status."""
    found: list[Any] = []
    for output in outputs:
        if isinstance(output, Append):
            found.extend(
                f"{one.event.event_type} {getattr(one.event, 'node_id', None) or ''}".strip() for one in output.facts
            )
        elif isinstance(output, NodesRequest):
            found.append(output.body.nodes)
        elif isinstance(output, IndexUpdate):
            found.append(f"index {output.entry.status}{' sealed' if output.entry.stretches else ''}")
        elif isinstance(output, Behind):
            found.append(f"behind {output.entry.stretches}")
    return found


def requests(outputs: Sequence[Output]) -> list[NodesRequest]:
    return [output for output in outputs if isinstance(output, NodesRequest)]


def of_type(surroundings: PlannerSurroundings, kind: type[Any]) -> list[Any]:
    return [event for event in surroundings.log if isinstance(event, kind)]


def started_planner(plan: dict[str, Any], *, runs: bool = True) -> Planner:
    planner = PlannerSurroundings().planner(runs=runs)
    planner.submit(submit(plan))
    planner.settle()
    return planner


def ran(node: str, invocation_id: str = "", **fields: Any) -> tuple[Event, Event]:
    invocation_id = invocation_id or f"nonce-{node}"
    args = fields.pop("args", None)
    return started(node, invocation_id, args=args), finished(node, invocation_id, args=args, **fields)
