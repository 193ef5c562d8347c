"""What jobs leave when they come to rest is given back once: when many have, and no more do."""

import pytest

from aetheris.runtime.process.spare_memory import MANY, SpareMemory


def test_it_is_given_back_when_many_rest_and_no_more_come() -> None:
    spare = SpareMemory()
    seen = [MANY // 2, MANY, 2 * MANY, 2 * MANY, 2 * MANY, 2 * MANY + 1, 2 * MANY + 1]
    assert [spare.look(count) for count in seen] == [False, False, False, True, False, False, False]


def test_jobs_that_woke_and_rest_again_leave_something_again() -> None:
    spare = SpareMemory()
    assert [spare.look(count) for count in (MANY, MANY, 0, MANY, MANY)] == [False, True, False, False, True]


def test_where_the_library_has_no_such_call_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aetheris.runtime.process.spare_memory.ctypes.CDLL", lambda _name: object())
    spare = SpareMemory()
    assert [spare.look(count) for count in (MANY, MANY, MANY)] == [False] * 3
