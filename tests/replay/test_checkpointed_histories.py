"""What comes out of checkpoints and the rest of the log is what comes out of the log from the births, in every service.

At every place of histories that were simulated, with all their crashes and doubts: each job is cut where chance has it,
by more than one writer, and the log is read from the least of what they cover.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.partition import Partition as Ledger
from aetheris.planner.core.partition import Partition as Planner
from aetheris.proofs.chain import EventChain
from aetheris.protocol.base.checkpoints import TYPE, UNBORN, CheckpointSpan, Piece, cut, write
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import BARRIERS, Envelope, decode_event, read_barrier
from aetheris.protocol.messages.events import ConfirmationFailed, EffectConfirmed
from aetheris.protocol.plan.graph import EffectKind
from aetheris.runtime.worker.checkpoints import Checkpoints
from aetheris.testkit.memory import MemoryLog
from aetheris.testkit.simulation.log import record_of
from aetheris.testkit.simulation.run import SimulationRun
from aetheris.testkit.simulation.tape import Tape
from aetheris.tool_executor.core.partition import Partition as Executor
from aetheris.tool_executor.core.tries import Worker
from aetheris.verifier.core.partition import Partition as Verifier

NOW = Now(1_000.0, datetime(2026, 1, 2, tzinfo=UTC))
SEEDS = 24
PLACE = (str(Topic.LEDGER_CHECKPOINTS), 0)
AUTHORITY = (str(Topic.JOBS_EVENTS), 0)


@dataclass
class Cores:
    """The four that fold a partition."""

    context: DecisionContext
    planner: Planner = field(default_factory=lambda: Planner(lambda _: None))
    executor: Executor = field(
        default_factory=lambda: Executor(Worker("w", "i"), lambda _: None, lambda _: EffectKind.TOOL)
    )
    verifier: Verifier = field(default_factory=Verifier)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.context, {})

    def fold(self, records: Sequence[Record]) -> None:
        for record in records:
            if is_barrier(record):
                self._fold_barrier(record)
                continue
            envelope = decode_event(record)
            assert isinstance(envelope, Envelope)
            self.planner.evolve(envelope)
            if isinstance(envelope.body, EffectConfirmed | ConfirmationFailed):
                self.ledger.confirm(envelope.body, record.offset, NOW)
            else:
                self.ledger.evolve(envelope.body, record.offset, NOW, record.timestamp_ms / 1000)
            self.executor.evolve(envelope.body, record.offset)
            self.verifier.evolve(record, envelope.body.event_type)

    def _fold_barrier(self, record: Record) -> None:
        barrier = read_barrier(record)
        assert barrier is not None
        self.ledger.passed(barrier, record.offset)
        self.executor.passed(barrier, record.offset)

    def remembered(self) -> dict[str, Any]:
        """All that they know of jobs, and in which order."""
        return {
            "planner": [(id_, self.planner.jobs[id_]) for id_ in self.planner.jobs],
            "ledger": [(id_, self.ledger.jobs[id_]) for id_ in self.ledger.jobs],
            "executor": [(id_, self.executor.jobs[id_]) for id_ in self.executor.jobs],
            "verifier": [
                (id_, job.audit.history.facts, known_of(job.audit.chain), job.reported, job.audit.broken_records)
                for id_ in self.verifier.jobs
                for job in [self.verifier.jobs[id_]]
            ],
        }


def known_of(chain: EventChain) -> tuple[str, Sequence[bytes]]:
    return chain.root(chain.count), chain.leaves


def is_barrier(record: Record) -> bool:
    """Of no job: no checkpoint has it, and who starts above it reads the orders themselves."""
    return record.header("ce_type") in BARRIERS


def log_of(seed: int) -> tuple[list[Record], DecisionContext]:
    run = SimulationRun(Tape(seed))
    run.go()
    scenario = run.around.scenario
    context = DecisionContext(scenario.policy, scenario.limits, lambda: "id", lambda: 0.5)
    entries = run.around.log.topics[Topic.JOBS_EVENTS]
    return [record_of(Topic.JOBS_EVENTS, one.record.offset, one.id, one.body) for one in entries], context


def pieces_of(job: Sequence[Record], end: int, rng: random.Random) -> list[Piece]:
    """A job's checkpoint, somewhere below `end`, and what a second writer left of his."""
    found: list[Piece] = []
    for _ in range(1 + rng.randrange(2)):
        creation_offset = job[0].offset
        bounds = sorted(rng.sample(range(creation_offset, end), k=min(1 + rng.randrange(3), end - creation_offset)))
        after, root = creation_offset - 1, UNBORN
        for as_of in bounds:
            span = CheckpointSpan((job[0].key or b"").decode(), creation_offset, after, as_of)
            found.append(cut(span, root, [one for one in job if after < one.offset <= as_of]))
            after, root = as_of, found[-1].root
    return found


async def restored(records: Sequence[Record], end: int, context: DecisionContext, rng: random.Random) -> Cores:
    """As a service that starts where a mark may be at `end`, or somewhat below."""
    log = MemoryLog(partitions=1)
    jobs: dict[bytes | None, list[Record]] = {}
    for record in records[:end]:
        if not is_barrier(record):
            jobs.setdefault(record.key, []).append(record)
    covered = [job for job in jobs.values() if rng.random() < 0.8]
    bare = [job[0].offset for job in jobs.values() if job not in covered]
    pieces = [piece for job in covered for piece in pieces_of(job, end, rng)]
    rng.shuffle(pieces)
    headers = (("ce_type", TYPE),)
    for piece in pieces:
        await log.write(PLACE, (Draft(*PLACE[:1], piece.span.key, write(piece), headers, 0),))
    mark = min([end, *bare])
    loaded = await Checkpoints(log, PLACE, AUTHORITY).load(0, len(pieces), mark, (0, end))
    assert loaded.start <= mark
    cores = Cores(context)
    for history in loaded.histories:
        assert all(record.offset < loaded.start for record in history)
        cores.fold(history)
    cores.fold(records[loaded.start : end])
    return cores


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_restart_from_checkpoints_remembers_what_a_restart_from_the_births_does(seed: int) -> None:
    records, context = log_of(seed)
    rng = random.Random(seed)  # noqa: S311 - a seeded test
    whole = Cores(context)
    for end in range(1, len(records) + 1):
        whole.fold(records[end - 1 : end])
        if len(records) > 120 and end % 5:
            continue
        assert (await restored(records, end, context, rng)).remembered() == whole.remembered(), f"seed {seed}, at {end}"
