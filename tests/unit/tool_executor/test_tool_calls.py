"""What a plan says of a tool, against what the tool says of itself."""

from dataclasses import replace
from typing import Any

import pytest

from aetheris.protocol.fold.state import PlanEntry
from aetheris.protocol.plan.graph import EffectClass, Kind, Node, ToolPin
from aetheris.protocol.planning.invocation import Invocation
from aetheris.runtime.base.clock import SystemClock
from aetheris.sdk import Result, ToolContext, tool
from aetheris.sdk.loader import Toolbox
from aetheris.tool_executor.secret_store import Secrets
from aetheris.tool_executor.tool_calls import Calls

MADE: list[str] = []


@tool("transfer", effect_class="opaque", irreversible=True)
async def transfer(ctx: ToolContext) -> Result:
    """It can't be undone, and nobody can be asked about it."""
    MADE.append(ctx.external_key)
    return Result("done", ctx.external_key)


CALLS = Calls(Toolbox({transfer.key: transfer}), SystemClock(), Secrets(()))
PIN = ToolPin(
    version=transfer.version, schema_hash=transfer.schema_hash, effect_class=EffectClass.OPAQUE, irreversible=True
)


def call(pin: ToolPin) -> Invocation:
    entry = PlanEntry(0, Node(id="a", kind=Kind.TOOL, tool="transfer"), pin)
    return Invocation("a", entry, {}, "h", "k", "c", ())


@pytest.mark.parametrize(
    "lowered", [{"irreversible": False}, {"effect_class": EffectClass.IDEMPOTENT}, {"effect_class": EffectClass.PURE}]
)
def test_a_pin_that_makes_less_of_a_tool_than_it_is_lets_no_call_be_made(lowered: dict[str, Any]) -> None:
    assert CALLS.refuses(call(PIN)) is None
    refused = CALLS.refuses(call(PIN.model_copy(update=lowered)))
    assert refused is not None
    assert refused.error.startswith("NotExecuted: the plan's pin names another effect class")
    other = CALLS.refuses(call(PIN.model_copy(update={"version": "2"})))
    assert other is not None
    assert "tool version missing" in other.error


def test_a_plan_may_make_more_of_a_tool_than_it_is() -> None:
    @tool("note", effect_class="idempotent")
    async def note() -> None:
        """Reversible."""

    calls = Calls(Toolbox({note.key: note}), SystemClock(), Secrets(()))
    pin = ToolPin(
        version=note.version, schema_hash=note.schema_hash, effect_class=EffectClass.IDEMPOTENT, irreversible=True
    )
    made = call(pin)
    node = made.entry.node.model_copy(update={"tool": "note"})
    assert calls.refuses(replace(made, entry=PlanEntry(0, node, pin))) is None
