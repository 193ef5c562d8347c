"""Checkpoints that who administers the brokers has written, and all services start from: no call is made again.

He has every right at the brokers, and nobody's key. What he lays there is whole as far as anybody can see, and lacks
what became of a call; he takes the services' own pieces away, and asks for that call, and grants it, himself.
"""

import json
from collections.abc import Generator, Iterable, Sequence

import pytest

from aetheris.proofs import RawRecord
from aetheris.protocol.base.checkpoints import TYPE, UNBORN, CheckpointSpan, cut, read, write
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import Signal
from tests.testkit import broker_rights
from tests.testkit.attempts import fresh
from tests.testkit.broker_rights import (
    EVENTS,
    PARTS,
    PATIENCE_S,
    Beside,
    ask_for,
    comes_to_pass,
    end_of,
    fill,
    home_of,
    least_mark,
    stream,
    told,
    waits_beside,
)
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig, wait

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]

EVERY = 300
TOPICS = (Topic.PLANNER_CHECKPOINTS, Topic.LEDGER_CHECKPOINTS, Topic.AUDIT_CHECKPOINTS)
UNSIGNED = "not signed by who may write it"
GONE = "no checkpoint counts, and the birth is gone"
A_CALL = b"tool_invocation"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("forged"), {"AETHERIS_CHECKPOINT_EVERY": str(EVERY)}) as rig:
        yield rig


class PaidOnce:
    """A job that has paid once and waits; the log has left it behind, and every service has pieces of it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.tag = fresh("behind")
        paid, later = poke("a", self.tag, tool="poke_opaque"), poke("b", f"{self.tag}-b", "w", tool="poke_opaque")
        self.job = rig.system.submit(paid, wait("w", "go", "a"), later)
        rig.system.wait_status(self.job, "waiting", PATIENCE_S)
        self.home = home_of(rig, self.job)
        self.records: Sequence[RawRecord] = stream(rig, self.job)
        self.birth = self.records[0].offset
        while least_mark(rig, self.home) <= self.records[-1].offset:
            fill(rig, self.home, 4 * EVERY)
            self._others_go_on()
        self.pieces = {topic: self._pieces_in(topic) for topic in TOPICS}
        assert all(self.pieces.values())

    def _others_go_on(self) -> None:
        """So that who reads the partition looks at what it has left behind."""
        beside = waits_beside(self._rig, self.home)
        comes_to_pass(self._rig, beside)
        self._rig.system.wait_ended([beside.job], PATIENCE_S)

    def _pieces_in(self, topic: Topic) -> list[Record]:
        named = f"{self.job}:".encode()
        newest = {one.key: one for one in self._rig.system.records(topic) if (one.key or b"").startswith(named)}
        return [one for one in newest.values() if one.value]

    def counts(self) -> tuple[int, int]:
        """How often each of the two payments took effect."""
        return self._rig.external.count(self.tag), self._rig.external.count(f"{self.tag}-b")

    def goes_on(self) -> None:
        """It is told to, and pays its second time; proofs find nothing."""
        assert self._rig.system.signal(self.job, "go", 1).status_code in (200, 202)
        self._rig.system.wait_ended([self.job], PATIENCE_S)
        assert (self._rig.system.job(self.job)["status"], self.counts()) == ("completed", (1, 1))
        assert self._rig.system.verified(self.job)["violations"] == []


def without_a_call(behind: PaidOnce, topic: Topic) -> Iterable[Draft]:
    """In the place of the service's own pieces, others that lack the call: unsigned, and as another was signed."""
    own = behind.pieces[topic]
    spans = [CheckpointSpan.of(one.key) for one in own]
    yield from (Draft(str(topic), one.key or b"", b"", (), behind.home) for one in own)
    whole = CheckpointSpan(behind.job, behind.birth, behind.birth - 1, max(span.as_of for span in spans))
    kept = [one for piece in own for one in read(piece, EVENTS).records if A_CALL not in (one.identity()[1] or b"")]
    for as_of, headers in ((whole.as_of, ()), (whole.as_of - 1, _signed_of_another(own))):
        span = CheckpointSpan(whole.job_id, whole.creation_offset, whole.after, as_of)
        value = write(cut(span, UNBORN, sorted(kept, key=lambda one: one.offset)))
        yield Draft(str(topic), span.key, value, (("ce_type", TYPE), *headers), behind.home)


def _signed_of_another(own: Sequence[Record]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, value) for name, value in own[-1].headers if name != "ce_type")


def forged_for_all(rig: Rig, behind: PaidOnce) -> None:
    """Nobody lives while he writes: all start from it."""
    with rig.system.all_killed():
        rig.system.write([(one,) for topic in TOPICS for one in without_a_call(behind, topic)])
    rig.system.wait_ready(PATIENCE_S)


def asks_and_grants(rig: Rig, behind: PaidOnce, beside: Beside) -> None:
    ask_for(rig, behind.records, behind.birth, behind.home)
    comes_to_pass(rig, beside)


def test_a_piece_that_lacks_a_call_is_none_to_anybody_and_the_job_goes_on_from_its_birth(rig: Rig) -> None:
    behind = PaidOnce(rig)
    beside = waits_beside(rig, behind.home)
    before = {part: len(told(rig, part, '"restored"')) for part in PARTS}
    forged_for_all(rig, behind)
    asks_and_grants(rig, behind, beside)
    assert behind.counts() == (1, 0)
    for part in PARTS:
        said = [one for one in told(rig, part, UNSIGNED) if str(one.get("key", "")).startswith(behind.job)]
        assert said, f"{part} says that it passes over what it finds"
        restored = [one for one in told(rig, part, '"restored"')[before[part] :] if one["partition"] == behind.home]
        assert all(one["start"] <= behind.birth for one in restored), f"{part} reads from the birth"
    behind.goes_on()


def test_where_the_log_was_cut_the_job_stands_still_until_its_own_pieces_are_there_again(rig: Rig) -> None:
    behind = PaidOnce(rig)
    beside = waits_beside(rig, behind.home)
    broker_rights.cut(rig, behind.home, least_mark(rig, behind.home))
    forged_for_all(rig, behind)
    asks_and_grants(rig, behind, beside)
    assert behind.counts() == (1, 0)
    for part in PARTS:
        assert any(one["job_id"] == behind.job for one in told(rig, part, GONE)), part
    with rig.system.all_killed():
        rig.system.write([(_again(one),) for topic in TOPICS for one in behind.pieces[topic]])
    rig.system.wait_ready(PATIENCE_S)
    tenant = json.loads(behind.records[0].value)["tenant"]
    go = Signal(job_id=behind.job, by="ann", tenant=tenant, correlation_key="go", as_of=behind.records[-1].offset)
    rig.system.say_as(Party.GATEWAY, Topic.JOBS_COMMANDS, behind.job, go)  # whose views are of the log alone
    until(lambda: behind.counts() == (1, 1), PATIENCE_S)


def test_own_pieces_from_before_a_payment_and_a_seal_bring_nothing_back(rig: Rig) -> None:
    """With the words that people said then: each is signed, and each is true up to where it reaches."""
    behind = PaidOnce(rig)
    behind.goes_on()
    rig.system.wait_sealed(behind.job, PATIENCE_S)
    end = end_of(rig, behind.home)
    said = [one for one in rig.system.records(Topic.JOBS_COMMANDS) if one.key == behind.job.encode()]
    assert said
    fill(rig, behind.home, REACH + EVERY)
    beside = waits_beside(rig, behind.home)
    until(lambda: least_mark(rig, behind.home) >= end, PATIENCE_S)
    with rig.system.all_killed():
        rig.system.write([(_again(one),) for topic in TOPICS for one in behind.pieces[topic]])
        rig.system.write([(_again(one),) for one in said])
    rig.system.wait_ready(PATIENCE_S)
    asks_and_grants(rig, behind, beside)
    assert behind.counts() == (1, 1)
    assert rig.system.verified(behind.job)["violations"] == []


def _again(record: Record) -> Draft:
    return Draft(record.topic, record.key or b"", record.value, record.headers, record.partition)
