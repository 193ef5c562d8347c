"""A backup, looked at whole before anything is touched: every byte against its hash, and what its fence must hold."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from aetheris.cli.backup import blob_copies, files
from aetheris.cli.backup.birth_places import BirthPlaces
from aetheris.cli.backup.fence import PartitionFence, TenantsSeen
from aetheris.cli.backup.files import BackupManifest, CopiedPartition
from aetheris.cli.backup.key_copies import KEYS
from aetheris.proofs.claims import log_entry
from aetheris.proofs.merkle import Tree, leaf_hash
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.log_homes import LOG_HOME_KEY
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.log_homes import LogHomes
from aetheris.protocol.tables.signed_messages import SignedMessages

Progress = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Examined:
    """A backup that is whole, and what it says of what must be held."""

    folder: Path
    manifest: BackupManifest
    sha256: str
    fences: dict[int, PartitionFence]
    orders: FreezeOrders
    homes: LogHomes
    births: BirthPlaces
    tenants: tuple[str, ...]
    seals: Tree


def examine(folder: Path, roots: Collection[str], progress: Progress) -> Examined:
    """Read all of a backup once; `roots`: whose orders count where it is restored, all where there are none.

    Raises:
        CommandError: it is none, or some of it is not what was written there; the file is named. Or its records lie
            at other offsets than they name.
    """
    manifest, sha256 = files.load(folder)
    fences = {number: PartitionFence(number) for number in range(manifest.partitions)}
    orders, homes, tenants, seals = FreezeOrders(), LogHomes(), TenantsSeen(), Tree()
    messages, births = SignedMessages(roots), BirthPlaces(_begins_of_cut(manifest))
    for topic, partitions in sorted(manifest.topics.items(), key=lambda one: one[0] != Topic.JOBS_INDEX):
        for of in partitions:
            for record in _checked(folder, topic, of):
                if topic == Topic.JOBS_INDEX:
                    births.index_says(record)
                elif topic == Topic.JOBS_EVENTS and of.partition in fences:
                    births.lies(record)
                    fences[of.partition].take(record)
                elif topic == Topic.FREEZES:
                    _order(orders, messages, record)
                elif topic == Topic.POLICIES:
                    _home(homes, messages, record)
                elif topic == Topic.JOBS_SEALS:
                    seals.append(leaf_hash(log_entry(record.value)))
                tenants.take(record)
        progress("checked", f"{topic}: {sum(of.records for of in partitions)} records")
    _check_shape(folder, manifest, seals)
    births.check()
    if manifest.keys_sha256 is not None and files.file_sha256(folder / KEYS) != manifest.keys_sha256:
        raise files.damaged(folder / KEYS, "has other bytes than the manifest names")
    if manifest.blobs is not None:
        blob_copies.check(folder, manifest.blobs, manifest.blobs_sha256)
        progress("checked", f"{manifest.blobs} blobs")
    return Examined(folder, manifest, sha256, fences, orders, homes, births, tuple(tenants.names), seals)


def _checked(folder: Path, topic: str, of: CopiedPartition) -> Iterator[Record]:
    path = folder / files.log_path(topic, of.partition)
    if files.file_sha256(path) != of.file_sha256:
        raise files.damaged(path, "has other bytes than the manifest names")
    return files.records_of(folder, topic, of)


def _begins_of_cut(manifest: BackupManifest) -> dict[int, int]:
    events = manifest.topics.get(Topic.JOBS_EVENTS, ())
    return {of.partition: of.begin for of in events if of.partition in manifest.cut}


def _check_shape(folder: Path, manifest: BackupManifest, seals: Tree) -> None:
    numbers = [of.partition for of in manifest.topics.get(Topic.JOBS_EVENTS, ())]
    if sorted(numbers) != list(range(manifest.partitions)):
        raise files.damaged(folder / files.MANIFEST, "does not name each partition of jobs.events once")
    if (len(seals), seals.root(len(seals)).hex()) != (manifest.seals.size, manifest.seals.root):
        raise files.damaged(folder / files.log_path(Topic.JOBS_SEALS, 0), "is another log of seals than was copied")


def _order(orders: FreezeOrders, messages: SignedMessages, record: Record) -> None:
    """As services take it: only what a gateway has signed counts, or a ledger."""
    said, key = orders.read(record.value), record.key or b""
    if (
        said is not None
        and said.key.encode() == key
        and messages.counts(record.topic, said.type_name, key, record.value)
    ):
        orders.hear(said)


def _home(homes: LogHomes, messages: SignedMessages, record: Record) -> None:
    said, key = homes.read(record.value), record.key or b""
    if (
        said is not None
        and key == LOG_HOME_KEY.encode()
        and messages.counts(record.topic, said.type_name, key, record.value)
    ):
        homes.hear(said)
