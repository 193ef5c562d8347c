"""An installation's keys, and what a process of it judges and signs with them; those of another, for a forger."""

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.signing import Revocation, key_id_of
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Standing
from aetheris.protocol.messages.commands import NumberedOrder, PartitionAnswer, RulesBarrier
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import Event, JobCreated
from aetheris.protocol.tables.rules_orders import PartitionRules, RulesOrders
from aetheris.runtime.keys.files import certified
from aetheris.runtime.keys.records import UNSIGNED, PartitionRecords, RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer, raw_public_key
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.simulation.log import TIME, Body, Entry, WholeBatch

OWN, OTHER = "own", "other"
"""The roots: that of the installation, and one that the forger has made."""

SOURCE = "aetheris/simulation"
CLOCK = VirtualClock()
_FROM, _UNTIL = CLOCK.now().replace(year=2025), CLOCK.now().replace(year=2027)


@cache
def signer(party: Party, root: str = OWN) -> Signer:
    """A service's key, certified by a root."""
    key = _key(f"{root} {party}")
    return Signer(key, certified(_key(root), party, raw_public_key(key), _FROM, _UNTIL))


@cache
def installation(root: str = OWN) -> str:
    """A root's key id."""
    return key_id_of(raw_public_key(_key(root)))


@cache
def keys_of(*parties: Party) -> RecordKeys:
    """What a process has that is these services; of none it only knows the root."""
    own = RecordSigner({party: signer(party) for party in parties}, CLOCK) if parties else None
    return RecordKeys(frozenset((installation(),)), own)


@cache
def revoked_elsewhere(party: Party) -> Revocation:
    """The word of the other root that this installation's key is revoked."""
    root = _key(OTHER)
    said = Revocation(signer(party).key_id, CLOCK.now().isoformat(), "forged", raw_public_key(root))
    return replace(said, signature=root.sign(said.message()))


_OF_ITS_PLACE = ("partition", "as_of")


class SimRecords:
    """Of one process, in one partition: judges what it reads and signs what it writes, as the services do."""

    def __init__(self, keys: RecordKeys = UNSIGNED, number: int = 0, orders: RulesOrders | None = None) -> None:
        self._records = PartitionRecords(keys, number, orders)
        self._keys = keys

    @property
    def rules(self) -> PartitionRules:
        """Under which version of the rules jobs are created there."""
        return self._records.rules

    def begin(self, since: int, live: Collection[tuple[str, int]] = ()) -> None:
        """From where records are read from here on."""
        self._records.begin(since, live)

    def judge(self, entry: Entry) -> Standing:
        """What the next record of jobs.events is worth; a partition's barrier is nobody's."""
        self._records.read(entry.record.offset)
        if isinstance(entry.body, RulesBarrier):
            self.rules.passed(entry.body, entry.record.offset)
        return self._records.judge(entry.record, entry.body) if isinstance(entry.body, Event) else Standing.COUNTS

    def pass_over(self, entry: Entry) -> None:
        """A record that its version can't read was read: nobody judges what it says."""
        self._records.read(entry.record.offset)

    def counts(self, entry: Entry) -> bool:
        """Whether it counts."""
        return self.judge(entry) is Standing.COUNTS

    def signed(self, batches: Sequence[WholeBatch]) -> Sequence[WholeBatch]:
        """A round, with the bytes of what it writes into jobs.events; where there is no root, as it is."""
        if not self._keys.roots:
            return batches
        drafted = [drafts_of(one) if one.topic is Topic.JOBS_EVENTS else () for one in batches]
        signed = self._records.signed(drafted)
        return [written(one, drafts) if drafts else one for one, drafts in zip(batches, signed, strict=True)]


def line(topic: Topic, id_: str, body: NumberedOrder | PartitionAnswer, keys: RecordKeys) -> WholeBatch:
    """A line of a table, signed where the process has the key; where there is no root, as it is."""
    if not keys.roots:
        return WholeBatch(topic, ((id_, body),))
    drafted = draft(topic, body, key=body.key, id=id_, source=SOURCE, time=TIME)
    return WholeBatch(topic, ((id_, body),), (keys.message(drafted),))


def drafts_of(batch: WholeBatch) -> tuple[Draft, ...]:
    """Its records, unsigned."""
    return tuple(
        draft(batch.topic, body, key=str(getattr(body, "job_id", "-")), id=id_, source=SOURCE, time=TIME)
        for id_, body in batch.bodies
    )


def written(batch: WholeBatch, drafts: tuple[Draft, ...]) -> WholeBatch:
    """The batch, in these bytes; a birth says which root it is signed under."""
    bodies = tuple((id_, _under_root(body, held)) for (id_, body), held in zip(batch.bodies, drafts, strict=True))
    return replace(batch, bodies=bodies, drafts=drafts)


def _under_root(body: Body, held: Draft) -> Body:
    if not isinstance(body, JobCreated):
        return body
    said = json.loads(held.value)
    return body.model_copy(update={"installation": installation()} | {name: said.get(name) for name in _OF_ITS_PLACE})


def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(sha256(f"simulated {name}".encode()).digest())
