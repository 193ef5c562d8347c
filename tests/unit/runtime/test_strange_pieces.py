"""What is not the service's own piece says nothing by its key either: no copy of a birth counts, and no gap is made."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from aetheris.protocol.base.checkpoints import TYPE, UNBORN, CheckpointSpan, cut, write
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Provenance, Standing
from aetheris.runtime.keys.records import BirthPlace
from aetheris.runtime.worker.checkpoints import Checkpoints, Loaded
from aetheris.testkit.memory import MemoryLog
from tests.unit.runtime.test_record_signatures import Installation, created, drafted, event_in

JOB = "job-1"
COPY = 25_000
"""Where a birth lies, of which nobody can say by itself whether it is a copy of one that lies up to reach before it."""
KNOWN = COPY - REACH + 1_000
"""Up to where its writer had read."""
END = 60_000
PLACE = (str(Topic.LEDGER_CHECKPOINTS), 0)
AUTHORITY = (str(Topic.JOBS_EVENTS), 0)
OWN = (("ce_type", TYPE), ("own", b""))
STRANGE = (("ce_type", TYPE),)


class Remembering(Checkpoints):
    """Shows what it keeps in memory while it loads."""

    def loaded(self, values: Mapping[CheckpointSpan, Record], mark: int, log: tuple[int, int]) -> Loaded:
        self.kept = [*values]
        return super().loaded(values, mark, log)


async def checkpoints(*pieces: Draft) -> tuple[Remembering, MemoryLog]:
    log = MemoryLog(partitions=1)
    appender = log.appender()
    await log.start()
    await appender.start()
    await appender.append([(one,) for one in pieces])
    return Remembering(log, PLACE, AUTHORITY, counts=lambda one: one.header("own") is not None, reach=REACH), log


async def loaded(mark: int, begin: int, *pieces: Draft) -> tuple[Loaded, Remembering]:
    known, _ = await checkpoints(*pieces)
    return await known.load(0, len(pieces), mark, (begin, END)), known


def piece_of(birth: Record, headers: tuple[tuple[str, bytes], ...], as_of: int = COPY + 10) -> Draft:
    span = CheckpointSpan(JOB, birth.offset, birth.offset - 1, as_of)
    return Draft(PLACE[0], span.key, write(cut(span, UNBORN, [birth])), headers, 0)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder: Path = tmp_path_factory.mktemp("ours")
    return Installation(folder)


@pytest.fixture(scope="module")
def birth(ours: Installation) -> Record:
    place = BirthPlace(0, KNOWN)
    ((one,),) = ours.keys(Party.PLANNER).signed([(drafted(created(JOB)),)], Provenance({ours.id}), place)
    return Record(one.topic, 0, COPY, 0, one.key, one.headers, one.value)


def judged(ours: Installation, found: Loaded, *records: Record) -> list[Standing]:
    """By who starts there, and reads what lies from there on."""
    reader = Provenance({ours.id})
    reader.begin(found.start, found.live)
    return [reader.judge(one, event_in(one)) for one in records if one.offset >= found.start]


@pytest.mark.parametrize("mark", [COPY - 100, COPY, COPY + 5, END])
@pytest.mark.parametrize("whole", [False, True])
async def test_a_stranger_s_key_makes_no_copy_of_a_birth_count(
    ours: Installation, birth: Record, mark: int, *, whole: bool
) -> None:
    """Who reads it has read what it may be a copy of; where the log has that no more, it is none."""
    strange = piece_of(birth, STRANGE)
    found, _ = await loaded(mark, KNOWN + 10, strange if whole else strange.replaced(value=b"-"))
    assert found.live == frozenset()
    assert (found.start, judged(ours, found, birth)) == (KNOWN + 10, [Standing.VOID])
    found, _ = await loaded(mark, 0, strange)
    first = birth.replaced(offset=KNOWN + 1)
    assert found.start <= KNOWN
    assert judged(ours, found, first, birth) == [Standing.COUNTS, Standing.COUNTS], "the second is a repeat"


@pytest.mark.parametrize("mark", [COPY - 100, COPY, COPY + 5, END])
async def test_a_job_whose_pieces_count_no_more_is_read_from_its_birth(
    ours: Installation, birth: Record, mark: int
) -> None:
    """As after a revocation of the key that signed them."""
    found, _ = await loaded(mark, 0, piece_of(birth, STRANGE))
    assert judged(ours, found, birth) == [Standing.COUNTS]


async def test_what_the_service_s_own_pieces_say_of_lives(ours: Installation, birth: Record) -> None:
    found, _ = await loaded(COPY - 100, COPY - 200, piece_of(birth, OWN))
    assert (found.start, found.live) == (COPY - 100, {(JOB, COPY)})
    assert judged(ours, found, birth) == [Standing.COUNTS]
    spoiled = piece_of(birth, OWN).replaced(value=b"-")
    found, _ = await loaded(END, COPY - 200, spoiled, piece_of(birth.replaced(offset=COPY - 50), STRANGE))
    assert found.live == {(JOB, COPY)}, "its own, though unreadable; not the stranger's"


@pytest.mark.parametrize("key", [b"x:0:-1:1", b"x:24999:24998:30000"])
async def test_a_stranger_s_key_below_the_log_s_beginning_asks_for_nothing(birth: Record, key: bytes) -> None:
    strange = Draft(PLACE[0], key, b"-", STRANGE, 0)
    found, known = await loaded(COPY + 20, COPY, strange)
    assert (found.start, found.live) == (COPY + 20, frozenset())
    assert (len(known), known.has(b"x")) == (0, False), "nor is it deleted: it may count again"
    found, _ = await loaded(COPY + 20, COPY, piece_of(birth, OWN), strange)
    assert found.start == COPY + 11, "what others' pieces lead to is as before"


async def test_the_service_s_own_piece_below_the_log_s_beginning_is_asked_for(birth: Record) -> None:
    """It can't be read, and the birth is gone: nobody starts."""
    found, _ = await loaded(COPY + 20, COPY + 5, piece_of(birth, OWN).replaced(value=b"-"))
    assert found.start == COPY


async def test_only_what_can_be_used_is_kept_while_it_is_loaded(birth: Record) -> None:
    own, strange = piece_of(birth, OWN), piece_of(birth, STRANGE)
    longer, gone = piece_of(birth, OWN, COPY + 20), piece_of(birth, OWN, COPY + 30)
    pieces = [
        piece_of(birth, STRANGE, COPY + 40),
        piece_of(birth, OWN, COPY + 50).replaced(value=b"-"),
        strange,
        own,
        longer,
        gone,
        gone.replaced(value=b""),
        longer.replaced(headers=STRANGE),
    ]
    found, known = await loaded(END, 0, *pieces)
    assert known.kept == [CheckpointSpan.of(own.key)]
    assert [[one.offset for one in records] for records in found.histories] == [[COPY]]
