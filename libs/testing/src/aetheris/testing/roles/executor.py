"""The executor's edge: declares, reads back, calls the tool itself, reports, or is killed."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import MAX_REMEMBERED, LifeWord, LifeWords
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import WorkerEntry
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import Kind
from aetheris.protocol.planning.invocation import Invocation
from aetheris.sdk.context import ToolContext
from aetheris.sdk.outcomes import InDoubt, Permanent, Retryable, Succeeded
from aetheris.sdk.outcomes import Outcome as Said
from aetheris.sdk.workflows.declaration import AnyWorkflow
from aetheris.sdk.workflows.local_calls import LocalFunction
from aetheris.testing.faults import Armed, FaultMoment
from aetheris.testing.roles.bodies import InMemoryBodies
from aetheris.testing.topics import Entry, TopicReader, Topics
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.partition import Partition, ReadBack
from aetheris.tool_executor.core.tries import CallRefusal, DeclaredInvocation, NodeReport, Worker
from aetheris.tool_executor.tool_calls import Calls
from aetheris.tool_executor.workflows import Workflows

_ELSEWHERE = cast("Any", None)
"""Who runs bodies in another process: nobody, they run here."""
UNREAD = (ev.CommandCommitted, ev.StateChanged, ev.NodeFinished)
"""As the real edge, it passes over what decides nothing about who may run."""


Made = Counter[tuple[str, str]]
"""(job_id, tool) → how often its function was called."""


class Killed(Exception):
    """A fault struck: this life of the executor has ended."""


class InMemoryExecutor:
    """One name, and one life after another: who is killed is replaced at once, and the log says that he has ended."""

    def __init__(
        self, topics: Topics, name: str, calls: Calls, faults: Armed, made: Made, *, workflows: Sequence[AnyWorkflow]
    ) -> None:
        self._topics = topics
        self._name = name
        self._calls = calls
        self._faults = faults
        self._made = made
        self._workflows = workflows
        self._known = Workflows()
        for one in workflows:
            self._known.add(_ELSEWHERE, one.registry_entry() | {"ref": one.ref})
        self.order: Callable[[list[ReadBack]], list[ReadBack]] = list
        """In which order calls come to their ends."""
        self._lived: list[LifeWords] = []
        self._start()

    def read(self) -> bool:
        """Fold, and take grants; False where there was nothing new. Who reads the same does not see the other act."""
        if not self._reader.has_more():
            return False
        for entry in self._reader.take(Topic.JOBS_EVENTS):
            reported = self._evolve(entry)
            if reported is not None:
                self._returned.append(reported)
        for entry in self._reader.take(Topic.TOOLS_GRANTS):
            self._core.receive(ReceivedGrant(entry.body, entry.id, entry.record.offset))
        for failure in self._core.unjudged.take():
            raise failure.error
        return True

    async def act(self) -> None:
        """Declare what was granted, make the calls whose declaration has come back and won."""
        while (taken := self._core.next_grant()) is not None:
            self._take_up(taken)
        try:
            self._returned = self.order(self._returned)
            while self._returned:
                await self._clear(self._returned.pop(0))
            self._bodies.act()
        except Killed:
            self._start()

    def runs(self, key: str) -> bool:
        """Whether it runs a workflow under this key."""
        return self._bodies.runs(key)

    def local(self, ctx: ToolContext) -> LocalFunction | None:
        """What makes a call, where a body here has asked for it as one of its own functions."""
        return self._bodies.local(ctx.job_id, ctx.node_id)

    def bodies_fall_asleep(self) -> bool:
        """Let go of those that only wait; whether there were any."""
        return self._bodies.fall_asleep()

    def lose_bodies(self) -> None:
        """The process of the workflows' bodies dies."""
        self._bodies.lose()

    def _start(self) -> None:
        """A life that knows nothing but the log, and what its lock says of those before it."""
        words = LifeWords.of(self._topics.fresh_secret())
        life = words.incarnation
        self._returned: list[ReadBack] = []
        worker = Worker(self._name, life)
        self._core = Partition(worker, self._refuses, self._calls.kind, code_of=self._known.code)
        self._bodies = InMemoryBodies(self._topics, self._core, self._workflows, self._append)
        self._reader = TopicReader(self._topics, (Topic.JOBS_EVENTS, Topic.TOOLS_GRANTS))
        for entry in self._reader.take(Topic.JOBS_EVENTS):
            self._evolve(entry)
        ended = tuple(one.word(LifeWord.ENDED) for one in self._lived)[-MAX_REMEMBERED:]
        self._lived.append(words)
        entry = WorkerEntry(worker_id=self._name, live=life, ended=ended)
        self._topics.append(Topic.WORKERS, (self._topics.fresh("worker"), entry))

    def _refuses(self, call: Invocation) -> CallRefusal | None:
        return (self._known if call.entry.node.kind is Kind.WORKFLOW else self._calls).refuses(call)

    def _evolve(self, entry: Entry) -> ReadBack | None:
        if isinstance(entry.body, UNREAD):
            self._core.pass_over(entry.record.offset)
            return None
        return self._core.evolve(entry.body, entry.record.offset)

    def _take_up(self, taken: ReceivedGrant) -> None:
        verdict = self._core.judge(taken, self._topics.fresh_secret(), self._topics.blobs)
        if isinstance(verdict, DeclaredInvocation):
            self._append([verdict.started])
            if verdict.refusal is not None:
                self._append([reports.refused(verdict, verdict.refusal)])
        self._core.discharge(taken)

    async def _clear(self, reported: ReadBack) -> None:
        """Call what won, unless something that was read with it forbids that."""
        reason = self._core.why_not(reported.invocation) if reported.won else None
        if reason is not None:
            self._append([reports.not_executed(reported.invocation.started, reported.invocation.words, reason)])
        elif reported.won and reported.invocation.call_words is not None:
            self._bodies.begin(reported.invocation)
        elif reported.won:
            await self._perform(reported.invocation)

    async def _perform(self, invocation: DeclaredInvocation) -> None:
        tool = invocation.started.tool_name
        if self._faults.strikes(FaultMoment.BEFORE_CALL, tool):
            raise Killed
        self._made[invocation.started.job_id, tool] += 1
        outcome = await self._calls.make(invocation.call, _context(invocation))
        if self._faults.strikes(FaultMoment.AFTER_CALL, tool):
            raise Killed
        if self._faults.strikes(FaultMoment.ANSWER, tool):
            outcome = InDoubt(ConnectionResetError.__name__, returned=True)
        events = _report(invocation, outcome)
        following = self._following(invocation, outcome)
        if following is None:
            self._append(events)
        else:
            self._core.claim(following)
            self._append(events, [following.started])

    def _following(self, invocation: DeclaredInvocation, reply: Said) -> DeclaredInvocation | None:
        """The next try of the run, with what this one returned."""
        if not isinstance(reply, Succeeded) or reply.partial:
            return None
        run = invocation.run
        run.reports[run.taken.grant.nodes[run.place]] = NodeReport(
            invocation.invocation_id, digest(reply.result), reply.result
        )
        found = self._core.follow(run, self._topics.fresh_secret(), self._topics.blobs)
        return found if isinstance(found, DeclaredInvocation) else None

    def _append(self, *parts: Sequence[Event]) -> None:
        """One group: what is said of one try, and perhaps of the next."""
        group = [
            (event_id(event.job_id, event.event_type, *reports.cause_of(events)), event)
            for events in parts
            for event in events
        ]
        self._topics.append(Topic.JOBS_EVENTS, *group)


def _context(invocation: DeclaredInvocation) -> ToolContext:
    started = invocation.started
    return ToolContext(
        external_key=started.external_key,
        attempt=started.attempt_id,
        idempotency_key=started.idempotency_key,
        job_id=started.job_id,
        node_id=started.node_id,
        deadline=math.inf,
    )


def _report(invocation: DeclaredInvocation, reply: Said) -> Sequence[Event]:
    match reply:
        case Succeeded():
            result = recordable.result(reply.result)[0]
            return reports.succeeded(invocation, reply, digest(result), result)
        case Retryable() | Permanent() | InDoubt():
            return (reports.unsuccessful(invocation, reply),)
