"""Hidden values of a job's records, and what was shown of them beside."""

import json
from typing import Any

import pytest

from aetheris.proofs.openings import BadOpenings, OpenedValues, hidden_in, opened_values, read_openings
from aetheris.proofs.records import RawRecord
from aetheris.proofs.standalone import verify
from aetheris.protocol.base.hidden_values import hidden, salt_of

KEY, K = bytes(range(32)), "0" * 32


def value_of(value: Any, job: str = "job-1") -> dict[str, Any]:
    return hidden(KEY, K, "acme", job, value).json()


def opening(value: Any, job: str = "job-1") -> dict[str, Any]:
    said = value_of(value, job)["$hidden"]["c"]
    return {"c": said, "salt": salt_of(KEY, "acme", job, value).hex(), "value": value}


def record(body: Any) -> RawRecord:
    return RawRecord(0, b"job-1", (), json.dumps(body, separators=(",", ":")).encode())


RECORDS = [
    record({"plan": {"args": [value_of("ann"), {"deep": value_of({"n": 1})}]}}),
    record({"result": value_of("ann"), "note": "$hidden", "odd": {"$hidden": {"c": 1}}}),
]


def test_each_value_is_counted_once_and_each_opening_is_held_against_it() -> None:
    assert opened_values(RECORDS, []) == OpenedValues(2, 0, ())
    assert opened_values(RECORDS, [opening("ann"), opening({"n": 1}), opening("ann")]) == OpenedValues(2, 2, ())


@pytest.mark.parametrize(
    "changed",
    [
        {"value": "bob"},
        {"salt": "00" * 32},
        {"salt": "x"},
        {"salt": None},
        {"c": "0" * 64},
        {"c": None},
        {"value": 2**60},
        {"value": float("nan")},
    ],
)
def test_what_is_not_what_was_hidden_is_named(changed: dict[str, Any]) -> None:
    found = opened_values(RECORDS, [opening("ann") | changed, opening({"n": 1})])
    assert (found.opened, len(found.wrong)) == (1, 1)


def test_both_verifiers_count_the_same() -> None:
    taken = [verify.Record(at, 0, one.key, [], one.value) for at, one in enumerate(RECORDS)]
    said = {c for one in taken for c in verify.hidden(one.body)}
    assert said == {c for one in RECORDS for c in hidden_in(one, json.loads(one.value))}
    assert len(said) == 2


def test_another_jobs_opening_is_none_of_these() -> None:
    other = opening("ann", "job-2")
    assert opened_values(RECORDS, [other]) == OpenedValues(2, 0, (other["c"],))
    without_salt = {name: value for name, value in opening("ann").items() if name != "salt"}
    assert opened_values(RECORDS, [without_salt]).opened == 0


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"openings": {}}', b'{"openings": [1]}', b"[" * 100_000, b"\xff"]
)
def test_what_is_no_file_of_openings_is_refused(data: bytes) -> None:
    with pytest.raises(BadOpenings):
        read_openings(data)
    assert read_openings(b'{"openings": []}') == []
