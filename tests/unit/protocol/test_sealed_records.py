"""Records are all of a sealed job where the seal's tree is that of what it covers, and nothing less will do."""

from collections.abc import Sequence

import pytest

from aetheris.protocol.base.record_tree import tree_over
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import holds_what_was_sealed
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import Event
from tests.testkit import histories as h

JSON = ("content-type", b"application/json")
HISTORY = (h.created(), h.planned(h.graph({"id": "a"})), ev.JobCancelled(job_id=h.JOB, by="ann"))


def stored(*events: Event) -> list[Record]:
    """As they lie in the log."""
    drafts = [
        draft(Topic.JOBS_EVENTS, event, key=h.JOB, id=f"e{at}", source="s", time="t") for at, event in enumerate(events)
    ]
    return [Record(one.topic, 0, at, 0, one.key, one.headers, one.value) for at, one in enumerate(drafts)]


def sealed(records: Sequence[Record], **other: int) -> list[Record]:
    """With a seal of all of them behind, but for what it says otherwise."""
    tree = tree_over(records[: other.get("event_count", len(records))])
    seal = h.SEAL.model_copy(update={"event_count": len(records), "tree": tree.hex(), **other})
    (last,) = stored(seal)
    return [*records, last]


def test_all_that_a_seal_covers_and_whatever_lies_behind_it() -> None:
    records = sealed(stored(*HISTORY))
    assert holds_what_was_sealed(records)
    assert holds_what_was_sealed([*records, *stored(h.created())])


@pytest.mark.parametrize("missing", range(len(HISTORY)))
def test_one_that_is_missing_or_another_is_seen(missing: int) -> None:
    records = sealed(stored(*HISTORY))
    other = stored(ev.CancelRequested(job_id=h.JOB, by="bob"))[0]
    assert not holds_what_was_sealed(records[:missing] + records[missing + 1 :])
    assert not holds_what_was_sealed([*records[:missing], other, *records[missing + 1 :]])
    redated = records[missing].replaced(headers=(*records[missing].headers[:-2], ("ce_time", b"2019"), JSON))
    assert not holds_what_was_sealed([*records[:missing], redated, *records[missing + 1 :]])


def test_what_has_no_seal_or_no_end_before_it_is_not_whole() -> None:
    assert not holds_what_was_sealed([])
    assert not holds_what_was_sealed(stored(*HISTORY))
    assert not holds_what_was_sealed(sealed(stored(*HISTORY[:-1])))


@pytest.mark.parametrize("count", [0, -1, len(HISTORY) + 1, 10**9])
def test_a_seal_of_nothing_or_of_more_than_lies_before_it_covers_nothing(count: int) -> None:
    assert not holds_what_was_sealed(sealed(stored(*HISTORY), event_count=count))


@pytest.mark.parametrize("count", range(1, len(HISTORY)))
def test_a_seal_that_leaves_out_the_jobs_end_covers_no_whole_job(count: int) -> None:
    assert not holds_what_was_sealed(sealed(stored(*HISTORY), event_count=count))
