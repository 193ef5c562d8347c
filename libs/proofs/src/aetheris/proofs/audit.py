"""The incremental auditor: takes a job's records as they come, and reports on demand."""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aetheris.proofs.activations import activation_notes, activation_violations
from aetheris.proofs.amendments import LateFacts, line_hash
from aetheris.proofs.approver_signatures import TrustedSigner
from aetheris.proofs.chain import EventChain
from aetheris.proofs.execution import LoadBlob, plan_violations
from aetheris.proofs.findings import ProofReport
from aetheris.proofs.gate import DeclaredEnd, emergencies, gate_violations, reopenings, signed_words
from aetheris.proofs.history import History
from aetheris.proofs.ledger import ledger_proof
from aetheris.proofs.openings import hidden_in, may_hide
from aetheris.proofs.recomputed_calls import RecomputedCalls
from aetheris.proofs.records import Fact, LoggedRecord, Violation, by_name, read_named, violation
from aetheris.proofs.replay import replay_proof
from aetheris.proofs.sealed import SealCheck
from aetheris.proofs.trust import TrustedKey
from aetheris.proofs.validity import Validity
from aetheris.proofs.writers import FOLLOWING

_BRIEF = 100
"""Records; a report on so many takes less than handing it to a thread would disturb."""


class Audit:
    """One job's audit. `add` costs a parse and a hash; judging waits for `report`."""

    def __init__(self, late: LateFacts | None = None) -> None:
        """`late`: which records count behind what was sealed first, where its seal was amended."""
        self.chain = EventChain()
        self.history = History()
        self.lines: dict[int, str] = {}
        """By place, the hash of each seal's line."""
        self._late = late
        self._violations: list[Violation] = []
        self._last_offset = -1
        self._hidden: set[str] = set()

    def add(self, record: LoggedRecord, named: Mapping[str, bytes] | None = None) -> Fact:
        """Take the next record of the job, in log order; what it says.

        `named`: its headers by name, where they are known.
        """
        history, named = self.history, by_name(record.headers) if named is None else named
        fact, broken = read_named(record, named, len(history.facts))
        self.chain.add(record, named)
        if fact.type not in FOLLOWING and not history.authors.is_proved(record, fact):
            fact.claims, fact.type = fact.type, ""
        if self._late is not None and not self._late.take(fact, history.authors):
            fact, broken = Fact(fact.at, fact.offset, fact.event_id, "", {}, fact.time), ()
        if fact.type == "job_sealed":
            self.lines[fact.at] = line_hash(record.value)
        history.add(fact)
        if broken:
            self._violations.extend(broken)
        if may_hide(record):
            self._hidden.update(hidden_in(record, fact.body))
        if record.offset > self._last_offset:
            self._last_offset = record.offset
        else:
            self._violations.append(violation("out_of_order", fact, "its offset is not above the one before it"))
        return fact

    @property
    def ended(self) -> bool:
        """Has a terminal event been seen? (The first one wins.)"""
        return self.history.end is not None

    def is_newer(self, fact: Fact) -> bool:
        """Is a record of the job of a version that can't be judged here?"""
        return any(one.at == fact.at and one.rule == "unknown_version" for one in reversed(self._violations))

    @property
    def last(self) -> Fact:
        """What the latest record says."""
        return self.history.facts[-1]

    @property
    def broken_records(self) -> tuple[Violation, ...]:
        """What is wrong with records themselves, as far as they have come."""
        return tuple(self._violations)

    @property
    def is_brief(self) -> bool:
        """Takes a report a few milliseconds at most? (Large results would have to be loaded.)"""
        return self.chain.count <= _BRIEF and not self.history.references

    def report(
        self,
        *,
        keys: Iterable[TrustedKey] = (),
        load_blob: LoadBlob | None = None,
        signers: Sequence[TrustedSigner] | None = None,
        to_end: bool = False,
    ) -> ProofReport:
        """Judge what has come so far; `to_end`: with the hashes up to the job's end, whatever came behind it."""
        return self.judge(Validity(self.history), keys, load_blob, signers, to_end=to_end)

    def judge(
        self,
        validity: Validity,
        keys: Iterable[TrustedKey],
        load_blob: LoadBlob | None,
        signers: Sequence[TrustedSigner] | None = None,
        *,
        to_end: bool = False,
    ) -> ProofReport:
        """The same, from what follows from the history so far."""
        check = SealCheck(validity, self.chain, keys, load_blob, None if self._late is None else self.lines)
        seal, broken = check.check()
        whole = self.history.end.at + 1 if to_end and self.history.end is not None else self.chain.count
        count = seal.event_count if seal.ok else whole
        outcome = check.outcome(count)
        ledger, replay = ledger_proof(validity), replay_proof(validity)
        found = {
            *self._violations,
            *_identity(self.history.facts),
            *plan_violations(self.history),
            *check.calls.violations(),
            *gate_violations(validity, signers),
            *activation_violations(self.history),
            *ledger.violations,
            *replay.violations,
            *outcome.violations,
            *broken,
            *_checkpoints(self.history, self.chain),
        }
        return ProofReport(
            execution_hash=check.execution(count),
            event_chain_root_hash=seal.root if seal.ok else self.chain.root(count),
            event_tree_root_hash=self.chain.tree(count),
            ledger=ledger,
            replay=replay,
            outcome_hash=outcome.value,
            event_count=count,
            seal=seal,
            violations=tuple(sorted(found)),
            notes=tuple(sorted((*ledger.notes, *_notes(self.history)))),
            reopened_by_hand=reopenings(validity),
            glass_broken=emergencies(validity),
            signed=signed_words(validity, signers),
            ended_by_hand=tuple(map(DeclaredEnd, self.history.ended_by_hand)),
            ended=self.ended,
            installation=self.history.authors.installation,
            unproven=tuple(_unproven(self.history)),
            hidden_values=len(self._hidden),
            calls=check.calls_root(count) or "",
        )


def violations_in(facts: Sequence[Fact], signers: Sequence[TrustedSigner] | None = None) -> tuple[Violation, ...]:
    """The rules that a history breaks so far, but for those about large results and seals.

    Looks at nothing but the facts: a copy of them may be judged while the audit goes on.
    """
    validity = Validity(History(facts))
    history = validity.history
    found = {
        *_identity(history.facts),
        *plan_violations(history),
        *RecomputedCalls(validity).violations(),
        *gate_violations(validity, signers),
        *activation_violations(history),
        *ledger_proof(validity).violations,
        *replay_proof(validity).violations,
    }
    return tuple(sorted(found))


def _unproven(history: History) -> Iterator[Violation]:
    """What is not signed by who may write it: it counts for nothing, and breaks no rule."""
    for fact in history.claimed:
        yield violation("unproven_record", fact, f"{fact.claims} is not signed by who may write it")


def _notes(history: History) -> Iterator[Violation]:
    yield from _other_births(history)
    yield from _untimely(history)
    yield from activation_notes(history)


def _other_births(history: History) -> Iterator[Violation]:
    """Of a job that is judged as one whose records are not signed: creations that name a root, under which they are."""
    if history.authors.installation is not None:
        return
    for fact in history.facts:
        if fact.type == "job_created" and fact.body.get("installation") is not None:
            said = "a creation under a root, of a job that is judged as unsigned: say which root it must have"
            yield violation("signed_creation", fact, said)


def _untimely(history: History) -> Iterator[Violation]:
    """Its services refuse to sign then: a clock is wrong, somebody else has the key, or has repeated a record."""
    for fact in history.authors.untimely:
        said = "its ce_time, by its writer's clock, lies outside of the certificates that the job has of its key"
        yield violation("certificate_time", fact, said)


def _checkpoints(history: History, chain: EventChain) -> Iterator[Violation]:
    """What is said of a checkpoint is the chain's root over what lay below its `as_of`."""
    before: list[int] = []
    for fact in history.facts if history.checkpoints else ():
        if fact.type == "state_checkpointed":
            as_of = fact.body.get("as_of")
            held = bisect_right(before, as_of) if isinstance(as_of, int) else 0
            if held == 0 or fact.text("state_hash") != chain.root(held):
                yield violation("checkpoint_differs", fact, "its state_hash is not the chain's root up to its as_of")
        insort(before, fact.offset)


def _identity(facts: list[Fact]) -> Iterator[Violation]:
    """A history begins with the job's creation, has one, and is of one job."""
    if not facts:
        yield Violation(0, "no_history", "", -1, "there are no records")
        return
    first = facts[0]
    if first.type != "job_created":
        yield violation("not_born", first, "the first record is not job_created")
    job = first.job
    for fact in facts[1:]:
        if fact.job != job and fact.body:
            yield violation("foreign_record", fact, "its job_id is not that of the first record")
        if fact.type == "job_created" and fact.event_id != first.event_id:
            yield violation("born_twice", fact, f"the job was created by event {first.event_id}")
