"""Cycles are looked for when nothing else is done, and facts are not looked through ever again meanwhile."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from aetheris.runtime.process import collector
from aetheris.runtime.process.collector import Collector


class _Circle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - a fixture
    gc.collect()
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


def _circle() -> "weakref.ref[_Circle]":
    return weakref.ref(_Circle())


def _facts(count: int) -> list[list[int]]:
    return [[number] for number in range(count)]


def test_a_cycle_is_collected_when_nothing_has_been_done_for_two_looks() -> None:
    collecting, gone = Collector(), _circle()
    facts = _facts(3_000)
    collecting.look()
    assert gone() is not None
    collecting.look()
    assert gone() is None
    assert len(facts) == 3_000


def test_whoever_is_busy_is_not_held_up() -> None:
    collecting, gone, facts = Collector(), _circle(), list[list[list[int]]]()
    for _ in range(5):
        facts.append(_facts(3_000))
        collecting.look()
    assert gone() is not None


def test_too_many_facts_are_left_alone_and_looked_through_once_it_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_MANY", 10_000)
    collecting, gone, frozen = Collector(), _circle(), gc.get_freeze_count()
    facts = _facts(20_000)
    collecting.look()
    assert gone() is not None
    assert gc.get_freeze_count() > frozen + 20_000
    assert gc.get_count()[0] < 1_000
    more = _facts(3_000)
    collecting.look()
    collecting.look()
    assert gone() is None
    assert len(facts) + len(more) == 23_000


def test_a_process_that_is_never_idle_looks_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_MANY", 10_000)
    collecting, gone, facts = Collector(), _circle(), list[list[list[int]]]()
    looks = 0
    while gone() is not None:
        facts.append(_facts(20_000))
        collecting.look()
        looks += 1
    assert looks == 11


def test_where_python_collects_by_itself_nothing_is_done() -> None:
    gc.enable()
    collecting, facts = Collector(), _facts(3_000)
    before = gc.get_freeze_count()
    collecting.look()
    collecting.look()
    assert gc.get_freeze_count() == before
    assert len(facts) == 3_000
