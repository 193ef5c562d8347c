"""The ledger's edge: whether a call may run, what becomes of one in doubt, who is asked."""

import math
from collections.abc import Callable, Mapping, Sequence

from aetheris.ledger.core.decisions import Ask, Decision, Emit, Facts, Grant, Now
from aetheris.ledger.core.live_jobs import DecisionContext, WorkerLife
from aetheris.ledger.core.partition import Partition
from aetheris.ledger.settings import LedgerSettings
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.workers import Ended, Names
from aetheris.protocol.messages.commands import RegistryEntry, StepCommand, ToolRequest
from aetheris.protocol.messages.events import ConfirmationFailed, EffectConfirmed
from aetheris.protocol.planning.policy import Policy
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.testing.topics import START, TopicReader, Topics


class InMemoryLedger:
    """The ledger of the only partition; leases are held by who runs, and no effect store is there to look into."""

    def __init__(
        self, topics: Topics, policy: Policy, registry: Mapping[str, RegistryEntry], is_run: Callable[[str], bool]
    ) -> None:
        """`is_run`: whether an executor lives that runs a workflow under this key, and so holds its lease."""
        self._topics = topics
        self._is_run = is_run
        self._reader = TopicReader(topics, (Topic.JOBS_EVENTS, Topic.TOOLS_REQUESTS, Topic.JOBS_COMMANDS))
        self._workers = TopicReader(topics, (Topic.WORKERS,))
        self._ended: dict[WorkerLife, Ended] = {}
        self._names = Names(SignedMessages().counts)

        def registered(name: str, version: str) -> RegistryEntry | None:
            entry = registry.get(name)
            return entry if entry is not None and entry.version == version else None

        limits = LedgerSettings.model_construct().limits()
        context = DecisionContext(policy, limits, lambda: topics.fresh("lease"), lambda: 0.5, registered)
        self._core = Partition(context, self._ended)
        self._core.restored(self._now())

    def turn(self) -> bool:
        """Fold, look and decide; False where there was nothing new and nothing due."""
        due = self._core.next_due()
        if not self._reader.has_more() and not self._workers.has_more() and (due is None or due > self._topics.now_s):
            return False
        now = self._now()
        self._read_workers()
        for entry in self._reader.take(Topic.JOBS_EVENTS):
            if isinstance(entry.body, EffectConfirmed | ConfirmationFailed):
                self._core.confirm(entry.body, entry.record.offset, now)
            else:
                self._core.evolve(entry.body, entry.record.offset, now, START.timestamp() + now.mono_s)
        for entry in self._reader.take(Topic.TOOLS_REQUESTS):
            if isinstance(entry.body, ToolRequest):
                self._core.request(entry.body, entry.record.offset)
        for entry in self._reader.take(Topic.JOBS_COMMANDS):
            if isinstance(entry.body, StepCommand):
                self._core.hear(entry.body, entry.id, entry.record.offset)
        self._decide(now)
        return True

    def due_s(self) -> float | None:
        """When it wants to be called by the clock."""
        due_s = self._core.next_due()
        return None if due_s is None or math.isinf(due_s) else due_s

    def _decide(self, now: Now) -> None:
        wanted = self._core.to_fetch(now)
        effects = {key: {} for _, key in wanted.effects}
        facts = Facts(effects, {key: self._is_run(key) for key in wanted.leases}, blobs=self._topics.blobs)
        self._write(self._core.decide(facts, now))
        self._core.joined()
        for failure in self._core.unjudged.take():
            raise failure.error

    def _write(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Emit():
                    for data in decision.blobs:
                        self._topics.keep(data)
                    self._topics.append(Topic.JOBS_EVENTS, *((one.id, one.event) for one in decision.events))
                case Grant():
                    self._topics.append(Topic.TOOLS_GRANTS, (decision.message.lease_id, decision.message))
                case Ask():
                    self._topics.append(Topic.VERIFICATIONS, (decision.message.ask, decision.message))
                case _:
                    pass  # views, and questions of verifiers, which nobody here answers

    def _read_workers(self) -> None:
        for one in self._workers.take(Topic.WORKERS):
            for life in self._names.take(one.body.worker_id, one.body.model_dump_json().encode()).ended:
                self._ended[life] = self._names[life[0]].ended[life[1]]
                self._core.worker_ended(life)

    def _now(self) -> Now:
        return Now(self._topics.now_s, self._topics.now)
