"""What a plan says of a tool, against what the tool says of itself."""

from dataclasses import replace
from typing import Any

import pytest

from aetheris.protocol.fold.state import PlanEntry
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.plan.graph import EffectClass, Kind, Node, ToolPin
from aetheris.protocol.planning.invocation import Invocation
from aetheris.protocol.planning.schemas import pin_of
from aetheris.runtime.base.clock import SystemClock
from aetheris.sdk import NotFound, ProbeContext, Result, ToolContext, tool
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
    assert refused.error.startswith("NotExecuted: the plan's pin makes less of the tool than it is")
    other = CALLS.refuses(call(PIN.model_copy(update={"version": "2"})))
    assert other is not None
    assert "tool version missing" in other.error


@tool(
    "pay",
    effect_class="probeable",
    irreversible=True,
    settles_within_s=60,
    volatile=("memo",),
    duplicate_scope="session",
    duplicate_window_s=3600,
)
async def pay(amount: int, memo: str = "") -> Result:
    """Money."""
    return Result(amount, memo)


@pay.probe
async def paid(_external_key: str, _ctx: ProbeContext) -> NotFound:
    """Never."""
    return NotFound()


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ({}, False),
        ({"settles_within_s": 0.01}, True),
        ({"settles_within_s": None, "timeout_s": 0.01}, True),
        ({"settles_within_s": 61}, False),
        ({"volatile": ()}, True),
        ({"volatile": ("amount", "memo")}, True),
        ({"duplicate_scope": "job"}, True),
        ({"duplicate_scope": "tenant"}, False),
        ({"duplicate_window_s": 3599}, True),
        ({"duplicate_window_s": 3601}, False),
        ({"effect_class": "idempotent"}, True),
        ({"irreversible": False}, True),
        ({"on_in_doubt": "fail", "description": "other", "probe": False, "verifier": True}, False),
    ],
)
def test_a_plan_made_with_a_forged_line_of_the_registry_lets_no_call_be_made(
    line: dict[str, Any], *, refused: bool
) -> None:
    """Who may write to the registry announces the same version, and makes less of it."""
    calls = Calls(Toolbox({pay.key: pay}), SystemClock(), Secrets(()))
    pin = pin_of(RegistryEntry.model_validate({**pay.registry_entry(), **line}))
    made = call(pin)
    node = made.entry.node.model_copy(update={"tool": "pay"})
    found = calls.refuses(replace(made, entry=PlanEntry(0, node, pin)))
    assert (found is not None) == refused


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
