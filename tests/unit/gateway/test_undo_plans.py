"""What of an ended job can be undone, by which calls, and why not: the pure part (docs/compensation.md)."""

from dataclasses import replace
from typing import Any

import pytest

from aetheris.gateway.core import undo_plans
from aetheris.gateway.core.undo_plans import Effect, Undo, UndoHistory, UndoStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.planning.continuation import EndedJob
from tests.testkit import histories as h

REGISTRY = {
    name: RegistryEntry(
        name=name,
        version="1",
        schema={"type": "object", "properties": {"x": {"type": kind}}} if kind else {"type": "object"},
        schema_hash="s",
        effect_class=EffectClass.OPAQUE,
    )
    for name, kind in (("act", None), ("back", None), ("number", "integer"))
}
COMPLETED = ev.JobCompleted(job_id=h.JOB)


def done(node: str, result: Any = None) -> list[ev.Event]:
    return [h.started(node, f"n-{node}"), h.finished(node, f"n-{node}", result=result)]


def ended(*events: ev.Event, undo: dict[str, Any] | None = None, end: ev.Event = COMPLETED) -> UndoHistory:
    call = {"tool": "back", "args": {"x": {"$ref": "a#/x"}}} if undo is None else undo
    pins = {name: {"effect_class": "opaque"} for name in ("act", "back", "number", "gone")}
    graph = h.graph({"id": "a", "compensate_with": call}, {"id": "b"}, **pins)
    return UndoHistory(EndedJob(h.fold(h.planned(graph), *events, end), h.SEAL), {})


def effects(found: UndoHistory, *undos: Undo) -> dict[str, Effect]:
    return {one.node_id: one for one in undo_plans.effects(found, undos, REGISTRY, {})}


def test_a_call_of_what_the_plan_declared_undoes_what_succeeded_and_nothing_else_is() -> None:
    found = effects(ended(*done("a", {"x": [1, {"y": None}]}), *done("b")))
    call = found["a"].call
    assert call is not None
    assert (found["a"].standing, call.id, call.tool, call.args) == (
        UndoStatus.UNDOABLE,
        "a.undo",
        "back",
        {"x": [1, {"y": None}]},
    )
    assert (found["b"].standing, found["b"].call) == (UndoStatus.NOT_UNDOABLE, None)
    plan = undo_plans.plan(found.values(), REGISTRY)
    assert [node["id"] for node in plan["nodes"]] == ["a.undo"]
    assert set(plan["tools"]) == {"back"}
    assert effects(ended()) == {}


@pytest.mark.parametrize(
    "hidden",
    [{"$ref": "b#"}, {"deep": [{"$ref": "b#/x"}]}, {"$secret": "bank@1"}, [{"$secret": 5}], {"$ref": "j/b#"}],
)
def test_what_a_tool_returned_never_becomes_a_part_of_the_plan(hidden: Any) -> None:
    found = effects(ended(*done("a", {"x": hidden})))
    assert (found["a"].standing, found["a"].call) == (UndoStatus.NOT_UNDOABLE, None)
    assert "bank" not in str(found["a"].why)


@pytest.mark.parametrize(
    ("undo", "result", "why"),
    [
        ({"tool": "gone"}, {"x": 1}, "no tool gone is registered"),
        ({"tool": "number", "args": {"x": {"$ref": "a#/x"}}}, {"x": "secret-text"}, "number: "),
        ({"tool": "back", "args": {"x": {"$ref": "a#/none"}}}, {"x": 1}, "don't follow"),
    ],
)
def test_what_can_not_be_called_says_why_and_nothing_that_was_returned(
    undo: dict[str, Any], result: Any, why: str
) -> None:
    found = effects(ended(*done("a", result), undo=undo))["a"]
    assert found.standing is UndoStatus.NOT_UNDOABLE
    assert why in str(found.why)
    assert "secret-text" not in str(found.why)


def test_what_nobody_is_sure_of_is_in_doubt() -> None:
    parked = h.about(ev.InvocationParked, "a", invocation_id="n-a", reason="?")
    gave_up = h.finished("a", "n-a", "permanent_failure", via="ledger")
    failed = ev.JobFailed(job_id=h.JOB, error="a", node_id="a")
    found = effects(ended(h.started("a", "n-a"), parked, gave_up, end=failed))
    assert {name: one.standing for name, one in found.items()} == {"a": UndoStatus.IN_DOUBT}


def undo_job(
    *events: ev.Event, end: ev.Event | None, seal: bool = True, late: ev.ToolInvocationFinished | None = None
) -> Undo:
    graph = h.graph({"id": "a.undo"}, act={"effect_class": "opaque"})
    job = h.fold(h.planned(graph), *events, *(one for one in (end, late) if one is not None))
    return Undo("u-1", EndedJob(job, h.SEAL if seal and end is not None else None))


def denied() -> list[ev.Event]:
    """Somebody has looked, and says that it was not executed."""
    parked = h.about(ev.InvocationParked, "a.undo", invocation_id="n-u", reason="?")
    return [h.started("a.undo", "n-u"), parked, h.finished("a.undo", "n-u", "permanent_failure", via="human")]


U = "a.undo"
FAILED = ev.JobFailed(job_id=h.JOB, error="a.undo", node_id=U)


@pytest.mark.parametrize(
    ("undo", "standing"),
    [
        (Undo("u-1", None), UndoStatus.UNDOING),
        (undo_job(end=None), UndoStatus.UNDOING),
        (undo_job(h.started(U, "n-u"), end=None), UndoStatus.UNDOING),
        (undo_job(*done(U), end=COMPLETED), UndoStatus.UNDONE),
        (undo_job(*done(U), end=COMPLETED, seal=False), UndoStatus.UNDONE),
        (undo_job(end=FAILED), UndoStatus.UNDOABLE),
        (undo_job(end=FAILED, seal=False), UndoStatus.UNDOING),
        (undo_job(h.started(U, "n-u"), h.finished(U, "n-u", "permanent_failure"), end=FAILED), UndoStatus.UNDOABLE),
        (
            undo_job(h.started(U, "n-u"), h.finished(U, "n-u", "permanent_failure", via="ledger"), end=FAILED),
            UndoStatus.IN_DOUBT,
        ),
        (undo_job(h.started(U, "n-u"), end=FAILED), UndoStatus.IN_DOUBT),
        (undo_job(*denied(), end=FAILED), UndoStatus.UNDOABLE),
        (undo_job(*denied(), end=FAILED, late=h.finished(U, "n-u", via="late")), UndoStatus.IN_DOUBT),
        (
            undo_job(h.started(U, "n-u"), h.finished(U, "n-u", "compensatable_failure"), end=COMPLETED),
            UndoStatus.IN_DOUBT,
        ),
    ],
)
def test_it_is_undone_again_only_where_that_surely_was_not_done(undo: Undo, standing: UndoStatus) -> None:
    found = effects(ended(*done("a", {"x": 1})), undo)["a"]
    assert found.standing is standing
    assert (found.call is not None) is (standing is UndoStatus.UNDOABLE)


def test_of_several_undos_any_that_may_have_undone_it_counts() -> None:
    over = undo_job(end=FAILED)
    undone = replace(undo_job(*done(U), end=COMPLETED), job_id="u-2")
    job = ended(*done("a", {"x": 1}))
    assert effects(job, over, undone)["a"].job_id == "u-2"
    assert effects(job, undone, over)["a"].standing is UndoStatus.UNDONE
