"""A row of a timeline says what happened in a few words, whatever an event holds."""

from typing import Any

import pytest

from aetheris.console.core.exact_json import exactly_read
from aetheris.console.core.timeline_rows import timeline_row


def row(kind: str, data: Any, **more: Any) -> list[Any]:
    return timeline_row({"seq": 7, "time": "2026-03-01T09:30:00Z", "type": kind, "data": data, **more})


@pytest.mark.parametrize(
    ("kind", "data", "words", "mark"),
    [
        ("tool_invocation_finished", {"outcome": "success", "via": "probe"}, "success, as probe says", "good"),
        ("tool_invocation_finished", {"outcome": "failure", "via": "executor"}, "failure, as executor says", "bad"),
        ("approval_decided", {"approver": "bob", "decision": "reject"}, "bob: reject", "person"),
        ("invocation_in_doubt", {"error_class": "lease_lost"}, "in doubt: lease_lost", "doubt"),
        ("invocation_probed", {"answer": "not_found"}, "asked the external system: not_found", ""),
        ("worker_ended", {"worker_id": "w-0", "how": "lock"}, "w-0 has ended, as its lock shows", "doubt"),
        ("invocation_parked", {"reason": "opaque"}, "parked, only a person can tell: opaque", "doubt"),
        ("job_failed", {}, "failed", "bad"),
        ("something_new", {"x": 1}, "", ""),
        ("job_failed", "no object", "failed", "bad"),
    ],
)
def test_a_row_says_what_happened(kind: str, data: Any, words: str, mark: str) -> None:
    found = row(kind, data)
    assert (found[0], found[2], found[4], found[5]) == (7, kind, words, mark)


def test_a_void_record_is_marked_as_none_of_the_job_s() -> None:
    assert row("approval_decided", {"approver": "x", "decision": "approve"}, void=True)[5] == "void"


def test_nothing_unseen_and_nothing_long_is_in_a_row() -> None:
    found = row("job_failed", {"error": "a\u202eb\n" + "x" * 10_000, "node_id": "s\u200b"})
    assert "\u202e" not in found[4]
    assert "\n" not in found[4]
    assert len(found[4]) <= 300
    assert found[3] == "s\\u200b"


def test_an_event_s_numbers_stay_texts() -> None:
    event = exactly_read('{"seq": 12, "type": "plan_generated", "data": {"revision": 9007199254740993}}')
    assert timeline_row(event)[0] == 12
    assert timeline_row(event)[4] == "a plan, revision 9007199254740993"


def test_a_form_in_a_value_is_no_form() -> None:
    assert row("job_failed", {"error": "{approver} {0} {x.__class__}"})[4] == "failed: {approver} {0} {x.__class__}"
