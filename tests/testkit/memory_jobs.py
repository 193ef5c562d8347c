"""Jobs that ran in memory, as records and sealed, so that proofs can be asked of them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from aetheris.proofs import RawRecord
from aetheris.proofs.continued import Link
from aetheris.proofs.evidence import judge
from aetheris.protocol.base.topics import Topic
from aetheris.testing import MemorySystem
from tests.testkit.evidence import TRUSTED, sealed
from tests.testkit.proof_histories import Log

Body = dict[str, Any]
Change = Callable[[str, Body], None]
"""Changes the body of a record of a type, before it is sealed."""


def sealed_jobs(system: MemorySystem, changes: Mapping[str, Change] | None = None) -> dict[str, list[RawRecord]]:
    """Job → its records, changed as is said for it, and sealed over that by a key that counts."""
    found: dict[str, list[RawRecord]] = {}
    for entry in system._topics.read(Topic.JOBS_EVENTS, 0):  # pyright: ignore[reportPrivateUsage]
        record = entry.record
        raw = RawRecord(record.offset, record.key, record.headers, record.value)
        found.setdefault((record.key or b"").decode(), []).append(raw)
    return {job: _sealed(job, records, (changes or {}).get(job)) for job, records in found.items()}


def link_of(records: list[RawRecord]) -> Link:
    """A job, judged by itself."""
    judged = judge(records, TRUSTED, {}.__getitem__)
    return Link((records[0].key or b"").decode(), judged.report, judged.validity)


def _sealed(job: str, records: list[RawRecord], change: Change | None) -> list[RawRecord]:
    log = Log(created=False, job=job, tenant=str(json.loads(records[0].value)["tenant"]))
    for at, record in enumerate(records):
        body = json.loads(record.value)
        if change is not None:
            kind = record.header("ce_type").decode().removeprefix("io.aetheris.").rpartition(".")[0]
            change(kind, body)
        log.records.append(RawRecord(10 * at, record.key, record.headers, json.dumps(body).encode()))
    return sealed(log).records
