"""Plans built in code: what they say, what they refuse, and that a system takes and runs them."""

import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel

from aetheris.protocol.plan.forms import FormField
from aetheris.sdk import Result, ToolContext, tool
from aetheris.sdk.plan_builder import PlanBuilder
from aetheris.sdk.workflows import Misuse, own, undo
from aetheris.testing import MemorySystem
from tests.testkit.system import REPOSITORY


class Order(BaseModel):
    number: str
    paid: int


@tool(effect_class="pure")
async def look_up(order: str) -> Order:
    return Order(number=order, paid=42)


@tool(effect_class="pure")
def name_of(order: str) -> str:
    return f"name of {order}"


@tool(effect_class="idempotent")
async def charge(ctx: ToolContext, order: str, amount: int = 5) -> Result:
    return Result({"order": order, "amount": amount, "key": ctx.node_id})


@tool(effect_class="idempotent")
def give_back(charge_order: str, why: str) -> None: ...


def built() -> PlanBuilder:
    plan = PlanBuilder()
    order = plan.call(look_up, order="o-1")
    name = plan.call(name_of, order="o-1")
    undoing = undo(give_back, charge_order=own("/order"), why=name.result)
    paid = plan.using(id="pay", after=[name], undo=undoing, timeout=3).call(
        charge, order=name.result, amount=order.at("/paid")
    )
    plan.using(after=[paid]).call(charge, order="o-2")
    plan.using(after=[paid]).call("charge", order="o-3")
    return plan


def test_a_plan_says_its_steps_and_what_each_needs() -> None:
    also = {"kind": "tool", "tool": "charge", "depends_on": ["pay"]}
    assert built().build()["nodes"][2:] == [
        {
            "kind": "tool",
            "id": "pay",
            "tool": "charge",
            "args": {"order": {"$ref": "name_of#"}, "amount": {"$ref": "look_up#/paid"}},
            "depends_on": ["name_of"],
            "timeout_s": 3.0,
            "compensate_with": {
                "tool": "give_back",
                "args": {"charge_order": {"$ref": "pay#/order"}, "why": {"$ref": "name_of#"}},
            },
        },
        also | {"id": "charge", "args": {"order": "o-2", "amount": 5}},
        also | {"id": "charge-2", "args": {"order": "o-3"}},
    ]


def test_a_system_takes_it_and_runs_it() -> None:
    job = MemorySystem(look_up, name_of, charge, give_back).run(built().build())
    assert job.status == "completed", job.why
    assert job.result("pay") == {"order": "name of o-1", "amount": 42, "key": "pay"}


def test_it_waits_and_asks() -> None:
    plan = PlanBuilder()
    said = plan.signal("go", within=60)
    slept = plan.sleep(5, after=[said])
    asked = plan.approval("Pay?", fields=[FormField(name="much", type="number", label="How much?")], after=[slept])
    plan.call(charge, order=said.result, amount=asked.at("/much"))
    job = MemorySystem(charge).run(plan.build(), signals={"go": "o-9"}, answers=[{"much": 7}])
    assert job.status == "completed", job.why
    assert job.result("charge")["amount"] == 7


def _twice(plan: PlanBuilder) -> None:
    for _ in range(2):
        plan.using(id="one").call(name_of, order="o")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda plan: plan.call("charge", order={1, object()}),
        lambda plan: plan.call(charge, order=5),
        lambda plan: plan.call(charge, order="o", more=5),
        lambda plan: plan.call(charge, "o"),
        lambda plan: plan.call(charge, order=own()),
        lambda plan: plan.using(id="a b").call(name_of, order="o"),
        lambda plan: plan.approval(""),
        _twice,
    ],
)
def test_what_could_be_no_step_is_refused_where_it_is_written(wrong: Any) -> None:
    with pytest.raises(Misuse):
        wrong(PlanBuilder())


def test_the_example_writes_the_plan_that_lies_beside_it() -> None:
    folder = REPOSITORY / "examples" / "refund"
    written = subprocess.run(
        [sys.executable, folder / "written.py"], capture_output=True, check=True, env={"PYTHONPATH": str(folder.parent)}
    )
    assert json.loads(written.stdout) == json.loads((folder / "plan.json").read_text())


def test_the_page_writes_a_plan() -> None:
    page = (REPOSITORY / "docs" / "plans.md").read_text()
    found: dict[str, Any] = {"__name__": "page"}
    exec(page.partition("```python\n")[2].partition("```")[0], found)  # noqa: S102  it is our own page
    nodes = found["plan"].build()["nodes"]
    assert [one["id"] for one in nodes] == ["name_of", "wait", "thank"]
    assert nodes[2]["args"]["to"] == {"$ref": "name_of#"}


def test_a_plan_of_nothing_or_of_another_plans_steps_is_refused() -> None:
    with pytest.raises(Misuse):
        PlanBuilder().build()
    other = PlanBuilder().call(name_of, order="o")
    plan = PlanBuilder()
    plan.call(charge, order=other.result)
    with pytest.raises(Misuse):
        plan.build()
