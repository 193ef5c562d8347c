"""What a process has signed and reads back: it counts without a look, just there, and where its key is known."""

import pytest

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from tests.unit.runtime.test_record_signatures import (
    COUNTS,
    FIRST,
    VOID,
    Installation,
    created,
    drafted,
    event_in,
    placed,
    plan,
    revocation,
)
from tests.unit.runtime.test_record_signatures import ours as ours  # noqa: PLC0414  a fixture


def test_what_a_service_has_signed_itself_counts_unread_and_just_there(
    ours: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, events = ours.keys(Party.PLANNER), [created(), plan()]
    own = keys.provenance()
    (births,) = keys.signed([tuple(map(drafted, events))], own, FIRST)
    assert [own.judge(placed(one, at), event_in(placed(one, at))) for at, one in enumerate(births)] == [COUNTS, COUNTS]

    def mine(more: Event) -> Draft:
        return keys.signed([(drafted(more),)], own)[0][0]

    def must_not(*_: object) -> None:
        raise AssertionError("asked whose it is")

    ended = ev.JobCompleted.model_validate({"job_id": "job-1", "result": {}, "usage": {}})
    first = mine(ended)
    with monkeypatch.context() as patched:
        patched.setattr("aetheris.protocol.fold.provenance.read_signed", must_not)
        assert own.judge(placed(first, 2), event_in(placed(first, 2))) is COUNTS
    assert own.judge(placed(first, 3), event_in(placed(first, 3))) is COUNTS, "read once more: judged as anybody's"
    third = mine(ended)
    assert own.judge(placed(third, 4), plan()) is VOID, "signed, but as something else"
    late = mine(ended)
    own.judge(placed(drafted(told := revocation(ours, Party.PLANNER)), 5), told)
    assert own.judge(placed(late, 6), event_in(placed(late, 6))) is VOID
