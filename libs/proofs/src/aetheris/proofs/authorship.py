"""Whose the records of a signed job are: what its writer has not signed says nothing (docs/adr/0009-signed-records.md).

Stated over raw records, apart from the fold's own: a job is signed if its creation names a root.
"""

import hashlib
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from aetheris.proofs.records import Body, Fact, LoggedRecord, RawRecord, read
from aetheris.proofs.signatures import BadSignature, certified, fingerprint, holds, opened, revoked
from aetheris.proofs.writers import FOLLOWING, SIGNING, is_nobodys, signer

TOPIC = "aetheris.jobs.events.v1"
REACH = 10_000
"""Up to so far behind an offset that its writer knew to be taken a signed creation counts: further on it is a copy."""


class Authorship:
    """Judges the records of one job, in log order."""

    def __init__(self) -> None:
        self.installation: str | None = None
        """The root that its creation names; None for a job whose records are not signed, or that is not created."""
        self.born = ""
        """hex SHA-256 of the value of the creation that counts."""
        self._is_born = False
        self._keys: dict[str, tuple[str, bytes]] = {}
        """Key id → the service that it is certified for, and the raw public key."""
        self.revoked: set[str] = set()
        """Keys that count no more from here on."""
        self._times: dict[str, list[tuple[str, str]]] = {}
        """Key id → when its certificates in this job are in force."""
        self.untimely: list[Fact] = []
        """What was signed, by its writer's date, when no certificate of its key was in force; it counts."""

    def begin(self, born: str, installation: str | None) -> None:
        """Take as created what is left out of a bundle; whether it was so, the signatures of what follows say."""
        if not self._is_born:
            self._is_born, self.installation, self.born = True, installation, born

    def know(self, certificate: object) -> None:
        """Take the certificate that a record carried which is left out; it counts as far as its root signed it."""
        found = certified(certificate, self.installation) if self.installation is not None else None
        if found is not None:
            self._keys.setdefault(fingerprint(found[1]), found)

    def is_proved(self, record: LoggedRecord, fact: Fact) -> bool:
        """Whether it is by who may write it, as far as that is asked for; each record is asked about once."""
        if fact.type in FOLLOWING:
            return True
        if fact.type == "job_created":
            return self._is_created(record, fact)
        if self.installation is None:
            return True
        if fact.type == "key_revoked":
            return self._is_revocation(self.installation, fact)
        if is_nobodys(fact.type, fact.body):
            return False
        service = signer(fact.type, fact.body)
        return service not in SIGNING or self._is_by(service, self.installation, record, fact)

    def _is_created(self, record: LoggedRecord, fact: Fact) -> bool:
        """The first that is proved is the creation; whether another may come, the rules of a history say."""
        root = fact.body.get("installation")
        if self._is_born:
            return self.installation is None or self._is_by("planner", self.installation, record, fact)
        if root is not None and not (isinstance(root, str) and self._is_begun(root, record, fact)):
            return False
        self._is_born, self.installation = True, root
        self.born = hashlib.sha256(record.value).hexdigest()
        return True

    def _is_begun(self, root: str, record: LoggedRecord, fact: Fact) -> bool:
        return _lies_in_reach(fact) and self._is_by("planner", root, record, fact)

    def _is_revocation(self, installation: str, fact: Fact) -> bool:
        try:
            key_id = revoked(fact.body, installation)
        except ValueError:
            return False
        if key_id is not None:
            self.revoked.add(key_id)
        return key_id is not None

    def _is_by(self, service: str, installation: str, record: LoggedRecord, fact: Fact) -> bool:
        try:
            return self._is_signed(service, installation, record, fact)
        except (BadSignature, ValueError):  # what has no canonical form is signed by nobody
            return False

    def _is_signed(self, service: str, installation: str, record: LoggedRecord, fact: Fact) -> bool:
        signed = opened(record.value)
        if signed.key_id in self.revoked:
            return False
        carried = fact.body.get("certificate")
        brought = certified(carried, installation) if carried is not None else None
        known = self._keys.get(signed.key_id) or brought
        if known is None or known[0] != service:
            return False
        of_birth = fact.type in ("job_created", "birth_repeated")
        place = {
            "installation": installation,
            "topic": TOPIC,
            "type": fact.type,
            "key": fact.job,
            "born": None if of_birth else self.born,
            "sequence": None,
        }
        if not holds(signed, place, known[1]):
            return False
        self._keys[signed.key_id] = known
        self._compare_times(signed.key_id, fact, carried if brought == known else None)
        return True

    def _compare_times(self, key_id: str, fact: Fact, carried: Body | None) -> None:
        """By the writer's own clock, `ce_time`, which nobody signs: anybody may repeat a record under another.

        `carried`: the key's certificate, where the record brings it along.
        """
        times = self._times.setdefault(key_id, [])
        if carried is not None:
            times.append((carried["not_before"], carried["not_after"]))
        said = _moment(fact.time)
        if said is None or not any(_is_within(said, *one) for one in times):
            self.untimely.append(fact)


def _lies_in_reach(fact: Fact) -> bool:
    as_of = fact.body.get("as_of")
    return type(as_of) is int and as_of < fact.offset <= as_of + REACH


def _is_within(said: datetime, begin: str, end: str) -> bool:
    first, last = _moment(begin), _moment(end)
    return first is not None and last is not None and first <= said <= last


@lru_cache(maxsize=1024)
def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def since_birth(records: Sequence[RawRecord], roots: Collection[str]) -> Sequence[RawRecord]:
    """The records from the first creation on that is signed under one of these roots; all of them where none is.

    For services that know these roots alone the job begins there: what lies before it created nothing.
    """
    for at, record in enumerate(records):
        fact, authors = read(record, at)[0], Authorship()
        is_created = fact.type == "job_created" and authors.is_proved(record, fact)
        if is_created and authors.installation in roots:
            return records[at:]
    return records
