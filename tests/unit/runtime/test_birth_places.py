"""Where a signed birth counts: in its partition, within reach of what its planner had read, and to whom."""

from pathlib import Path

import pytest

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.sealed import REACH, in_reach
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Provenance, Standing, place_of
from aetheris.protocol.messages import events as ev
from aetheris.runtime.keys.files import load_service_key
from aetheris.runtime.keys.records import BirthPlace, PartitionRecords
from aetheris.runtime.keys.signing import Signer
from tests.unit.runtime.test_record_signatures import NOW, Installation, created, drafted, event_in, placed

COUNTS, VOID = Standing.COUNTS, Standing.VOID


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder: Path = tmp_path_factory.mktemp("ours")
    return Installation(folder)


def born_at(installation: Installation, place: BirthPlace) -> Draft:
    ((birth,),) = installation.keys(Party.PLANNER).signed([(drafted(created()),)], Provenance({installation.id}), place)
    return birth


def lies(installation: Installation, birth: Draft, partition: int, offset: int) -> list[Standing]:
    """To a service, and to who shows the job."""
    record = Record(birth.topic, partition, offset, 0, birth.key, birth.headers, birth.value)
    return [Provenance(roots).judge(record, event_in(record)) for roots in ({installation.id}, None)]


def said_of(birth: Draft) -> tuple[int | None, int | None]:
    event = event_in(placed(birth, 8))
    assert isinstance(event, ev.JobCreated)
    return event.partition, event.as_of


def test_a_birth_counts_in_its_partition_and_within_reach_of_what_its_writer_knew(ours: Installation) -> None:
    birth = born_at(ours, BirthPlace(2, 5))
    assert lies(ours, birth, 2, 6) == lies(ours, birth, 2, 5 + REACH) == [COUNTS, COUNTS]
    assert lies(ours, birth, 2, 6 + REACH) == lies(ours, birth, 2, 1 << 40) == [VOID, VOID], "a copy"
    assert lies(ours, birth, 2, 5) == lies(ours, birth, 2, 0) == [VOID, VOID], "nobody reads what is to come"
    assert lies(ours, birth, 1, 6) == [VOID, COUNTS], "elsewhere; who shows a job reads where it lies"


def test_a_signed_birth_that_does_not_say_where_it_was_written_is_void(ours: Installation) -> None:
    held = load_service_key(ours.folder, Party.PLANNER)
    value = drafted(created(installation=ours.id)).value
    value = value[:-1] + b',"certificate":' + canonical(held.certificate.to_json()) + b"}"
    place = place_of(ours.id, "job_created", "job-1", None)
    (value,) = Signer(held.private_key, held.certificate).sign([(place, value)], NOW)
    assert lies(ours, drafted(created()).replaced(value=value), 0, 0) == [VOID, VOID]


def test_a_partition_s_births_say_the_last_offset_that_is_known_to_be_taken(ours: Installation) -> None:
    records = PartitionRecords(ours.keys(Party.PLANNER), 3)
    for offset in (-1, 7, 4):
        records.read(offset)
    ((birth,),) = records.signed([(drafted(created()),)])
    assert said_of(birth) == (3, 7)


def test_what_its_planner_has_written_is_taken_as_long_as_the_brokers_have_it(ours: Installation) -> None:
    records = PartitionRecords(ours.keys(Party.PLANNER), 0)
    records.read(7)
    for appended, as_of in ((9, 9), (8, 8), (-1, 7)):
        records.appended(appended)
        ((birth,),) = records.signed([(drafted(created()),)])
        assert said_of(birth) == (0, as_of)


def test_who_creates_a_job_says_where(ours: Installation) -> None:
    with pytest.raises(ValueError, match="where"):
        ours.keys(Party.PLANNER).signed([(drafted(created()),)], Provenance({ours.id}))


def test_who_restarts_takes_no_birth_whose_writer_had_read_less_than_he_has_not(ours: Installation) -> None:
    """A copy may lie within reach of one that he does not read; what checkpoints say of is no copy."""
    birth = born_at(ours, BirthPlace(0, 5))
    record = Record(birth.topic, 0, 20, 0, birth.key, birth.headers, birth.value)
    for since, live, counts in ((6, (), True), (7, (), False), (7, {("job-1", 20)}, True), (7, {("job-1", 19)}, False)):
        reader = Provenance({ours.id})
        reader.begin(since, live)
        assert (reader.judge(record, event_in(record)) is COUNTS) == counts, (since, live)
        late = placed(born_at(ours, BirthPlace(0, 19)), 21)
        assert reader.judge(late, event_in(late)) is (COUNTS if counts else VOID), "another planner's, of the same job"


def test_no_birth_behind_a_mark_is_void_to_who_restarts_there(ours: Installation) -> None:
    """However late it came, and however early its planner had read."""
    mark = REACH + 50
    birth = born_at(ours, BirthPlace(0, mark - REACH))
    record = Record(birth.topic, 0, mark, 0, birth.key, birth.headers, birth.value)
    reader = Provenance({ours.id})
    reader.begin(in_reach(mark))
    assert reader.judge(record, event_in(record)) is COUNTS
