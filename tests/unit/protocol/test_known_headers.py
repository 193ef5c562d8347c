"""What a record is known by it has once, or it says nothing to anybody."""

import pytest

from aetheris.protocol.base.records import KNOWN_BY, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_event, draft
from tests.testkit import histories as h


def record() -> Record:
    made = draft(Topic.JOBS_EVENTS, h.created(), key=h.JOB, id="e", source="s", time="2026-01-01T00:00:00Z")
    return Record(made.topic, 0, 0, 0, made.key, made.headers, made.value)


@pytest.mark.parametrize("name", KNOWN_BY)
@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_header_that_comes_twice_makes_a_record_void(name: str, where: str) -> None:
    given = record()
    again = (name, given.header(name) or b"")
    headers = (again, *given.headers) if where == "before" else (*given.headers, again)
    with pytest.raises(Undecodable):
        decode_event(given.replaced(headers=headers))


@pytest.mark.parametrize("name", ["traceparent", "content-type", "x"])
def test_any_other_may(name: str) -> None:
    given = record()
    headers = (*given.headers, (name, b"1"), (name, b"2"))
    assert isinstance(decode_event(given.replaced(headers=headers)), Envelope)
