"""What a ledger and an executor decide at a prefix: alike, from its records, from checkpoints, or lived through.

Looked at when a run is over, as aetheris.testkit.simulation.restarts.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count

from aetheris.ledger.core.decisions import Ask, Confirm, Decision, Emit, Facts, Grant, Now
from aetheris.ledger.core.duplicate_index import DuplicateIndex
from aetheris.ledger.core.limits import QuarantineLimits
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.partition import Partition as LedgerPartition
from aetheris.ledger.core.policy_in_force import PolicyInForce
from aetheris.protocol.base import sealed
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import SECRET_BYTES, TryWord, TryWords
from aetheris.protocol.fold.provenance import Standing
from aetheris.protocol.messages.commands import PartitionBarrier, ToolGrant, ToolRequest
from aetheris.protocol.messages.events import ConfirmationFailed, EffectConfirmed, ToolInvocationStarted
from aetheris.protocol.plan.graph import EffectKind
from aetheris.runtime.keys.records import RecordKeys
from aetheris.testkit.simulation.actors.ledger import SimulatedLedger
from aetheris.testkit.simulation.checks import Broken
from aetheris.testkit.simulation.installation import SimRecords
from aetheris.testkit.simulation.log import Entry, SimLog
from aetheris.testkit.simulation.scenario import Scenario
from aetheris.testkit.simulation.surroundings import START
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.partition import Partition as ExecutorPartition
from aetheris.tool_executor.core.tries import DeclaredInvocation, Worker
from aetheris.tool_executor.core.unread_tries import UnreadTries

Said = list[tuple[str, ...]]
"""What was decided, job by job, less the ids that are drawn."""

WATCHED_S = 40.0
"""For so long each ledger decides on, without a word from anybody."""
MOST_ROUNDS = 60
_NO_QUARANTINE = QuarantineLimits(after=1 << 30, jobs=1, first_s=1.0, longest_s=1.0)
"""A tool's quarantine lives only as long as its ledger (docs/quarantine.md)."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Of a partition's history: `live` are the jobs, each with its birth, that checkpoints hold up to `mark`."""

    log: SimLog
    end: int
    mark: int
    live: Sequence[tuple[str, int]]
    keys: RecordKeys
    reach: int
    ledger: SimulatedLedger
    """One that has read what is activated."""

    def records(self) -> SimRecords:
        """What a process that starts there judges records with."""
        return SimRecords(self.keys)

    @property
    def start(self) -> int:
        """Where a ledger or an executor begins to read, whose mark it is."""
        return sealed.in_reach(self.mark, self.reach)

    @property
    def whole(self) -> Sequence[Entry]:
        """All its records."""
        return self.log.topics[Topic.JOBS_EVENTS][: self.end]

    @property
    def below(self) -> Iterator[Entry]:
        """What is folded of checkpoints, job by job."""
        for job_id, creation_offset in sorted(self.live, key=lambda one: one[1]):
            yield from (one for one in self.whole[creation_offset : self.start] if one.body.job_id == job_id)


def check_restored(prefix: Prefix, scenario: Scenario, draws: random.Random) -> None:
    """A ledger and an executor, each in all its ways to be there.

    Raises:
        Broken: two do not decide the same.
    """
    _check_ledgers(prefix, scenario)
    lives = [
        Worker(one.body.worker_id, one.body.incarnation)
        for one in prefix.whole
        if isinstance(one.body, ToolInvocationStarted)
    ]
    worker = draws.choice(lives) if lives else Worker("w", "i")
    _same("an executor", _executor_says(prefix, worker, whole=True), _executor_says(prefix, worker, whole=False))


def _same(who: str, one: object, other: object) -> None:
    if one != other:
        raise Broken("a_restart_decides_the_same", f"{who} from checkpoints says {other}, and else {one}")


# the ledger


def _check_ledgers(prefix: Prefix, scenario: Scenario) -> None:
    whole, cut, lived = (_ledger(scenario, prefix.ledger.policies) for _ in range(3))
    _fold(whole, prefix.whole, prefix.records())
    whole.restored(_now(0.0))
    records = prefix.records()
    _fold(cut, prefix.below, records)
    cut.jobs.rest_on_the_way(0, above=0)
    cut.pass_over(prefix.start - 1)
    records.begin(prefix.start, prefix.live)
    _fold(cut, prefix.whole[prefix.start :], records)
    cut.jobs.rest_on_the_way(0, above=0)  # who rests meanwhile, and who doesn't, decides the same
    cut.restored(_now(0.0))
    lived.restored(_now(0.0))
    _fold(lived, prefix.whole, prefix.records())
    requests = [one for one in prefix.log.topics[Topic.TOOLS_REQUESTS] if one.body.as_of < prefix.end]
    said, other = _ledger_says(whole, requests), _ledger_says(lived, requests)
    _same("a ledger", said, _ledger_says(cut, requests))
    # who restarts asks first whether what he finds is still there (docs/confirmation.md)
    confirming = {word[1] for word in (*said, *other) if word[0] == Confirm.__name__}
    differing = sorted(word for word in set(said) ^ set(other) if word[1] not in confirming)
    if differing:
        raise Broken("a_restart_decides_the_same", f"of one that restarts and one that lived only one says {differing}")


def _ledger(scenario: Scenario, policies: PolicyInForce) -> LedgerPartition:
    numbers = count()
    context = DecisionContext(
        scenario.policy,
        replace(scenario.limits, quarantine=_NO_QUARANTINE),
        lambda: f"id-{next(numbers)}",
        lambda: 0.5,
        scenario.registered,
        DuplicateIndex(),
        policies=policies,
    )
    return LedgerPartition(context, {})


def _fold(ledger: LedgerPartition, entries: Iterable[Entry], records: SimRecords) -> None:
    now = _now(0.0)
    for entry in entries:
        standing = records.judge(entry)
        if standing is Standing.UNKNOWN_ROOT:
            ledger.needs_upgrade(entry.body.job_id, entry.record.offset, is_birth=True)
        elif standing is Standing.VOID:
            ledger.pass_over(entry.record.offset)
        elif isinstance(entry.body, PartitionBarrier):
            ledger.passed(entry.body, entry.record.offset)
        elif isinstance(entry.body, EffectConfirmed | ConfirmationFailed):
            ledger.confirm(entry.body, entry.record.offset, now)
        else:
            ledger.evolve(entry.body, entry.record.offset, now, START.timestamp())


def _ledger_says(ledger: LedgerPartition, requests: Iterable[Entry]) -> Said:
    """From the requests on: nobody has a lease, no effect was kept, and nothing is heard any more."""
    for entry in requests:
        if isinstance(entry.body, ToolRequest):
            ledger.request(entry.body, entry.record.offset)
    found, at_s = Said(), 0.0
    for _ in range(MOST_ROUNDS):
        wanted = ledger.to_fetch(_now(at_s))
        facts = Facts({key: {} for _, key in wanted.effects}, dict.fromkeys(wanted.leases, False))
        found += [word for decision in ledger.decide(facts, _now(at_s)) for word in _words(decision)]
        due_s = ledger.next_due()
        if due_s is None or due_s > WATCHED_S:
            break
        at_s = max(at_s, due_s) + 0.001
    return found


def _words(decision: Decision) -> Iterator[tuple[str, ...]]:
    match decision:
        case Emit():
            for one in decision.events:
                event = one.event
                said = (str(getattr(event, name, "")) for name in ("idempotency_key", "node_id", "outcome", "reason"))
                yield (event.event_type, decision.job_id, *said)
        case Grant(message=message):
            yield (Grant.__name__, message.job_id, message.idempotency_key, str(message.token), *message.nodes)
        case Ask(message=message) | Confirm(message=message):
            yield (type(decision).__name__, message.job_id, message.idempotency_key)
        case _:
            pass


def _now(mono_s: float) -> Now:
    return Now(mono_s, START + timedelta(seconds=mono_s))


# the executor


def _executor_says(prefix: Prefix, worker: Worker, *, whole: bool) -> Said:
    """What becomes of every grant that can be judged there, and which tries of its life nobody awaits."""
    unread = _all_of(prefix, worker)
    core = ExecutorPartition(
        worker,
        lambda _: None,
        lambda call: EffectKind(call.entry.node.kind),
        unread,
        activations=prefix.ledger.policy_lines.activations,
    )
    start, records = 0 if whole else prefix.start, prefix.records()
    _follow(core, () if whole else prefix.below, records)
    core.pass_over(start - 1)
    records.begin(start, prefix.live)
    _follow(core, prefix.whole[start:], records)
    found: Said = sorted(("stray", job.job_id, one.invocation_id) for job, one, _ in core.strays({}))
    for entry in prefix.log.topics[Topic.TOOLS_GRANTS]:
        if isinstance(entry.body, ToolGrant):
            taken = ReceivedGrant(entry.body, entry.id, entry.record.offset)
            judged = core.judge(taken, bytes(SECRET_BYTES)) if taken.readable_from < prefix.end else None
            found.append((entry.id, str(judged.started if isinstance(judged, DeclaredInvocation) else judged)))
            core.withdraw()
    return found


def _all_of(prefix: Prefix, worker: Worker) -> UnreadTries:
    """As if this life had read none of its own tries back yet; what their words are matters to nobody here."""
    unread = UnreadTries()
    for entry in prefix.whole:
        body = entry.body
        if isinstance(body, ToolInvocationStarted) and (body.worker_id, body.incarnation) == (
            worker.worker_id,
            worker.incarnation,
        ):
            unread.put(body, TryWords((b"",) * len(TryWord) + (bytes.fromhex(body.invocation_id),)))
    return unread


def _follow(core: ExecutorPartition, entries: Iterable[Entry], records: SimRecords) -> None:
    for entry in entries:
        standing = records.judge(entry)
        if standing is Standing.COUNTS:
            core.evolve(entry.body, entry.record.offset)
        elif standing is Standing.UNKNOWN_ROOT:
            core.needs_upgrade(entry.body.job_id, entry.record.offset, is_birth=True)
        else:
            core.pass_over(entry.record.offset)
