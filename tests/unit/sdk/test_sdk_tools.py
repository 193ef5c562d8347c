"""Declaring tools: schemas from signatures, and what may not be registered (docs/tools.md)."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.planning.schemas import pin_of, with_defaults
from aetheris.sdk import Found, NotFound, Partial, Result, Tool, ToolContext, tool
from aetheris.sdk.schema import BadArguments, DeclarationError


class Address(BaseModel):
    city: str
    zip: str = "0000"


@tool("refund", version="2", effect_class="probeable", irreversible=True, timeout_s=5, volatile=["note"])
async def refund(
    ctx: ToolContext,
    order_id: str,
    amount: Annotated[int, Field(gt=0)],
    to: Address | None = None,
    note: str = "",
) -> Result:
    """Pay an order back."""
    return Result({"key": ctx.external_key, "order": order_id, "amount": amount, "to": to, "note": note}, "re_1")


@refund.probe
def refunded(external_key: str) -> Found | NotFound:
    return Found({"key": external_key})


def test_the_schema_follows_the_signature() -> None:
    schema = refund.schema
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["order_id", "amount"]
    assert set(schema["properties"]) == {"order_id", "amount", "to", "note"}
    assert schema["properties"]["amount"] == {"type": "integer", "exclusiveMinimum": 0}
    assert schema["properties"]["note"] == {"type": "string", "default": ""}
    assert refund.schema_hash == digest(schema)


def test_the_entry_is_what_the_registry_takes() -> None:
    entry = refund.registry_entry()
    assert RegistryEntry.model_validate(entry).key == "refund@2"
    assert {name: entry[name] for name in entry if name not in ("schema", "schema_hash")} == {
        "name": "refund",
        "version": "2",
        "description": "Pay an order back.",
        "effect_class": "probeable",
        "irreversible": True,
        "timeout_s": 5,
        "settles_within_s": 5,
        "volatile": ["note"],
        "on_in_doubt": None,
        "duplicate_scope": "job",
        "duplicate_window_s": 86_400.0,
        "probe": True,
        "verifier": False,
    }


def test_defaults_applied_from_the_schema_bind_like_absent_ones() -> None:
    args = {"order_id": "o-1", "amount": 100.0}
    assert refund.signature.bind(args) == refund.signature.bind(with_defaults(refund.schema, args))
    assert refund.signature.bind({**args, "to": {"city": "Ulm"}})["to"] == Address(city="Ulm")


def test_a_tool_is_still_a_function() -> None:
    @tool(effect_class="opaque", irreversible=False)
    def double(x: int) -> int:
        return 2 * x

    assert double(4) == 8
    assert (double.name, double.key, double.effect_class) == ("double", "double@1", "opaque")


def test_arguments_may_have_any_python_name() -> None:
    @tool(effect_class="opaque", irreversible=False)
    def odd(schema: str, model_config: int, copy: bool, _id: str = "x") -> None:
        """Names that pydantic keeps for itself."""

    bound = odd.signature.bind({"schema": "s", "model_config": 1, "copy": True})
    assert bound == {"schema": "s", "model_config": 1, "copy": True, "_id": "x"}
    assert set(odd.schema["properties"]) == {"schema", "model_config", "copy", "_id"}


def test_the_same_signature_has_the_same_hash_whatever_its_words() -> None:
    def declared(words: str) -> Tool[..., None]:
        def look(order_id: str, deep: bool = False) -> None: ...

        look.__doc__ = words
        return tool(effect_class="pure")(look)

    assert declared("One.").schema_hash == declared("Another.").schema_hash


@pytest.mark.parametrize(
    ("args", "reported"),
    [
        ({"order_id": "o-1"}, "/amount: missing"),
        ({"order_id": "o-1", "amount": "hunter2"}, "/amount: int_parsing"),
        ({"order_id": "o-1", "amount": 1, "to": {"zip": "1"}}, "/to/city: missing"),
        ({"order_id": "o-1", "amount": 1, "extra": "hunter2"}, "/extra: extra_forbidden"),
    ],
)
def test_refused_arguments_are_named_without_their_values(args: dict[str, Any], reported: str) -> None:
    with pytest.raises(BadArguments) as refused:
        refund.signature.bind(args)
    assert reported in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_probeable_tool_needs_a_probe() -> None:
    @tool(effect_class="probeable")
    def send() -> None: ...

    with pytest.raises(DeclarationError, match=r"send@1: is probeable, but has no probe"):
        send.registry_entry()


def test_a_probe_makes_no_tool_probeable() -> None:
    @tool(effect_class="opaque", irreversible=False)
    def send() -> None: ...

    with pytest.raises(DeclarationError, match="effect_class='probeable'"):
        send.probe(refunded)


def test_a_verifier_is_registered() -> None:
    @tool(effect_class="idempotent")
    def put() -> None: ...

    put.verifier(lambda change: change)
    assert put.registry_entry()["verifier"] is True


def _variadic(*values: int) -> None: ...
def _positional(value: int, /) -> None: ...
def _unserialisable(value: object = object) -> None: ...
def _factory(value: Annotated[list[int], Field(default_factory=list)]) -> None: ...
def _as_default(value: int = Field(gt=0)) -> None: ...
def _no_schema(value: Tool[..., Any]) -> None: ...
def _beyond_json(value: int = 2**60) -> None: ...


@pytest.mark.parametrize(
    "function",
    [_variadic, _positional, _unserialisable, _factory, _as_default, lambda value: value, _no_schema, _beyond_json],
)
def test_what_json_cannot_say_is_refused_at_declaration(function: Any) -> None:
    with pytest.raises(DeclarationError, match=r"^tool@1: "):
        tool("tool", effect_class="pure")(function)


@pytest.mark.parametrize(
    "declared",
    [
        {"name": "a:b"},
        {"version": "1@2"},
        {"effect_class": "safe"},
        {"effect_class": "pure", "irreversible": True},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"timeout_s": float("nan")},
        {"settles_within_s": -1},
        {"settles_within_s": float("inf")},
        {"settles_within_s": float("nan")},
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        tool(**(dict[str, Any]({"effect_class": "idempotent"}) | declared))(lambda: None)


@pytest.mark.parametrize(
    ("effect_class", "stated", "bound_s"),
    [("probeable", None, 20), ("probeable", 0, 0), ("probeable", 90, 90), ("opaque", None, None), ("opaque", 3, 3)],
)
def test_what_is_probeable_has_a_bound_for_what_is_under_way(
    effect_class: Any, stated: float | None, bound_s: float | None
) -> None:
    """Unstated, its timeout: in its entry, in the pin, and where an entry or a pin lacks it."""
    made = tool("act", effect_class=effect_class, irreversible=False, timeout_s=20, settles_within_s=stated)(_added)
    if effect_class == "probeable":
        made.probe(_found)
    entry = RegistryEntry.model_validate(made.registry_entry())
    assert entry.settles_within_s == bound_s
    assert (pin_of(entry).settles_within_s, pin_of(entry).settles_s) == (bound_s, bound_s or 0.0)
    lacking = RegistryEntry.model_validate({**made.registry_entry(), "settles_within_s": stated})
    assert pin_of(lacking) == pin_of(entry)
    assert pin_of(entry).model_copy(update={"settles_within_s": stated}).settles_s == (bound_s or 0.0)


def _added(x: int) -> int:
    return x


def _found(_external_key: str) -> None:
    """Asks nobody."""


def test_a_pattern_that_looks_around_is_refused_at_declaration() -> None:
    def send(name: Annotated[str, Field(pattern="^(?=a)b$")]) -> None: ...

    with pytest.raises(DeclarationError, match=r"send@1: an argument's rule can't be used: .*look-around"):
        tool(effect_class="pure")(send)


def test_what_cannot_be_taken_back_must_be_able_to_name_its_effect() -> None:
    def wire(amount: int) -> dict[str, Any]:
        return {"amount": amount}

    with pytest.raises(DeclarationError, match="external_id"):
        tool(effect_class="opaque", irreversible=True)(wire)
    assert tool(effect_class="opaque", irreversible=False)(wire).irreversible is False

    async def pay(amount: int) -> Result | Partial:
        return Result({"amount": amount}, "p_1")

    assert tool(effect_class="opaque", irreversible=True)(pay).irreversible
