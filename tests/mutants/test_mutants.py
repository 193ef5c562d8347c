"""What looks for mutants sees them: a campaign that finds nothing, or skips what changed, would prove nothing."""

from pathlib import Path

import pytest

from aetheris.protocol.fold.revisions import may_compensate
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.messages.events import JobStopping
from tests.mutants import known
from tests.mutants.beside import beside
from tests.mutants.conditions import Mutant, mutants, watching
from tests.mutants.hunt import SURVIVED, TEST
from tests.testkit.histories import JOB, fold, graph, planned, started

PLAN = planned(graph({"id": "a"}))
EVERY = mutants()


def named(name: str) -> Mutant:
    (found,) = [one for one in EVERY if one.name == name]
    return found


def test_no_two_have_one_name() -> None:
    assert len({one.name for one in EVERY}) == len(EVERY) > 800


def test_a_mutant_is_seen_beside_what_it_is_of_where_it_differs_and_only_there() -> None:
    of_token = named("protocol.fold.start.why_void: e.token != state.fencing_token: never")
    of_none = named("protocol.fold.start.why_void: entry is not None: always")
    with beside([of_token, of_none]) as different:
        assert start_is_void(fold(PLAN), started("a", "n1")) is None
        assert different == set()
        assert start_is_void(fold(PLAN), started("a", "n1", token=2)) is not None
        assert different == {of_token}


def test_a_mutant_that_only_leaves_something_else_behind_is_seen_too() -> None:
    of_memory = named("protocol.fold.rules._remember_void: e.invocation_id in job.invocation_keys: never")
    with beside([of_memory]) as different:
        fold(PLAN, started("a", "n1"), started("a", "n1", token=2))
        assert different == {of_memory}


def test_what_conditions_come_to_is_noted() -> None:
    mutant = named("protocol.fold.revisions.may_compensate: job.stopping is None: never")
    with watching() as seen:
        may_compensate(fold(PLAN, JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0)))
        assert not mutant.turns & seen
        may_compensate(fold(PLAN))
        assert mutant.turns <= seen


def test_what_is_applied_changes_the_function_that_everybody_calls() -> None:
    mutant = named("protocol.fold.start.why_void: e.token != state.fencing_token: never")
    code = start_is_void.__globals__["why_void"].__code__
    try:
        mutant.apply()
        assert start_is_void(fold(PLAN), started("a", "n1", token=2)) is None
    finally:
        start_is_void.__globals__["why_void"].__code__ = code
    assert start_is_void(fold(PLAN), started("a", "n1", token=2)) is not None


def test_only_functions_that_are_as_they_were_and_survivors_with_a_reason_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "known.jsonl"
    of = [one for one in EVERY if one.where == "protocol.fold.rules._cancel"]
    before = known.Known(EVERY, path)
    for mutant in of:
        before.note(mutant, TEST if mutant is not of[-1] else SURVIVED, "")
    before.write()
    after = known.Known(EVERY, path)
    assert [after.is_open(one, set()) for one in of] == [False] * (len(of) - 1) + [True]
    assert not after.is_open(of[-1], {of[-1].name})
    assert (after.say(set()), after.say({of[-1].name}), after.say({of[0].name, of[-1].name})) == (1, 0, 1)
    monkeypatch.setattr(known, "hashes", lambda: {"protocol.fold.rules._cancel": "another"})
    assert all(known.Known(EVERY, path).is_open(one, set()) for one in of)
