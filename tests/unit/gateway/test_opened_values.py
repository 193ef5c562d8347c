"""Hidden values of a job, opened a page at a time."""

from pathlib import Path
from typing import Any, cast

import pytest

from aetheris.gateway import opened_values
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.opened_values import JobOpenings
from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Record
from aetheris.runtime.subjects.hidden_store import HiddenStore, sealed
from tests.unit.runtime.test_subject_keys import hiding_in

ANN = Principal("ann", "acme", PrincipalKind.PERSON, frozenset({Role.READ_PAYLOADS}))


class OneJobReader:
    """A reader of one job's records."""

    def __init__(self, *records: Record) -> None:
        self._records = records
        self.tenant = "acme"

    async def row(self, _caller: Principal, _job_id: str) -> "OneJobReader":
        return self

    async def end(self, _job_id: str) -> int:
        return len(self._records)

    async def records(self, _row: object, _end: int) -> list[Record]:
        return list(self._records)


class NoDeadlines(Deadlines):
    """Nothing comes too late."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None), 60.0)


async def hidden_record(hiding: HiddenStore, offset: int, subject: str, *values: str) -> Record:
    key = (await hiding.keys.enrolled("acme", [subject]))[subject]
    found = [sealed({key.k: key.key}, "acme", "job-1", value) for value in values]
    await hiding.keep(found)
    value = canonical({"args": [one.value.json() for one in found]})
    return Record("t", 0, offset, 0, b"job-1", (("ce_id", f"e-{offset}".encode()),), value)


async def test_all_values_are_opened_a_page_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_values, "MOST_VALUES", 3)
    hiding = hiding_in(tmp_path)
    records = [
        await hidden_record(hiding, 0, "ann", "a", "b"),
        await hidden_record(hiding, 1, "bob", "c", "d"),
        await hidden_record(hiding, 2, "ann", "a", "e", "f", "g"),
    ]
    await hiding.keys.erase("acme", "bob")
    openings = JobOpenings(hiding, cast("Any", OneJobReader(*records)), NoDeadlines())
    said, cursor, pages = list[Any](), None, 0
    while pages == 0 or cursor is not None:
        page = await openings.of_job(ANN, "job-1", cursor)
        assert page.hidden == 7
        assert len(page.openings) + page.erased <= 3
        said += [*(one.value for one in page.openings), *("erased",) * page.erased]
        cursor, pages = page.cursor, pages + 1
    assert (said, pages) == (["a", "b", "erased", "e", "f", "erased", "g"], 3)


async def test_a_page_ends_where_it_is_large_and_a_cursor_is_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_values, "MOST_BYTES", 5)
    hiding = hiding_in(tmp_path)
    record = await hidden_record(hiding, 0, "ann", "large", "larger")
    openings = JobOpenings(hiding, cast("Any", OneJobReader(record)), NoDeadlines())
    page = await openings.of_job(ANN, "job-1")
    assert [one.value for one in page.openings] == ["large"]
    assert [one.value for one in (await openings.of_job(ANN, "job-1", page.cursor)).openings] == ["larger"]
    with pytest.raises(BadRequestProblem):
        await openings.of_job(ANN, "job-2", page.cursor)
