"""Whether a job is that of the call by which it says that it has begun: asked of planner, proofs and script alike."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from aetheris.planner.core.creations import creation_group
from aetheris.proofs.begun import is_of_its_call
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.begun import child_job_id
from aetheris.protocol.messages.commands import BeginJob
from aetheris.protocol.plan.graph import InvalidPlan
from aetheris.testing import MemorySystem
from tests.testkit.standalone import verify
from tests.unit.testing.test_child_jobs import awaits, leaves, pay, refuses, repay, rounds, ship

Creation = dict[str, Any]


@pytest.fixture(scope="module")
def births() -> list[Creation]:
    """A child, its successor, and one that was left."""
    system = MemorySystem(awaits, rounds, leaves, ship, pay, repay, refuses)
    system.run(awaits.plan(left=1))
    system.run(leaves.plan(waits=False))
    created = [next(one for one in job.log if isinstance(one, ev.JobCreated)) for job in system.jobs]
    return [json.loads(one.written()) for one in created if one.begun is not None]


def opinions(created: Creation) -> tuple[bool, bool, bool]:
    return (
        _is_created(created),
        is_of_its_call(created, created["plan"]),
        verify.is_of_its_call(created, created["plan"]),
    )


def _is_created(created: Creation) -> bool:
    said = {name: created.get(name) for name in ("job_id", "tenant", "request_hash", "plan", "begun")}
    try:
        creation_group(BeginJob.model_validate(said | {"by": created["submitted_by"]}), "c")
    except InvalidPlan:
        return False
    return True


def test_what_began_so_is_its_calls(births: list[Creation]) -> None:
    assert [one["begun"].get("replaces", False) for one in births] == [False, True, False]
    assert [opinions(one) for one in births] == [(True, True, True)] * 3


def _another_node(created: Creation) -> None:
    created["begun"]["node_id"] = "workflow.other"


def _another_node_s_job(created: Creation) -> None:
    created["begun"]["node_id"] = "workflow.other"
    created["job_id"] = child_job_id(created["begun"]["job_id"], "workflow.other")


def _another_id(created: Creation) -> None:
    created["job_id"] = "else"


def _another_job(created: Creation) -> None:
    created["begun"]["job_id"] = "else"


def _other_arguments(created: Creation) -> None:
    created["plan"]["nodes"][0]["args"] = {"order": "mine"}


def _another_workflow(created: Creation) -> None:
    created["plan"]["nodes"][0]["tool"] = "leaves"


def _more_to_do(created: Creation) -> None:
    created["plan"]["nodes"].append({"id": "more", "kind": "timer", "wait": {"for_s": 1}})


def _awaited_or_not(created: Creation) -> None:
    begun = created["begun"]
    begun["awaited_by"] = None if begun.get("awaited_by") else {"job_id": "else", "as_of": 1}


def _replaces_or_not(created: Creation) -> None:
    created["begun"]["replaces"] = not created["begun"].get("replaces", False)


@pytest.mark.parametrize(
    "change",
    [
        _another_node,
        _another_node_s_job,
        _another_id,
        _another_job,
        _other_arguments,
        _another_workflow,
        _more_to_do,
        _awaited_or_not,
        _replaces_or_not,
    ],
)
def test_what_was_changed_is_not(births: list[Creation], change: Callable[[Creation], None]) -> None:
    for one in births:
        if change is _awaited_or_not and one["begun"].get("replaces"):
            continue  # who waits for a successor's end is said by no argument of the call
        changed = copy.deepcopy(one)
        change(changed)
        assert opinions(changed) == (False, False, False)
