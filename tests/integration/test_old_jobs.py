"""An old job with much of others' behind it, and within it: what the broker sends for it is counted. Real Kafka.

A real gateway, in this process, and what the verifier answers from; the partition is filled by the test.
"""

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.stretches import Stretch
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import JobBehind, JobIndexEntry, Message
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.runtime.kafka import batches, reader
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import Place
from aetheris.runtime.log.job_lines import JobLines
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.table import Table
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.proofs import Proofs
from aetheris.verifier.seallog import SealLog
from tests.testkit.evidence import KEY, OTHER_KEY, SEALED_AT
from tests.testkit.gateways import DEADLINE_S, PARTITIONS, GatewaySurroundings, eventually, running, settings_of
from tests.testkit.proof_histories import TENANT
from tests.testkit.stored_jobs import StoredJob, stored_job

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

MIB = 1024 * 1024
WITHIN, BEHIND = 20, 50
"""MiB of others' records."""
FILLER = 100_000
FEW = 1_100
"""Records of no size, so that two stretches are told apart."""
READS = ("", "/events", "/contracts", "/effects", "/ledger", "/trace", "/replay")


@dataclass
class Sent:
    """What brokers sent of one partition, in bytes."""

    place: Place = ("", 0)
    bytes: int = 0


@dataclass
class OldJob:
    """A sealed job, and who shows it."""

    surroundings: GatewaySurroundings
    proofs: Proofs
    sent: Sent
    job: StoredJob
    birth: int
    stretches: tuple[Stretch, ...]
    told: list[Any] = field(default_factory=list[Any])

    @property
    def id(self) -> str:
        return self.job.id

    async def is_said_to_lie(self, *stretches: Stretch) -> None:
        """The line in jobs.index."""
        line = JobIndexEntry(
            job_id=self.id,
            birth=self.birth,
            request_hash="r",
            status="completed",
            tenant=TENANT,
            submitted_by="me",
            created_at=SEALED_AT,
            stretches=stretches,
        )
        await self._say(self.id, line)

    async def is_said_to_lie_behind(self, *stretches: Stretch) -> None:
        line = JobBehind(of_job=self.id, stretches=stretches)
        await self._say(JobBehind.key_of(self.id), line)

    async def _say(self, key: str, line: Message) -> None:
        """Into jobs.index; gateway and verifier have read it, as the gateway has read what lies behind it."""
        await self.surroundings.say(Topic.JOBS_INDEX, key, line)
        names = (f"marker-{uuid.uuid4().hex}" for _ in range(1000))
        marker = next(name for name in names if partition_of(name, PARTITIONS) == partition_of(key, PARTITIONS))
        await self.surroundings.list_as(marker, "running", 0)
        async with self.surroundings.raw() as raw:

            async def is_listed() -> bool:
                page = (await raw.get("/jobs", params={"status": "running", "limit": 200})).json()
                return marker in {row["job_id"] for row in page["jobs"]}

            await eventually(is_listed)
        await self.proofs.index.load()

    async def costs(self, ask: Callable[[], Awaitable[Any]]) -> float:
        """What an answer takes off the partition, in MiB; the answer is kept."""
        self.sent.bytes = 0
        self.told.append(await ask())
        return self.sent.bytes / MIB

    async def shown(self, path: str) -> Any:
        async with self.surroundings.raw() as raw:
            answer = await raw.get(f"/jobs/{self.id}{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def asked(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """Every way in which a job is read, by name."""
        shown = {path or "/": (lambda path=path: self.shown(path)) for path in READS}
        return {
            **shown,
            "verify": lambda: self.proofs.verify(self.id, TENANT),
            "stream": lambda: self.proofs.stream(self.id, TENANT),
        }


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    sent, unpack = Sent(), batches.unpack

    def counted(taken: bytes, place: Place, position: int) -> Iterator[tuple[list[Record], int]]:
        if place == sent.place:
            sent.bytes += len(taken)
        return unpack(taken, place, position)

    monkeypatch.setattr(reader, "unpack", counted)
    return sent


async def fill(surroundings: GatewaySurroundings, place: Place, mib: int) -> None:
    """Other jobs' records: `FEW` of no size, and large ones."""
    few = [(Draft(place[0], b"others", b"{}", partition=place[1]),) for _ in range(FEW)]
    large = [(Draft(place[0], b"others", bytes(FILLER), partition=place[1]),) for _ in range(mib * MIB // FILLER)]
    await surroundings.appender.append([*few, *large])


@pytest.fixture
async def old(kafka: str, valkey_url: str, tmp_path: Path, sent: Sent) -> AsyncGenerator[OldJob]:
    async with running(settings_of(kafka, valkey_url, tmp_path), TENANT) as surroundings:
        job = stored_job()
        place = (str(Topic.JOBS_EVENTS), partition_of(job.id, PARTITIONS))
        sent.place = place
        creation_offset = (await surroundings.log.end_offsets([place]))[place]
        drafts = [Draft(place[0], job.id.encode(), record.value, record.headers) for record in job.records]
        await surroundings.appender.append([(Draft(Topic.JOBS_SEALS, job.id.encode(), job.seal),)])
        await surroundings.appender.append([(one,) for one in drafts[:3]])
        await fill(surroundings, place, WITHIN)
        last = (await surroundings.log.end_offsets([place]))[place]
        await surroundings.appender.append([(one,) for one in drafts[3:]])
        await fill(surroundings, place, BEHIND)
        clock = SystemClock()
        parts = cast(
            "Any", SimpleNamespace(clock=clock, settings=surroundings.settings, blobs=FolderBlobs(tmp_path / "blobs"))
        )
        index, history, keys = (
            Table(surroundings.log, Topic.JOBS_INDEX, JobLines()),
            JobLogReader(surroundings.log),
            SealKeys(KEY, OTHER_KEY),
        )
        seals = SealLog(surroundings.log, keys, "example.com/seals", tmp_path / "checkpoint", DEADLINE_S)
        proofs = Proofs(parts, index, history, keys, seals, DEADLINE_S)
        stretches = ((creation_offset, creation_offset + 3), (last, last + len(drafts) - 3))
        yield OldJob(surroundings, proofs, sent, job, creation_offset, stretches)
        await history.close()


async def test_an_old_job_costs_what_it_is_long_and_nothing_is_left_out(old: OldJob) -> None:
    await old.is_said_to_lie()
    before = {name: await old.costs(ask) for name, ask in old.asked().items()}
    await old.is_said_to_lie((old.birth, old.stretches[-1][1]))
    within = {name: await old.costs(ask) for name, ask in old.asked().items()}
    await old.is_said_to_lie(*old.stretches)
    after = {name: await old.costs(ask) for name, ask in old.asked().items()}
    for name, mib in before.items():
        print(f"{name}: {mib:.1f} MiB, {within[name]:.1f} MiB, {after[name]:.1f} MiB")  # noqa: T201  the figures
    assert min(before.values()) > WITHIN + BEHIND - 1
    assert WITHIN - 1 < min(within.values()) <= max(within.values()) < 1.5 * WITHIN  # batches are sent whole
    assert max(after.values()) < 3
    answers = [old.told[at :: len(before)] for at in range(len(before))]
    assert all(one == two == three for one, two, three in answers)
    verified = answers[list(before).index("verify")][0]
    assert (verified["ok"], verified["seal"]["ok"]) == (True, True)


@pytest.mark.parametrize("cut", ["the end", "the middle", "too far"])
async def test_a_line_that_lies_costs_the_whole_and_shows_the_whole(old: OldJob, cut: str) -> None:
    (creation_offset, first), (last, end) = old.stretches
    await old.is_said_to_lie()
    reported = await old.shown("/events")
    lying = {
        "the end": ((creation_offset, first), (last, end - 2)),
        "the middle": ((creation_offset, creation_offset + 1), (last, end)),
        "too far": ((creation_offset, 10**12),),
    }[cut]
    await old.is_said_to_lie(*lying)
    assert await old.costs(lambda: old.shown("/events")) > WITHIN + BEHIND - 1
    assert old.told[-1] == reported
    assert (await old.proofs.verify(old.id, TENANT))["ok"]


async def test_what_came_behind_the_seal_is_shown_and_is_no_part_of_what_is_verified(old: OldJob) -> None:
    await old.is_said_to_lie(*old.stretches)
    sealed = await old.proofs.verify(old.id, TENANT)
    recorded = ev.ConfirmationFailed.model_validate(
        {
            "job_id": old.id,
            "node_id": "a",
            "idempotency_key": "k",
            "invocation_id": "n1",
            "ask": "x",
            "reason": "unknown",
        }
        | {"resource": {}, "mode": "reconcile", "place": 0, "of": 1}
    )
    late = (await old.surroundings.log.end_offsets([old.sent.place]))[old.sent.place]
    await old.surroundings.appender.append(
        [(draft(Topic.JOBS_EVENTS, recorded, key=old.id, id="late", source="t", time=SEALED_AT),)]
    )
    await fill(old.surroundings, old.sent.place, 2)
    assert "late" not in {event["id"] for event in await old.shown("/events")}
    await old.is_said_to_lie_behind((late, late + 1))
    assert await old.costs(lambda: old.shown("/events")) < 4
    assert old.told[-1][-1]["id"] == "late"
    verified = await old.proofs.verify(old.id, TENANT)
    changed = {name for name in verified if verified[name] != sealed[name]}
    assert verified["ok"]
    assert changed <= {"event_count", "event_chain_root_hash", "seal", "after_seal"}
    assert [one["event_id"] for one in verified["after_seal"]] == ["late"]
    assert verified["seal"]["root"] == sealed["seal"]["root"]
