"""A corpus of tamperings: what somebody might do to a job's evidence, each with the rule by which it is refused.

Three powers: of a stranger, who has the bundle alone; of who holds the key that signs envelopes; of an operator who
holds all keys, writes the records anew, and has them chained, sealed, logged and signed. Each is a function with its
name; a reader of bundles is held against them by `bundle`, with `keys` as those that it trusts.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from aetheris.cli import streamfile
from aetheris.proofs import RawRecord
from aetheris.proofs.derived_evidence import derived
from aetheris.proofs.evidence import judge
from tests.testkit.evidence import TRUSTED, bundle_of, evidence_of, sealed
from tests.testkit.forged_bundles import resigned
from tests.testkit.proof_histories import Log, digest
from tests.testkit.refused import record_json

FOLDER = Path(__file__).parent.parent / "replay" / "tampered"
BASES = ("run", "crash", "human", "timer", "undone", "approved", "turns", "goal")
"""Histories of a real system, and simulated ones where those have no approvals (tests/testkit/golden.py made them all):
without seal, and of a job whose records nobody signs. They are kept as they are, since tamperings know their places."""
KEYS = TRUSTED
STARTED, FINISHED, COMMITTED = "tool_invocation_started", "tool_invocation_finished", "command_committed"
ZERO = "0" * 64

Body = dict[str, Any]
Records = list[RawRecord]
Statement = dict[str, Any]


@dataclass(frozen=True)
class Tampering:
    """One of the corpus: `rules` are among those by which it is refused."""

    name: str
    power: str
    base: str
    rules: frozenset[str]
    make: Callable[[], bytes]

    @property
    def bundle(self) -> bytes:
        """What a reader is given."""
        return self.make()


CORPUS: dict[str, Tampering] = {}


def history(base: str) -> Records:
    """The records of a base."""
    return list(_history(base))


@cache
def _history(base: str) -> tuple[RawRecord, ...]:
    return tuple(streamfile.read(FOLDER / f"{base}.jsonl").raw())


def kind_of(record: RawRecord) -> str:
    return record.header("ce_type").decode().split(".")[2]


def with_body(record: RawRecord, body: Body) -> RawRecord:
    return replace(record, value=json.dumps(body).encode())


def sealed_anew(records: Sequence[RawRecord]) -> Records:
    """With a seal over them all, by the key that is trusted."""
    created = json.loads(records[0].value) if records else {}
    log = Log(created=False, job=str(created.get("job_id")), tenant=str(created.get("tenant")))
    log.records = list(records)
    return sealed(log).records


def forged(records: Sequence[RawRecord]) -> bytes:
    """The bundle that an operator makes of records, whatever they say: all in it follows from them, and is good."""
    evidence = evidence_of(records)
    judged = judge(records, TRUSTED, evidence.blobs.__getitem__)
    report = judged.report.to_json()
    names = ("execution_hash", "event_chain_root_hash", "event_tree_root_hash", "outcome_hash", "event_count")
    good = {
        "tool_invocation_ledger_proof": {"ok": True, "pending_idempotency_keys": []},
        "replay_proof_result": {"ok": True, "error": ""},
    }

    def change(statement: Statement) -> None:
        predicate = statement["predicate"]
        predicate |= derived(judged.validity) | {"report": {name: report[name] for name in names} | good}
        predicate |= {"job_id": evidence.job_id, "inclusion": evidence.inclusion}
        predicate["amended"] = None if judged.report.amended is None else judged.report.amended.stated()
        predicate["records"] = [record_json(record) for record in records]
        digest = {
            "aetherisEventChain": report["event_chain_root_hash"],
            "aetherisEventTree": report["event_tree_root_hash"],
        }
        statement["subject"] = [{"name": evidence.job_id, "digest": digest}]

    return resigned(honest("run"), change)


@cache
def honest(base: str) -> bytes:
    """A bundle in which nothing is wrong."""
    return bundle_of(sealed_anew(history(base)))


# How each is added.


def by_operator(base: str, *rules: str) -> Callable[[Callable[[Records], object]], Callable[[Records], object]]:
    """Changes the records before they are sealed; what it returns, if anything, are the records."""

    def take(change: Callable[[Records], object]) -> Callable[[Records], object]:
        def make() -> bytes:
            records = history(base)
            found = change(records)
            return forged(sealed_anew(found if isinstance(found, list) else records))

        tampered(change.__name__, "operator", base, rules, make)
        return change

    return take


def behind_the_seal(base: str, *rules: str) -> Callable[[Callable[[Records], object]], Callable[[Records], object]]:
    """Changes sealed records, and has them enveloped again: the key that seals is somebody else's."""

    def take(change: Callable[[Records], object]) -> Callable[[Records], object]:
        def make() -> bytes:
            records = sealed_anew(history(base))
            found = change(records)
            return forged(found if isinstance(found, list) else records)

        tampered(change.__name__, "envelope", base, rules, make)
        return change

    return take


def by_envelope(base: str, *rules: str) -> Callable[[Callable[[Statement], object]], Callable[[Statement], object]]:
    """Changes the statement, and signs it again."""

    def take(change: Callable[[Statement], object]) -> Callable[[Statement], object]:
        tampered(change.__name__, "envelope", base, rules, lambda: resigned(honest(base), change))
        return change

    return take


def by_stranger(base: str, *rules: str) -> Callable[[Callable[[bytes], bytes]], Callable[[bytes], bytes]]:
    """Changes the bytes."""

    def take(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        tampered(change.__name__, "stranger", base, rules, lambda: change(honest(base)))
        return change

    return take


def tampered(name: str, power: str, base: str, rules: Sequence[str], make: Callable[[], bytes]) -> None:
    """Put one into the corpus."""
    if name in CORPUS:
        raise ValueError(f"two tamperings are called {name}")
    CORPUS[name] = Tampering(name, power, base, frozenset(rules), make)


# What is done to records.


def at(records: Records, kind: str, number: int = 0, **having: Any) -> int:
    """The place of the record of a type, by its number among those that say this."""
    places = [
        place
        for place, record in enumerate(records)
        if kind_of(record) == kind and having.items() <= json.loads(record.value).items()
    ]
    return places[number]


def body_at(records: Records, place: int) -> Body:
    return json.loads(records[place].value)


def edit(records: Records, kind: str, number: int = 0, /, having: Body | None = None, **fields: Any) -> None:
    """Other fields in a record; what is None is left out."""
    place = at(records, kind, number, **(having or {}))
    body = body_at(records, place) | fields
    records[place] = with_body(records[place], {name: value for name, value in body.items() if value is not None})


def drop(records: Records, kind: str, number: int = 0, /, **having: Any) -> RawRecord:
    return records.pop(at(records, kind, number, **having))


def retyped(record: RawRecord, kind: str, version: int = 1) -> RawRecord:
    return with_header(record, "ce_type", f"io.aetheris.{kind}.v{version}")


def with_header(record: RawRecord, name: str, value: str) -> RawRecord:
    return replace(record, headers=tuple({**dict(record.headers), name: value.encode()}.items()))


def again(record: RawRecord, event_id: str = "another", **fields: Any) -> RawRecord:
    """A record like another, under an id of its own."""
    body = json.loads(record.value) | fields
    return with_header(with_body(record, {k: v for k, v in body.items() if v is not None}), "ce_id", event_id)


def renumbered(records: Records) -> Records:
    return [replace(record, offset=place) for place, record in enumerate(records)]


def put_behind(records: Records, place: int, *more: RawRecord) -> Records:
    return renumbered([*records[: place + 1], *more, *records[place + 1 :]])


def raw_text(record: RawRecord, old: str, new: str) -> RawRecord:
    return replace(record, value=record.value.replace(old.encode(), new.encode(), 1))


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def success(records: Records, node: str) -> int:
    """The place of the end by which a node succeeded."""
    return at(records, FINISHED, 0, node_id=node, outcome="success")


def other_result(records: Records, node: str, result: Any) -> None:
    """Everywhere it is recorded, with its hash."""
    old = body_at(records, success(records, node))["output_hash"]
    for place, record in enumerate(records):
        body = json.loads(record.value)
        if body.get("node_id") == node and body.get("output_hash") == old:
            body |= {"output_hash": digest(result)} | ({"result": result} if "result" in body else {})
            records[place] = with_body(record, body)
