"""Evidence from which records are left out: made of a whole history that holds, and judged as far as it is shown.

The sealed tree, the seal, its place in the log of seals, and who wrote what is shown hold as ever. What can't be judged
is said, and what is left out is named: how much, where, and of which type.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.proofs.amendments import amends, line_hash
from aetheris.proofs.approver_signatures import TrustedSigner
from aetheris.proofs.audit import violations_in
from aetheris.proofs.authorship import Authorship
from aetheris.proofs.chain import leaf_of, record_leaf
from aetheris.proofs.disclosures import calls_root
from aetheris.proofs.evidence import (
    CHAIN,
    STATEMENT_TYPE,
    TREE,
    BadEvidence,
    Evidence,
    Judged,
    LogCheck,
    base64_text,
    check_exportable,
    check_whole,
    read_bytes64,
    read_record,
    record_json,
)
from aetheris.proofs.execution import execution_hash, outcome_hash
from aetheris.proofs.history import TERMINAL, History
from aetheris.proofs.merkle import Tree
from aetheris.proofs.openings import hidden_in
from aetheris.proofs.recomputed_calls import RecomputedCalls
from aetheris.proofs.records import COVERED, Fact, RawRecord, Violation, body_of, event_type, read, violation
from aetheris.proofs.redacted_records import UNRULED, Redaction
from aetheris.proofs.sealed import covers
from aetheris.proofs.sealed_leaves import BadRecordProof, open_seal
from aetheris.proofs.sealed_prefix import sealed_prefix
from aetheris.proofs.trust import BadKeys, TrustedKey, keys_of
from aetheris.proofs.validity import Validity

_HASH = re.compile(r"[0-9a-f]{64}")
PREDICATE_TYPE = "urn:aetheris:job-evidence-redacted:v1"
"""Another than that of a whole bundle: who reads those alone refuses this."""
MOST_PLACES = 1_000
"""Of records that are left out, so many are named one by one; all are counted by their types."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A record without its value. `certificate`: one that it carried, which others of the job rest on."""

    offset: int
    headers: Mapping[str, bytes]
    value_hash: bytes
    certificate: object = None

    @property
    def type(self) -> str:
        """Of the record, as its header says."""
        return event_type(self.headers.get("ce_type", b"")).decode(errors="replace")

    @property
    def event_id(self) -> str:
        """Of the record."""
        return self.headers.get("ce_id", b"").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class RedactedJob:
    """What is shown of one job, up to the seal that counts, which is last.

    `creation`: the place of the one that counts. `installation`: the root that it names; where it is left out, as the
    bundle says, which the signatures of others bear out, or don't.
    """

    job_id: str
    records: tuple[RawRecord | LeftOut, ...]
    inclusion: str
    creation: int
    installation: str | None


@dataclass(frozen=True, slots=True)
class RedactedEvidence:
    """A job and those that it continues, the newest first."""

    jobs: tuple[RedactedJob, ...]
    redaction: Mapping[str, Any]
    keys: tuple[TrustedKey, ...]


def redacted_statement(evidence: Evidence, judged: Sequence[Judged], redaction: Redaction) -> dict[str, Any]:
    """The statement on a job without the records that are to be left out.

    Raises:
        BadEvidence: as `statement`: only of a history that holds anything is shown.
    """
    check_whole(evidence, judged)
    for one in judged:  # what came to light behind a seal is judged by nobody who is shown a part
        check_exportable(one.report)
    report = judged[0].report
    first, *earlier = [_carried(one, by, redaction) for one, by in zip(evidence.chain, judged, strict=True)]
    predicate = {
        **first,
        **({"continued": earlier} if earlier else {}),
        "redaction": redaction.to_json(),
        "keys": [key.to_json() for key in evidence.keys],
    }
    return {
        "_type": STATEMENT_TYPE,
        "subject": _subject(evidence.job_id, report.event_chain_root_hash, report.event_tree_root_hash),
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }


def read_redacted(parsed: Any) -> RedactedEvidence:
    """What is in a parsed statement, not judged yet.

    Raises:
        BadEvidence.
    """
    try:
        if (parsed["_type"], parsed["predicateType"]) != (STATEMENT_TYPE, PREDICATE_TYPE):
            raise BadEvidence("bad_statement", f"not a {PREDICATE_TYPE}")
        predicate = parsed["predicate"]
        said = _stated(predicate["redaction"])
        keys = tuple(keys_of(predicate["keys"]))
        jobs = tuple(_job(one) for one in (predicate, *predicate.get("continued", [])))
        return RedactedEvidence(jobs, said, keys)
    except (KeyError, TypeError, ValueError, AttributeError, BadKeys):
        raise BadEvidence("bad_statement", "lacks a part, or has one of another form") from None


def judge_redacted(
    parsed: Any, evidence: RedactedEvidence, logged: LogCheck, signers: Sequence[TrustedSigner] | None = None
) -> dict[str, Any]:
    """The report on what is shown, and on what is not."""
    checks = [_JobCheck(one, logged, signers) for one in evidence.jobs]
    first, *earlier = [one.report() for one in checks]
    subject = _subject(evidence.jobs[0].job_id, first["event_chain_root_hash"], first["event_tree_root_hash"])
    found = [] if parsed.get("subject") == subject else [_finding("subject_differs", "it names another job or tree")]
    found += [{**broken, "job_id": one["job_id"]} for one in earlier for broken in one["violations"]]
    violations = [*found, *first["violations"]]
    names = ("job_id", "ok", "event_tree_root_hash", "installation", "redacted")
    return {
        **first,
        "ok": not violations,
        "redacted": {**evidence.redaction, **first["redacted"]},
        "violations": violations,
        "continued": [{name: one[name] for name in names} for one in earlier],
    }


class _JobCheck:
    """One job, as far as it is shown."""

    def __init__(self, job: RedactedJob, logged: LogCheck, signers: Sequence[TrustedSigner] | None) -> None:
        self._job, self._logged, self._signers = job, logged, signers
        self._tree, self._authors = Tree(), Authorship()
        self._facts: list[Fact] = []
        self._last_offset = -1
        self._found: list[Violation] = []
        self._hidden: set[str] = set()
        self._left_out = [(at, one) for at, one in enumerate(job.records) if isinstance(one, LeftOut)]
        for at, one in enumerate(job.records):
            self._take(at, one)

    def report(self) -> dict[str, Any]:
        """What holds, what does not, and what nobody can say."""
        job, count = self._job, len(self._job.records) - 1
        said = list(self._seal(count))
        types = Counter(one.type for _, one in self._left_out)
        last = self._last()
        seal = None if last is None else body_of(last.value)
        said += () if last is None else self._logged.refusals(last.value, job.inclusion)
        beside = [_finding(rule, message) for rule, message in said]
        ruled = set(types) <= UNRULED and seal is not None and amends(seal) is None
        found = [*self._found, *self._others(), *(self._rules(count) if ruled else ())]
        sealed_at = str((seal or {}).get("sealed_at"))
        violations = [*beside, *(one.to_json() for one in sorted(set(found)))]
        return {
            "job_id": job.job_id,
            "ok": not violations,
            "installation": self._authors.installation,
            "event_chain_root_hash": (seal or {}).get("root"),
            "event_tree_root_hash": self._tree.root(max(0, count)).hex(),
            "event_count": max(0, count),
            "sealed_at": sealed_at,
            "redacted": {
                "records": len(self._left_out),
                "types": dict(sorted(types.items())),
                "places": [
                    {"index": at, "offset": one.offset, "event_id": one.event_id, "type": one.type}
                    for at, one in self._left_out[:MOST_PLACES]
                ],
                "rules_checked": ruled,
            },
            "violations": violations,
            "unproven": [
                violation("unproven_record", fact, f"{fact.claims} is not signed by who may write it").to_json()
                for fact in self._facts
                if fact.claims
            ],
            "hidden_values": len(self._hidden),
        }

    def _last(self) -> RawRecord | None:
        """The seal, if it is by who may write it: it bears out a root that is stated and not shown."""
        last = self._job.records[-1] if self._job.records else None
        if isinstance(last, RawRecord) and _is_seal(last) and not self._facts[-1].claims:
            return last
        return None

    def _take(self, at: int, one: RawRecord | LeftOut) -> None:
        if at == self._job.creation and isinstance(one, LeftOut) and one.type == "job_created":
            self._authors.begin(one.value_hash.hex(), self._job.installation)
        if isinstance(one, LeftOut):
            time = one.headers.get("ce_time", b"").decode("utf-8", "replace")
            fact, broken, leaf = (
                Fact(at, one.offset, one.event_id, "", {}, time),
                [],
                leaf_of(one.headers, one.value_hash),
            )
            self._authors.know(one.certificate)
        else:
            fact, broken = read(one, at)
            leaf = record_leaf(one)
            self._hidden.update(hidden_in(one, fact.body))
            if not self._authors.is_proved(one, fact):
                fact.claims, fact.type = fact.type, ""
        self._tree.append(leaf)
        self._found += broken
        if one.offset <= self._last_offset:
            self._found.append(violation("out_of_order", fact, "its offset is not above those before it"))
        self._last_offset = max(self._last_offset, one.offset)
        self._facts.append(fact)

    def _others(self) -> Iterator[Violation]:
        """Records that are not of the job."""
        for fact, one in zip(self._facts, self._job.records, strict=True):
            if isinstance(one, RawRecord) and fact.body and fact.job != self._job.job_id:
                yield violation("foreign_record", fact, "its job_id is not the bundle's")

    def _rules(self, count: int) -> Iterator[Violation]:
        """What the job breaks, where all that a rule looks at is shown; results that are not here are not asked for."""
        yield from violations_in(self._facts, self._signers)
        validity, seal = Validity(History(self._facts[:count])), self._facts[-1]
        if seal.text("execution_hash") != execution_hash(validity.history):
            yield violation("seal_execution_hash", seal, f"the first {count} records have another execution_hash")
        outcome = outcome_hash(validity)
        yield from (broken for broken in outcome.violations if broken.rule != "missing_blob")
        if not outcome.violations and seal.text("outcome_hash") != outcome.value:
            yield violation("seal_outcome_hash", seal, f"the first {count} records have another outcome_hash")
        calls = calls_root(validity, RecomputedCalls(validity), count)
        if calls is not None and seal.body.get("calls") not in (None, calls):
            yield violation("seal_calls", seal, f"the calls of the first {count} records have another root")

    def _seal(self, count: int) -> Iterator[tuple[str, str]]:
        """(rule, message) of what is wrong with the seal."""
        job, last = self._job, self._last()
        if last is None:
            yield "not_sealed", "the last record that is shown is no seal, or not signed by who may write one"
            return
        creation = job.records[job.creation] if 0 <= job.creation < count else None
        if creation is None or _type_of(creation) != "job_created":
            yield "not_born", "it names no creation"
        if not any(_type_of(one) in TERMINAL for one in job.records[:count]):
            yield "sealed_unfinished", "the sealed records hold no end of the job"
        try:
            seal = open_seal(last.value, self._logged.keys)
        except BadRecordProof as error:
            yield error.rule, error.message
            return
        if covers(seal) != count or count < 1:
            yield "seal_count", "the seal covers other records than are here"
        elif seal.get("tree") != self._tree.root(count).hex():
            yield "seal_tree", f"the tree over the first {count} records has another root"
        elif not self._has_grown(seal, count):
            yield "seal_consistency", "it proves no growth of the tree of the seal that it amends"
        if seal["job_id"] != job.job_id:
            yield "other_job", "the seal is of another job"
        if isinstance(creation, RawRecord) and (body_of(creation.value) or {}).get("tenant") != seal["tenant"]:
            yield "seal_tenant", "the seal names another tenant than job_created"

    def _has_grown(self, seal: Mapping[str, Any], count: int) -> bool:
        named = amends(seal)
        if named is None:
            return True
        shown = [one for one in self._job.records[:count] if isinstance(one, RawRecord)]
        before = [one for one in shown if _is_seal(one) and line_hash(one.value) == named]
        old = covers(body_of(before[0].value) or {}) if before else 0
        proved = [step.hex() for step in self._tree.consistency(old, count)] if 0 < old <= count else None
        return proved is not None and seal.get("consistency") == proved


def _type_of(one: RawRecord | LeftOut) -> str:
    return one.type if isinstance(one, LeftOut) else event_type(one.header("ce_type")).decode(errors="replace")


def _is_seal(one: RawRecord) -> bool:
    return _type_of(one) == "job_sealed"


def _subject(job_id: str, root: object, tree: str) -> list[dict[str, Any]]:
    """The same as of the whole: the root of version 1 is its seal's word, and not computed here."""
    return [{"name": job_id, "digest": {CHAIN: root, TREE: tree}}]


def _carried(one: Evidence, judged: Judged, redaction: Redaction) -> dict[str, Any]:
    prefix = sealed_prefix(list(one.records), one.keys)
    created = judged.history.created
    return {
        "job_id": one.job_id,
        "records": [
            _left_out(record) if redaction.leaves_out(record) else record_json(record) for record in prefix.records
        ],
        "inclusion": one.inclusion,
        "creation": created.at if created is not None else 0,
        "installation": judged.report.installation,
    }


def _left_out(record: RawRecord) -> dict[str, Any]:
    certificate = (body_of(record.value) or {}).get("certificate")
    return {
        "offset": record.offset,
        "headers": [[name, base64_text(record.named[name])] for name in COVERED if name in record.named],
        "value_sha256": hashlib.sha256(record.value).hexdigest(),
        **({"certificate": certificate} if certificate is not None else {}),
    }


def _stated(said: Any) -> Mapping[str, Any]:
    """What was to be left out, as the bundle says."""
    names = [said["for"] or "", *said["names"]]
    if set(said) != {"for", "names"} or not all(isinstance(name, str) for name in names):
        raise TypeError
    return said


def _job(one: Any) -> RedactedJob:
    creation, installation = one["creation"], one["installation"]
    texts = (one["job_id"], one["inclusion"], "" if installation is None else installation)
    if type(creation) is not int or not all(isinstance(text, str) for text in texts):
        raise TypeError
    records = tuple(_shown(record) for record in one["records"])
    return RedactedJob(texts[0], records, texts[1], creation, installation)


def _shown(one: Any) -> RawRecord | LeftOut:
    if "value_sha256" not in one:
        return read_record(one)
    parts = cast("dict[str, Any]", one)
    if not set(parts) <= {"offset", "headers", "value_sha256", "certificate"} or type(parts["offset"]) is not int:
        raise TypeError
    headers = {str(name): read_bytes64(value) for name, value in parts["headers"]}
    if (
        len(headers) != len(parts["headers"])
        or not set(headers) <= set(COVERED)
        or not _HASH.fullmatch(parts["value_sha256"])
    ):
        raise ValueError
    return LeftOut(parts["offset"], headers, bytes.fromhex(parts["value_sha256"]), parts.get("certificate"))


def _finding(rule: str, message: str) -> dict[str, Any]:
    return {"rule": rule, "event_id": "", "offset": -1, "message": message}
