"""Where lines of the log of seals that are no seals speak of a receipt, of an open job, or of an erased person (pure).

Whose they are is for who reads them again: here any line is taken for what it says it is.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from aetheris.proofs.log_lines import ANSWERS, ERASED, entries_of, job_hash, line_kind
from aetheris.proofs.records import body_of

_PREFIX = 8
"""Bytes of each hash that are kept: what they find is read again."""
MOST_INTERIM = 2_000
"""Lines with interim seals, the newest of each tenant, that are kept: who audits has seen those before."""


class LineIndex:
    """Eight bytes a receipt, and an offset an erased person, for good; and the newest interim seals."""

    def __init__(self) -> None:
        self._receipts = bytearray()
        self._begins: list[int] = []
        """Where each line's receipts begin in these."""
        self._offsets: list[int] = []
        self._erased: dict[bytes, list[int]] = {}
        self._interim: dict[str, deque[tuple[int, str, bytes]]] = defaultdict(lambda: deque(maxlen=MOST_INTERIM))

    def take(self, offset: int, line: bytes) -> bool:
        """The next line; whether it is none that seals a job."""
        kind = line_kind(line)
        if kind is None:
            return False
        body = body_of(line) or {}
        if kind == ANSWERS:
            self._begins.append(len(self._receipts))
            self._offsets.append(offset)
            self._receipts += _prefixes(body, "answers", "receipt")
        elif kind == ERASED:
            self._erased.setdefault(_cut(body.get("pseudonym")), []).append(offset)
        else:
            said = offset, str(body.get("salt")), _prefixes(body, "jobs", "job")
            self._interim[str(body.get("tenant"))].append(said)
        return True

    def of_receipt(self, receipt: str) -> list[int]:
        """The offsets of lines that may speak of a receipt, the oldest first; it is 64 hex digits."""
        wanted, found = bytes.fromhex(receipt)[:_PREFIX], list[int]()
        at = self._receipts.find(wanted)
        while at >= 0:
            if at % _PREFIX == 0:
                found.append(self._offsets[bisect_right(self._begins, at) - 1])
            at = self._receipts.find(wanted, at + 1)
        return found

    def of_erased(self, pseudonym: str) -> list[int]:
        """The offsets of lines that may say that a person was erased, the oldest first; it is 32 hex digits."""
        return self._erased.get(_cut(pseudonym), [])

    def of_job(self, tenant: str, job_id: str) -> list[int]:
        """The offsets of lines that may speak of a tenant's job, the newest first."""
        return [
            offset
            for offset, salt, jobs in reversed(self._interim.get(tenant, ()))
            if _has(jobs, bytes.fromhex(job_hash(salt, job_id))[:_PREFIX])
        ]


def _has(prefixes: bytes, wanted: bytes) -> bool:
    at = prefixes.find(wanted)
    while at >= 0 and at % _PREFIX:
        at = prefixes.find(wanted, at + 1)
    return at >= 0


def _prefixes(body: Mapping[str, Any], name: str, field: str) -> bytes:
    return b"".join(_cut(one.get(field)) for one in entries_of(body, name))


def _cut(digits: object) -> bytes:
    try:
        found = bytes.fromhex(digits)[:_PREFIX] if isinstance(digits, str) else b""
    except ValueError:
        return b""
    return found if len(found) == _PREFIX else b""
