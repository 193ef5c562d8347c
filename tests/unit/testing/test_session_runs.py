"""Sessions in memory: on the services' own cores, killed everywhere, and superseded."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from aetheris.sdk import tool
from aetheris.sdk.client import Conflict
from aetheris.sdk.client.blocking_runs import SessionRun
from aetheris.sdk.outcomes import Failed, Result
from aetheris.sdk.workflows import Misuse, ToolFailed, WorkflowCancelled, WorkflowDiverged, WorkflowSuperseded
from aetheris.testing import MemorySystem, StillWaits, duplicate_delivery

made: list[str] = []


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    made.clear()


@tool(effect_class="idempotent")
async def charge(order: str, amount: int = 1) -> str:
    """Its number."""
    made.append(f"charge {order}")
    return f"paid {amount} for {order}"


@tool(effect_class="opaque", irreversible=False)
async def mail(to: str) -> None:
    """Send one."""
    made.append(f"mail {to}")


@tool(effect_class="opaque", irreversible=True)
async def ship(order: str) -> Result:
    """Can't be undone."""
    made.append(f"ship {order}")
    return Result(order, external_id=order)


@tool(effect_class="pure")
async def look(order: str) -> str:
    """Reads."""
    made.append(f"look {order}")
    return order


@tool(effect_class="idempotent")
async def refuse() -> None:
    """Fails for sure."""
    raise Failed("no")


TWICE = [duplicate_delivery()]
TOOLS = ["charge", "mail", "ship", "look", "refuse"]


def system() -> MemorySystem:
    return MemorySystem(charge, mail, ship, look, refuse)


def attached(on: MemorySystem, **more: Any) -> SessionRun:
    return on.session("order-17", tools=TOOLS, **more).__enter__()


def whole(run: SessionRun) -> list[Any]:
    """What a program does; it may stop anywhere and begin anew."""
    found = [run.call(charge, order="17"), run.call("look", order="17"), run.call("charge", order="17")]
    try:
        run.call("refuse")
    except ToolFailed as no:
        found.append(no.reason)
    run.using(id="note").call("mail", to="you")
    run.complete(found)
    return found


def test_a_run_makes_its_calls_and_completes() -> None:
    on = system()
    run = attached(on)
    assert whole(run) == ["paid 1 for 17", "17", "paid 1 for 17", "no"]
    assert made == ["charge 17", "look 17", "charge 17", "mail you"]
    assert on.session_job(run).status == "completed"
    assert on.session_job(run).result("session") == ["paid 1 for 17", "17", "paid 1 for 17", "no"]
    again = attached(on)
    assert (again.status, again.result) == ("completed", whole(attached(on)))
    assert len(made) == 4


@pytest.mark.parametrize("calls", range(6))
def test_a_program_that_stops_anywhere_and_begins_anew_makes_no_call_twice(calls: int) -> None:
    on = system()
    one = attached(on)
    steps: list[Callable[[], Any]] = [
        lambda: one.call("charge", order="17"),
        lambda: one.call("look", order="17"),
        lambda: one.call("charge", order="17"),
        lambda: one.call("refuse"),
        lambda: one.using(id="note").call("mail", to="you"),
    ]
    for step in steps[:calls]:
        with suppress(ToolFailed):
            step()
    whole(attached(on))
    assert sorted(made) == ["charge 17", "charge 17", "look 17", "mail you"]


def test_a_body_that_dies_at_any_moment_makes_no_call_twice() -> None:
    on = system()
    whole(attached(on))
    expected = sorted(made)
    for moment in range(1, on.moments):
        made.clear()
        again = system()
        again.lose_bodies(moment)
        assert whole(attached(again))[0] == "paid 1 for 17", moment
        assert sorted(made) == expected, moment


def test_who_is_superseded_is_told_at_its_next_call() -> None:
    on = system()
    one = attached(on)
    one.call("charge", order="17")
    two = attached(on)
    with pytest.raises(WorkflowSuperseded):
        one.call("charge", order="18")
    with pytest.raises(WorkflowSuperseded):
        one.complete()
    with pytest.raises(WorkflowDiverged, match="charge"):
        two.call("charge", order="18")
    with pytest.raises(WorkflowDiverged, match="charge"):
        two.complete()
    assert two.call("look", order="18") == "18", "what only reads waits for nothing"
    two.call("charge", order="17")
    two.call("charge", order="18")
    assert made == ["charge 17", "look 18", "charge 18"]


def test_a_call_of_one_name_with_other_arguments_is_another_path() -> None:
    on = system()
    run = attached(on)
    run.using(id="pay").call("charge", order="17")
    with pytest.raises(WorkflowDiverged):
        run.using(id="pay").call("charge", order="18")
    assert made == ["charge 17"]


def test_what_waits_for_a_person_is_the_same_call_when_it_is_asked_for_again() -> None:
    on = system()
    run = attached(on)
    for _ in range(2):
        with pytest.raises(StillWaits):
            run.call("ship", order="17")
    on.approve(on.session_job(run))
    run.call("ship", order="17")
    with pytest.raises(StillWaits):
        run.complete("late") if run.call("look", order="17") == "" else run.call("ship", order="17")
    assert made == ["ship 17", "look 17"], "an equal irreversible call of code is asked about, and once more"


def test_a_models_equal_call_is_made_once_and_not_again_where_nobody_knows() -> None:
    on = MemorySystem(charge, mail, ship, look, refuse)
    run = attached(on)
    first = run.model_call("charge", {"order": "17"})
    assert run.model_call("charge", {"order": "17", "amount": 1}).node_id == first.node_id, "a default, said or not"
    assert run.model_call("refuse", {}).sure
    assert run.model_call("refuse", {}).node_id != run.model_call("refuse", {}).node_id
    repeated = run.model_call("charge", {"order": "17"}, repeat_of=first.node_id)
    assert repeated.node_id != first.node_id
    assert made == ["charge 17"] * 2
    attached(on).complete("a model need not repeat itself")


def test_processes_beside_each_other_share_what_their_models_want() -> None:
    on = system()
    code, beside = attached(on), attached(on, beside=True)
    first = beside.model_call("charge", {"order": "17"})
    assert code.model_call("charge", {"order": "17"}).node_id == first.node_id
    with pytest.raises(Conflict, match="by_model"):
        beside.call("charge", order="18")
    with pytest.raises(Conflict, match="by_model"):
        beside.complete()
    code.call("mail", to="you")
    assert attached(on, beside=True).model_call("charge", {"order": "17"}).earlier
    code.complete("done")
    assert made == ["charge 17", "mail you"]


def test_a_model_that_calls_again_what_surely_failed_asks_nobody_for_a_repeat() -> None:
    full = iter([True])

    @tool(effect_class="opaque", irreversible=True)
    async def launch(order: str) -> Result:
        """Can't be undone, and is refused once."""
        if next(full, False):
            raise Failed("full")
        return Result(order, external_id=order)

    on = MemorySystem(launch, policy='[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"\n')
    run = on.session("order-17", tools=["launch"]).__enter__()
    first = run.model_call("launch", {"order": "17"})
    assert first.sure
    again = run.model_call("launch", {"order": "17"})
    assert (again.status, again.node_id == first.node_id) == ("success", False)
    with pytest.raises(StillWaits):
        run.model_call("launch", {"order": "17"}, repeat_of=again.node_id)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("nothing", {}),
        ("charge", {}),
        ("charge", {"order": "17", "more": 1}),
        ("charge", {"order": {"$ref": "other#"}}),
        ("aetheris.session", {"idle_timeout_s": 1}),
    ],
)
def test_what_can_be_no_call_is_refused_and_the_run_goes_on(name: str, args: dict[str, Any]) -> None:
    on = system()
    run = attached(on)
    with pytest.raises((Misuse, Conflict)):
        run.call(name, **args)
    assert run.call("charge", order="17") == "paid 1 for 17"


@pytest.mark.parametrize("name", ["ask.0", "said.x", "pay.undo"])
def test_no_call_takes_a_name_of_the_systems(name: str) -> None:
    run = attached(system())
    with pytest.raises(Misuse):
        run.using(id=name).call("charge", order="17")
    assert run.call("charge", order="17") == "paid 1 for 17"


def test_silence_ends_a_run() -> None:
    on = system()
    run = attached(on, idle_timeout_s=60)
    run.call("charge", order="17")
    on.pass_time(61)
    assert on.session_job(run).status == "failed"
    with pytest.raises(WorkflowCancelled):
        run.call("charge", order="18")
    assert run.using(id="x") is not None
    assert made == ["charge 17"]


def test_a_run_that_is_cancelled_calls_nothing_more() -> None:
    on = system()
    run = attached(on)
    run.call("charge", order="17")
    on.cancel(on.session_job(run))
    with pytest.raises(WorkflowCancelled):
        run.call("charge", order="18")
    assert made == ["charge 17"]


def test_other_tools_are_another_run() -> None:
    on = system()
    attached(on)
    with pytest.raises(Conflict, match="other tools"):
        on.session("order-17", tools=["charge"]).__enter__()


def test_a_log_that_has_everything_twice_makes_a_session_s_calls_once() -> None:
    twice = system()
    twice.run({"nodes": [{"id": "n", "kind": "tool", "tool": "look", "args": {"order": "x"}}]}, faults=TWICE)
    made.clear()
    with twice.session("o", tools=TOOLS) as run:
        assert [run.call("charge", order="a"), run.call("charge", order="a")] == ["paid 1 for a"] * 2
        run.call("mail", to="a")
        with pytest.raises(ToolFailed):
            run.call("refuse")
        run.complete("over")
    assert (made, twice.session_job(run).status) == (["charge a", "charge a", "mail a"], "completed")
