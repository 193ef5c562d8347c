"""Who was erased gets into the log of seals once, whoever writes, and by the word of a gateway alone."""

import asyncio
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs.log_lines import erased_of, erased_payload, read_line, sign_line
from aetheris.proofs.trust import SEAL, keyring
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.seal_lines import ERASURE_KEY, ErasedSubjectLine, SubjectErasure
from aetheris.protocol.tables.signed_messages import IsTheirs
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.log.table import Table
from aetheris.testkit.memory import MemoryLog
from aetheris.verifier import erasure_lines
from aetheris.verifier.erasure_lines import ErasureLines
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.seallog import SealLog

SEALING = Ed25519PrivateKey.generate()
KEYS = SealKeys(SEALING, Ed25519PrivateKey.generate())
K, OTHER, STRANGER = "a" * 32, "b" * 32, Ed25519PrivateKey.generate()


def order(pseudonym: str, key: str = ERASURE_KEY) -> Draft:
    said = SubjectErasure(pseudonym=pseudonym, erased_at="2026-01-01T00:00:00+00:00", by="olga")
    return draft(Topic.POLICIES, said, key=key, id="i", source="s", time="t")


def line(pseudonym: str, key: Ed25519PrivateKey) -> Draft:
    payload = erased_payload(pseudonym=pseudonym, erased_at="then", at="2026-01-01T00:00:00+00:00", salt="0" * 32)
    said = ErasedSubjectLine.model_validate(sign_line(payload, key))
    return draft(Topic.JOBS_SEALS, said, key="k", id="i", source="s", time="t")


def of_anybody(_topic: str, _name: str, _key: bytes, _value: bytes) -> bool:
    return True


class ErasureAuditor:
    """One life of a verifier that logs erasures, on a log that outlives it."""

    def __init__(self, log: MemoryLog, folder: Path, *, is_theirs: IsTheirs = of_anybody, owns: bool = True) -> None:
        table = Table(cast("Any", log), Topic.POLICIES)
        runtime = SimpleNamespace(clock=SystemClock(), log=log, appender=log.appender())
        worker = SimpleNamespace(tables={Topic.POLICIES: table}, numbers=(0,) if owns else (1,))
        seals = SealLog(cast("Any", log), KEYS, "origin", folder / "checkpoint", 60.0)
        self.lines = ErasureLines(cast("Any", runtime), cast("Any", worker), is_theirs, KEYS, seals)
        self.worker, self.seals, self._table, self._appender = worker, seals, table, runtime.appender

    async def __aenter__(self) -> "ErasureAuditor":
        await self._appender.start()
        await self._table.load()
        self._tasks = [asyncio.create_task(part) for part in (self._table.run(), self.lines.run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def said(log: MemoryLog, *drafts: Draft) -> None:
    appender = log.appender()
    await appender.start()
    await appender.append([(one,) for one in drafts])


def logged(log: MemoryLog) -> list[str]:
    found = [read_line(record.value, keyring(KEYS.trusted, SEAL)) for record in log.records(Topic.JOBS_SEALS)]
    erased = [erased_of(one) for one in found if one is not None]
    return [one[0] for one in erased if one is not None]


async def log_has(log: MemoryLog, count: int) -> None:
    """So many lines; whoever waits for more waits for ever."""
    async with asyncio.timeout(10):
        while len(log.records(Topic.JOBS_SEALS)) < count:
            await SystemClock().sleep(0.01)


async def test_each_is_logged_once_through_restarts_and_found_by_its_pseudonym(tmp_path: Path) -> None:
    log = MemoryLog(1)
    await said(log, order(K), order(K))
    async with ErasureAuditor(log, tmp_path) as auditor:
        await log_has(log, 1)
        ((text, proof),) = await auditor.seals.erasures(K)
        assert json.loads(text)["pseudonym"] == K
        assert proof.startswith("c2sp.org/tlog-proof")
        assert await auditor.seals.erasures(OTHER) == []
    await said(log, order(OTHER))
    async with ErasureAuditor(log, tmp_path):
        await log_has(log, 2)
    assert logged(log) == [K, OTHER]


async def test_a_strangers_line_keeps_no_erasure_out_of_the_log(tmp_path: Path) -> None:
    log = MemoryLog(1)
    await said(log, line(K, Ed25519PrivateKey.generate()), order(K))
    async with ErasureAuditor(log, tmp_path) as auditor:
        await log_has(log, 2)
        assert len(await auditor.seals.erasures(K)) == 1
    assert logged(log) == [K]


async def test_nothing_is_logged_that_no_gateway_has_said(tmp_path: Path) -> None:
    log = MemoryLog(1)
    junk = Draft(Topic.POLICIES, ERASURE_KEY.encode(), b'{"pseudonym": "x"}', (), 0)
    await said(log, order(K), junk, order(OTHER, key="policy"), order("c" * 32))

    def by_a_gateway(topic: str, name: str, _key: bytes, value: bytes) -> bool:
        return (topic, name) == (Topic.POLICIES, SubjectErasure.type_name) and b"c" * 32 in value

    async with ErasureAuditor(log, tmp_path, is_theirs=by_a_gateway):
        await log_has(log, 1)
    assert logged(log) == ["c" * 32]


async def test_only_who_audits_partition_0_writes_and_who_takes_it_over_goes_on(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(erasure_lines, "AGAIN_S", 0.01)
    log = MemoryLog(1)
    await said(log, order(K))
    async with ErasureAuditor(log, tmp_path, owns=False) as waits:
        async with ErasureAuditor(log, tmp_path / "other", owns=False):
            await asyncio.sleep(0)
        assert logged(log) == []
        waits.worker.numbers = (0,)
        await log_has(log, 1)
    assert logged(log) == [K]


async def test_at_a_start_all_that_ever_were_erased_are_asked_for_in_few_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, count = MemoryLog(1), 2_000
    persons = [hashlib.sha256(b"%d" % at).hexdigest()[:32] for at in range(count)]
    await said(log, *map(order, persons), *[line(k, SEALING) for k in persons[:-1]], line(persons[-1], STRANGER))
    reads: list[object] = []
    reader = log.reader
    monkeypatch.setattr(log, "reader", lambda *args: (reads.append(args), reader(*args))[1])
    async with ErasureAuditor(log, tmp_path):
        await log_has(log, count + 1)
    assert logged(log) == persons
    assert len(reads) < 30, len(reads)
