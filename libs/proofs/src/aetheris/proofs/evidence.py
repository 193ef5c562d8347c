"""Evidence of one finished job as an in-toto statement: what it holds, and whether it holds (docs/evidence.md)."""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

from aetheris.proofs.amendments import AmendedSeal
from aetheris.proofs.approver_signatures import TrustedSigner
from aetheris.proofs.audit import Audit
from aetheris.proofs.claims import log_entry
from aetheris.proofs.continued import Link, chain_violations, words_of
from aetheris.proofs.derived_evidence import derived
from aetheris.proofs.execution import LoadBlob
from aetheris.proofs.findings import ProofReport
from aetheris.proofs.history import History
from aetheris.proofs.notes import BadNote, open_inclusion, parse_inclusion
from aetheris.proofs.records import RawRecord, Violation, body_of
from aetheris.proofs.sealed_prefix import SealedPrefix, sealed_prefix
from aetheris.proofs.timestamps import TrustedAuthorities, stamped_at
from aetheris.proofs.trust import SEAL, BadKeys, TrustedKey, keyring, keys_of, moment
from aetheris.proofs.validity import Validity
from aetheris.proofs.witnesses import LogPolicy, open_witnessed_inclusion

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:aetheris:job-evidence:v1"
CHAIN = "aetherisEventChain"
TREE = "aetherisEventTree"
"""The digests of the subject: the roots of both versions of the chain over the sealed records."""

CLOCKS = timedelta(minutes=5)
"""By which the clocks of who seals and of who witnesses may differ."""


class BadEvidence(Exception):
    """Evidence that can't be read, or that proves nothing; `rule` names what is wrong with it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message


@dataclass(frozen=True)
class Evidence:
    """What is known of a job: its records as they lie in the log, large results, and its place in the log of seals.

    `inclusion` is a tlog-proof; `keys` are those that the evidence says to trust; `continued`: the jobs that it goes on
    from, the newest first, with the same keys.
    """

    job_id: str
    records: Sequence[RawRecord]
    blobs: Mapping[str, bytes]
    inclusion: str
    keys: Sequence[TrustedKey]
    continued: tuple["Evidence", ...] = ()

    @property
    def chain(self) -> tuple["Evidence", ...]:
        """Itself, and what it goes on from."""
        return (self, *self.continued)


@dataclass(frozen=True)
class Judged:
    """A history and the report on it."""

    report: ProofReport
    validity: Validity
    sealed: "Judged | None" = None
    """What was sealed at first, by itself, where its seal was amended."""

    @property
    def at_first(self) -> "Judged":
        """What was sealed at first."""
        return self.sealed or self

    def with_violations(self, beside: Sequence[Violation]) -> "Judged":
        """The same with what else is wrong with all of it, first."""
        report = replace(self.report, violations=(*beside, *self.report.violations))
        return Judged(report, self.validity, self.sealed and self.sealed.with_violations(beside))

    @property
    def history(self) -> History:
        """What was judged."""
        return self.validity.history


def judge(
    records: Iterable[RawRecord],
    keys: Iterable[TrustedKey],
    load_blob: LoadBlob,
    signers: Sequence[TrustedSigner] | None = None,
) -> Judged:
    """Verify records, by these keys; and what approvers signed, by these signers.

    Where a seal is over them, those that it covers, and by which it was amended: what else lies behind is named in the
    report, and not in the history.
    """
    keys = list(keys)
    prefix = sealed_prefix(list(records), keys)
    judged = _judged(prefix, keys, load_blob, signers)
    if prefix.amended is None:
        return judged
    at_first, amendments = prefix.amended
    sealed = _judged(at_first, keys, load_blob, signers)
    amended = _amended(judged.report, sealed.report, amendments)
    return Judged(replace(judged.report, amended=amended), judged.validity, sealed)


def _judged(
    prefix: SealedPrefix, keys: Sequence[TrustedKey], load_blob: LoadBlob, signers: Sequence[TrustedSigner] | None
) -> Judged:
    validity = Validity(prefix.audit.history)
    report = prefix.audit.judge(validity, keys, load_blob, signers)
    if prefix.seal_at is not None:
        seal = replace(report.seal, at=prefix.seal_at, full_root=prefix.full_root)
        report = replace(report, seal=seal, after_seal=prefix.behind)
    return Judged(report, validity)


def _amended(report: ProofReport, at_first: ProofReport, amendments: int) -> AmendedSeal:
    seal, known = at_first.seal, {_named(one) for one in at_first.violations}
    shows = tuple(one for one in report.violations if _named(one) not in known)
    return AmendedSeal(seal.event_count, seal.root, seal.tree, at_first.ok, amendments, shows)


def _named(broken: Violation) -> tuple[str, str, int]:
    return broken.rule, broken.event_id, broken.offset


def judge_whole(records: Iterable[RawRecord], keys: Iterable[TrustedKey], load_blob: LoadBlob) -> Judged:
    """The same of all records, with what must not follow a seal as a violation."""
    audit = Audit()
    for record in records:
        audit.add(record)
    validity = Validity(audit.history)
    return Judged(audit.judge(validity, keys, load_blob), validity)


def spanned(chain: Sequence[Link]) -> list[dict[str, Any]]:
    """What is wrong between the jobs of a chain, and in those that are continued: each with the job it is of."""
    between = [_of_job(job_id, broken.to_json()) for job_id, broken in chain_violations(chain)]
    inside = [_of_job(one.job_id, broken.to_json()) for one in chain[1:] for broken in one.report.violations]
    return [*between, *inside]


def with_chain(chain: Sequence[Link]) -> dict[str, Any]:
    """The report on the first of these jobs, the newest, and on those that it goes on from."""
    report, beside = chain[0].report, spanned(chain)
    body = report.to_json()
    return {
        "job_id": chain[0].job_id,
        **body,
        "ok": report.ok and not beside,
        "violations": [*body["violations"], *beside],
        "continued": [
            {
                "job_id": one.job_id,
                "ok": one.report.ok,
                "event_chain_root_hash": one.report.event_chain_root_hash,
                "event_tree_root_hash": one.report.event_tree_root_hash,
                "installation": one.report.installation,
                "amended": None if one.report.amended is None else one.report.amended.to_json(),
            }
            for one in chain[1:]
        ],
        "settled_by_hand": [settlement for one in chain for settlement in words_of(one)],
    }


def violations_at_first(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of a report as JSON: what breaks a rule without what came behind its seals, as amendments show it."""
    continued = {one["job_id"]: one.get("amended") for one in report.get("continued", ())}
    known: list[dict[str, Any]] = [*_shown(report.get("amended"))]
    known += (_of_job(job_id, broken) for job_id, amended in continued.items() for broken in _shown(amended))
    return [broken for broken in report["violations"] if broken not in known]


def _shown(amended: Any) -> list[dict[str, Any]]:
    return amended["shows"] if amended else []


def check_exportable(report: ProofReport) -> None:
    """Only a history that holds, and is sealed, becomes evidence: as it was sealed at first, whatever came later.

    Raises:
        BadEvidence: naming the event that breaks a rule, or what is missing.
    """
    for broken in report.violations:
        where = f"event {broken.event_id} at offset {broken.offset}"
        raise BadEvidence(broken.rule, f"{where}: {broken.message}")
    if not report.seal.ok:
        raise BadEvidence("not_sealed", "the job is not sealed yet")


def check_whole(evidence: Evidence, judged: Sequence[Judged]) -> None:
    """Whether a history becomes evidence; `judged` is what the records of its chain give by the evidence's own keys.

    Raises:
        BadEvidence: as `check_exportable`; also where what it continues does not bear it out.
    """
    check_exportable(judged[0].at_first.report)
    for broken in judged[0].report.violations:
        if broken.rule.startswith("seal_"):
            raise BadEvidence(broken.rule, f"what amends its seal does not hold: {broken.message}")
    for broken in spanned(_links(evidence, [one.at_first for one in judged])):
        raise BadEvidence(broken["rule"], f"job {broken['job_id']}: {broken['message']}")


def statement(evidence: Evidence, judged: Sequence[Judged]) -> dict[str, Any]:
    """The statement on a job; `judged` is what the records of its chain give by the evidence's own keys.

    Raises:
        BadEvidence: as `check_whole`.
    """
    report = judged[0].report
    check_whole(evidence, judged)
    keys = [key.to_json() for key in evidence.keys]
    continued = [{"job_id": one.job_id, **_carried(one)} for one in evidence.continued]
    predicate = {
        "job_id": evidence.job_id,
        **_carried(evidence),
        **({"continued": continued} if continued else {}),
        **derived(judged[0].validity),
        "report": _summary(report),
        "amended": _stated(report),
        "keys": keys,
    }
    subject = _subject(evidence.job_id, report)
    return {
        "_type": STATEMENT_TYPE,
        "subject": subject,
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }


def read_statement(parsed: Any) -> Evidence:
    """The evidence in a parsed statement, not judged yet.

    Raises:
        BadEvidence.
    """
    try:
        if (parsed["_type"], parsed["predicateType"]) != (STATEMENT_TYPE, PREDICATE_TYPE):
            raise BadEvidence("bad_statement", f"not a {PREDICATE_TYPE}")
        predicate = parsed["predicate"]
        keys = tuple(keys_of(predicate["keys"]))
        earlier = tuple(_evidence(one, keys) for one in predicate.get("continued", []))
        return replace(_evidence(predicate, keys), continued=earlier)
    except (KeyError, TypeError, ValueError, AttributeError, BadKeys):
        raise BadEvidence("bad_statement", "lacks a part, or has one of another form") from None


def judge_statement(
    parsed: Any,
    evidence: Evidence,
    logged: "LogCheck",
    signers: Sequence[TrustedSigner] | None = None,
) -> dict[str, Any]:
    """The report, with what the evidence gets wrong as violations before those of the history."""
    keys = logged.keys
    judged = [judge(one.records, keys, one.blobs.__getitem__, signers) for one in evidence.chain]
    found = [_finding(rule, message) for rule, message in _wrong(parsed, evidence, judged[0])]
    found += [_finding(rule, message) for rule, message in logged.missing(evidence, judged[0])]
    for one, by in zip(evidence.continued, judged[1:], strict=True):
        found += [_of_job(one.job_id, _finding(rule, message)) for rule, message in logged.missing(one, by)]
    body = with_chain(_links(evidence, judged))
    return {**body, "ok": body["ok"] and not found, "violations": [*found, *body["violations"]]}


def large_results(history: History) -> Iterator[str]:
    """The hashes of results that are kept outside of the records."""
    for reports in history.finishes.values():
        for fact in reports:
            reference = fact.body.get("result_ref")
            if isinstance(reference, dict):
                yield str(cast("dict[str, Any]", reference).get("sha256"))


def _wrong(parsed: Any, evidence: Evidence, judged: Judged) -> Iterator[tuple[str, str]]:
    predicate, report = parsed["predicate"], judged.report
    subject = _subject(evidence.job_id, report)
    if parsed.get("subject") != subject:
        yield "subject_differs", "the statement's subject is not this job with this chain"
    stated = {**derived(judged.validity), "report": _summary(report), "amended": _stated(report)}
    for name, value in stated.items():
        if _text_of(predicate.get(name)) != _text_of(value):
            yield "derived_differs", f"{name} is not what the records say"


def _text_of(value: Any) -> str:
    """By which two values are the same: Python's own equality takes true for 1, and 1.0 too."""
    return json.dumps(value, sort_keys=True)


@dataclass(frozen=True)
class LogCheck:
    """Whether seals are in the log of seals: by the log's keys as they are at `now`; or by a policy.

    And whether an authority has put a time stamp on that, where some are named.
    """

    keys: Sequence[TrustedKey]
    now: datetime
    policy: LogPolicy | None
    authorities: TrustedAuthorities | None = None

    def missing(self, evidence: Evidence, judged: Judged) -> Iterator[tuple[str, str]]:
        """(rule, message) where the records are not the job's that it says, or their seal is not in the log."""
        seal = judged.report.seal
        if evidence.records and evidence.records[0].key != evidence.job_id.encode(errors="replace"):
            yield "other_job", "the records are another job's"
        if not seal.present:
            yield "not_sealed", "the records hold no seal"
            return
        yield from self.refusals(evidence.records[seal.at].value, evidence.inclusion)

    def refusals(self, line: bytes, inclusion: str) -> Iterator[tuple[str, str]]:
        """(rule, message) where a seal's line is not in the log by this proof, or came there too late."""
        try:
            if self.policy is None:
                open_inclusion(inclusion, log_entry(line), self.keys, self.now)
                seen = None
            else:
                seen = open_witnessed_inclusion(inclusion, log_entry(line), self.policy).at
            if self.authorities is not None:
                stamped = stamped_at(parse_inclusion(inclusion).checkpoint, self.authorities)
                seen = stamped if seen is None else min(seen, stamped)
            yield from self._late(line, seen)
        except BadNote as error:
            yield error.rule, f"log of seals: {error.message}"

    def _late(self, line: bytes, seen: datetime | None) -> Iterator[tuple[str, str]]:
        """It was there when others saw it: that, and not what it says itself, is when its key must count."""
        body = body_of(line) or {}
        key = keyring(self.keys, SEAL).get(str(body.get("key_id")))
        sealed_at = moment(str(body.get("sealed_at")))
        if seen is None:
            return
        if sealed_at is not None and sealed_at > seen + CLOCKS:
            yield "sealed_after_witnessed", "the seal says a later time than who has seen it"
        refusal = key.refusal(seen.isoformat()) if key is not None else None
        if refusal is not None:
            yield refusal[0], f"when it was first seen: {refusal[1]}"


def _subject(job_id: str, report: ProofReport) -> list[dict[str, Any]]:
    return [{"name": job_id, "digest": {CHAIN: report.event_chain_root_hash, TREE: report.event_tree_root_hash}}]


def _stated(report: ProofReport) -> dict[str, Any] | None:
    """What was sealed at first, and what came to light since."""
    return None if report.amended is None else report.amended.stated()


def _summary(report: ProofReport) -> dict[str, Any]:
    """The part of a report that follows from the records alone, whoever's keys are taken."""
    return {
        "execution_hash": report.execution_hash,
        "event_chain_root_hash": report.event_chain_root_hash,
        "event_tree_root_hash": report.event_tree_root_hash,
        "outcome_hash": report.outcome_hash,
        "event_count": report.event_count,
        "tool_invocation_ledger_proof": report.ledger.to_json(),
        "replay_proof_result": report.replay.to_json(),
    }


def _finding(rule: str, message: str) -> dict[str, Any]:
    return {"rule": rule, "event_id": "", "offset": -1, "message": message}


def _of_job(job_id: str, finding: dict[str, Any]) -> dict[str, Any]:
    return {**finding, "job_id": job_id}


def _links(evidence: Evidence, judged: Sequence[Judged]) -> list[Link]:
    chain = zip(evidence.chain, judged, strict=True)
    return [Link(one.job_id, by.report, by.validity, one.blobs.__getitem__) for one, by in chain]


def _carried(evidence: Evidence) -> dict[str, Any]:
    """What of one job goes with the statement."""
    return {
        "records": [record_json(record) for record in evidence.records],
        "blobs": {name: base64_text(data) for name, data in sorted(evidence.blobs.items())},
        "inclusion": evidence.inclusion,
    }


def _records(given: Iterable[Any]) -> tuple[RawRecord, ...]:
    """Of a statement, each of which is let go as soon as it is read: the job's size isn't needed twice."""
    left, found = list(given), list[RawRecord]()
    left.reverse()
    given = ()
    while left:
        found.append(read_record(left.pop()))
    return tuple(found)


def _evidence(one: Any, keys: tuple[TrustedKey, ...]) -> Evidence:
    return Evidence(
        job_id=_text(one["job_id"]),
        records=_records(one.pop("records")),
        blobs={str(name): read_bytes64(data) for name, data in one["blobs"].items()},
        inclusion=_text(one["inclusion"]),
        keys=keys,
    )


def record_json(record: RawRecord) -> dict[str, Any]:
    """A record in a statement."""
    return {
        "offset": record.offset,
        "key": None if record.key is None else base64_text(record.key),
        "headers": [[name, base64_text(value)] for name, value in record.headers],
        "value": base64_text(record.value),
    }


def read_record(one: Any) -> RawRecord:
    """Of a statement.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    offset, key = one["offset"], one["key"]
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise TypeError
    headers = tuple((_text(name), read_bytes64(value)) for name, value in one["headers"])
    return RawRecord(offset, None if key is None else read_bytes64(key), headers, read_bytes64(one["value"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def base64_text(data: bytes) -> str:
    """Bytes in a statement."""
    return base64.b64encode(data).decode()


def read_bytes64(text: Any) -> bytes:
    """Of a statement.

    Raises:
        TypeError, ValueError: it is no base64.
    """
    try:
        return binascii.a2b_base64(_text(text), strict_mode=True)
    except binascii.Error:
        raise ValueError from None


def dumps(value: Any) -> bytes:
    """A statement's bytes; what is signed are these bytes, not their meaning."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()
