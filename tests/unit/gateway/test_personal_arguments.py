"""Personal values in submissions: hidden where they stand, and refused where they can't be."""

import hashlib
import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.gateway.core import bodies, personal_arguments, policies, submissions
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, TooMany
from aetheris.gateway.hidden_submissions import HiddenSubmissions
from aetheris.protocol.api_operations import PolicyBody
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.hidden_values import HiddenValue
from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry, Submit
from aetheris.protocol.plan.graph import EffectClass
from tests.testkit import histories as h

WHO, VALUE = {"type": "string"}, HiddenValue("0" * 64, "1" * 64, "2" * 32)


def entry(name: str, **properties: Any) -> RegistryEntry:
    schema = {"type": "object", "properties": {"who": WHO, "n": {"type": "integer", "default": 1}, **properties}}
    return RegistryEntry(name=name, version="1", schema=schema, schema_hash="s", effect_class=EffectClass.OPAQUE)


MAIL = {"type": "string", "pattern": "@", "x-personal": "/who"}
REGISTRY = {
    "mail": entry("mail", to=MAIL, deep={"type": "object", "properties": {"to": MAIL}}),
    "plain": entry("plain", to={}),
}
ASKED = submissions.SubmissionRequest("job-1", "ann", "acme", None)
SEND = {"id": "a", "tool": "mail", "args": {"who": "ann", "to": "ann@x"}}


def raw(*nodes: dict[str, Any]) -> bytes:
    return json.dumps({"plan": {"nodes": list(nodes)}}).encode()


def submit(*nodes: dict[str, Any]) -> Submit:
    return submissions.submit_command(raw(*nodes), ASKED, REGISTRY, {})


def found(*nodes: dict[str, Any]) -> list[personal_arguments.PersonalArgument]:
    return personal_arguments.personal_arguments(submit(*nodes).plan or {}, REGISTRY)


def test_each_is_hidden_where_it_stands_and_the_request_is_hashed_so() -> None:
    undo = {"tool": "mail", "args": {"who": "ann", "deep": {"to": "b@x"}}}
    nodes = ({"id": "p", "tool": "plain", "args": {"to": "ann@x"}}, {**SEND, "compensate_with": undo})
    arguments = found(*nodes)
    assert [(one.field, one.value.subject, one.value.value) for one in arguments] == [
        ("plan.nodes[1].args/to", "ann", "ann@x"),
        ("plan.nodes[1].compensate_with.args/deep/to", "ann", "b@x"),
    ]
    command = personal_arguments.hidden_submission(submit(*nodes), raw(*nodes), arguments, [VALUE, VALUE])
    plan = command.plan or {}
    form = {"$hidden": {"c": VALUE.c, "d": VALUE.d, "k": VALUE.k}}
    assert plan["nodes"][1]["args"] == {"who": "ann", "n": 1, "to": form}
    assert plan["nodes"][1]["compensate_with"]["args"]["deep"] == {"to": form}
    assert plan["nodes"][0]["args"]["to"] == "ann@x"
    asked = json.loads(raw(*nodes))
    asked["plan"]["nodes"][1]["args"]["to"] = form
    asked["plan"]["nodes"][1]["compensate_with"]["args"]["deep"]["to"] = form
    assert command.request_hash == hashlib.sha256(canonical(asked)).hexdigest()
    assert "b@x" not in command.model_dump_json()


REF = {"$ref": "a#/x"}


@pytest.mark.parametrize(
    ("nodes", "field"),
    [
        (({"id": "b", "tool": "plain"}, {**SEND, "args": {"who": "ann", "to": {"$ref": "b#"}}}), "nodes[1].args/to"),
        (({**SEND, "args": {"to": "ann@x"}},), "nodes[0].args/to"),
        (({**SEND, "args": {"who": "", "to": "ann@x"}},), "nodes[0].args/to"),
        ((SEND, {"id": "b", "tool": "plain", "args": {"to": [REF]}}), "nodes[1].args/to/0"),
        (({**SEND, "compensate_with": {"tool": "plain", "args": {"to": REF}}},), "nodes[0].compensate_with.args/to"),
        ((SEND, {"id": "h", "kind": "human", "args": {"x": REF}, "form": {"title": "t"}}), "nodes[1].args/x"),
    ],
)
def test_what_cant_be_hidden_is_refused_with_its_field(nodes: tuple[dict[str, Any], ...], field: str) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        found(*nodes)
    assert (refused.value.code, refused.value.field) == ("personal_not_served", f"plan.{field}")
    assert "@x" not in json.dumps(refused.value.body())


def test_a_value_is_checked_before_it_is_hidden_and_not_said() -> None:
    with pytest.raises(BadRequestProblem) as refused:
        submit({**SEND, "args": {"who": "ann", "to": "no address"}})
    assert "no address" not in json.dumps(refused.value.body())


@pytest.mark.parametrize("body", [{"a": {"nodes": [{"$hidden": 1}]}}, {"$hidden": {}}, {"a": [[{"$hidden": 0}]]}])
def test_nobody_says_hidden_but_the_gateway(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        bodies.parsed(json.dumps(body).encode())
    assert refused.value.code == "hidden_in_input"
    assert bodies.parsed(b'{"a": "\\"$hidden\\":"}')[0] == {"a": '"$hidden":'}


async def there_is_room(_: Submit) -> None:
    pass


async def test_nobody_is_given_a_key_by_a_submission_that_a_limit_refuses() -> None:
    enrolled: list[str] = []

    async def enrol(_tenant: str, subjects: Iterable[str]) -> None:
        enrolled.extend(subjects)

    async def there_is_none(_: Submit) -> None:
        raise TooMany("tenant.open_jobs", "wait")

    keys = cast("Any", SimpleNamespace(keys=SimpleNamespace(enrolled=enrol)))
    with pytest.raises(TooMany):
        await HiddenSubmissions(keys).hide(submit(SEND), raw(SEND), REGISTRY, there_is_none)
    assert enrolled == []


async def test_without_a_store_of_keys_nothing_personal_is_taken() -> None:
    hidden = HiddenSubmissions(None)
    plain = submit({"id": "p", "tool": "plain"})
    assert await hidden.hide(plain, raw({"id": "p", "tool": "plain"}), REGISTRY, there_is_room) == (plain, ())
    with pytest.raises(BadRequestProblem, match="AETHERIS_SUBJECT_KEYS is not set"):
        await hidden.hide(submit(SEND), raw(SEND), REGISTRY, there_is_room)


async def test_values_of_too_many_subjects_are_refused_before_a_key_is_made() -> None:
    nodes = [{**SEND, "id": f"n{at}", "args": {"who": f"c-{at}", "to": "ann@x"}} for at in range(101)]
    with pytest.raises(BadRequestProblem, match="more than 100 subjects"):
        await HiddenSubmissions(cast("Any", object())).hide(submit(*nodes), raw(*nodes), REGISTRY, there_is_room)


def test_a_model_is_offered_no_tool_with_personal_arguments() -> None:
    goal = {"goal": "write to ann", "tools": ["*"]}
    models = {"fast": ModelEntry(name="fast", provider_model="openai:m")}
    with pytest.raises(BadRequestProblem, match="isn't served there: a model"):
        submissions.submit_command(json.dumps(goal).encode(), ASKED, REGISTRY, models)


SHOWN = {"context": {"arguments": {"who": "ann", "to": VALUE.json()}}}


def test_an_edit_that_leaves_whose_the_values_are_is_taken() -> None:
    schema = REGISTRY["mail"].schema_
    for data in ({}, {"n": 2}, {"to": "b@x"}, {"to": "b@x", "n": 2}):
        personal_arguments.check_editable(schema, SHOWN, data, signed=False)
    personal_arguments.check_editable(schema, SHOWN, {"n": 2}, signed=True)
    personal_arguments.check_editable(schema, {"context": {"arguments": {"who": "ann"}}}, {"who": "bob"}, signed=False)
    personal_arguments.check_editable(REGISTRY["plain"].schema_, SHOWN, {"to": 1}, signed=True)


@pytest.mark.parametrize(
    ("schema", "data", "signed"),
    [
        (REGISTRY["mail"].schema_, {"who": "bob"}, False),
        (REGISTRY["mail"].schema_, {"who": "bob", "to": "b@x"}, False),
        (REGISTRY["mail"].schema_, {"to": "b@x"}, True),
        (None, {"n": 2}, False),
    ],
)
def test_an_edit_that_makes_values_another_persons_or_is_signed_is_refused(
    schema: Any, data: dict[str, Any], *, signed: bool
) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        personal_arguments.check_editable(schema, SHOWN, data, signed=signed)
    assert (refused.value.code, "@x" in json.dumps(refused.value.body())) == ("personal_not_served", False)


def test_an_edited_calls_values_are_of_few_persons() -> None:
    args = {str(at): HiddenValue("0" * 64, "1" * 64, str(at) * 32).json() for at in range(5)}
    with pytest.raises(BadRequestProblem, match="more than 4"):
        personal_arguments.check_subjects(args)
    personal_arguments.check_subjects({name: args[name] for name in "0123"})


def test_a_plan_made_of_another_jobs_holds_nothing_personal() -> None:
    for args in ({"to": VALUE.json()}, {"to": "ann@x"}, {}):
        plan = {"nodes": [{"id": "a", "tool": "mail", "args": args}]}
        with pytest.raises(BadRequestProblem, match="isn't served there: x"):
            personal_arguments.check_unmarked(plan, REGISTRY, "x")
    plan = {"nodes": [{"id": "a", "tool": "plain", "args": {"to": VALUE.json()}}]}
    with pytest.raises(BadRequestProblem):
        personal_arguments.check_unmarked(plan, REGISTRY, "x")


def test_a_job_with_hidden_values_is_not_continued() -> None:
    graph = h.graph({"id": "a", "tool": "mail", "args": {"to": VALUE.json()}}, mail={"effect_class": "opaque"})
    with pytest.raises(ConflictProblem, match="has hidden values"):
        personal_arguments.check_continuable(h.fold(h.planned(graph)))


RULE = '[[rules]]\nname = "r"\ntools = ["{}"]\nwhen = \'{}\'\neffect = "allow"\n'


@pytest.mark.parametrize(
    ("tools", "when", "refused"),
    [
        ("*", 'args.to == "x"', True),
        ("mail", "size(args) == 1", True),
        ("m*", 'args["deep"].to == "x"', True),
        ("mail", "args.n == 1", False),
        ("plain", 'args.to == "x"', False),
    ],
)
def test_a_policy_that_looks_at_a_personal_argument_is_not_activated(tools: str, when: str, refused: bool) -> None:
    wanted = PolicyBody(policy=RULE.format(tools, when))
    if not refused:
        policies.check(wanted, AllowedSigners(()), REGISTRY)
        return
    with pytest.raises(BadRequestProblem, match="which is personal"):
        policies.check(wanted, AllowedSigners(()), REGISTRY)


def form(**personal: Any) -> dict[str, Any]:
    fields = [{"name": "to", "type": "text", "label": "l", **personal}, {"name": "n", "type": "text", "label": "n"}]
    return {"id": "f", "kind": "human", "args": {"who": "ann"}, "form": {"title": "t", "fields": fields}}


@pytest.mark.parametrize(
    ("said", "data", "subject"),
    [
        ("/who", {"to": "ann@x"}, "ann"),
        ("/n", {"to": "ann@x", "n": "bob"}, "bob"),
        ("/to", {"to": "ann@x"}, "ann@x"),
        ({"name": "carol"}, {"to": "ann@x"}, "carol"),
    ],
)
def test_an_answer_is_the_persons_whom_its_form_names(said: Any, data: dict[str, str], subject: str) -> None:
    asked = form(personal=said)
    shown = {"fields": asked["form"]["fields"], "context": {"arguments": asked["args"]}}
    (value,) = personal_arguments.personal_answers(shown, data)
    assert (value.at, value.subject, value.value) == ("/to", subject, "ann@x")
    assert personal_arguments.personal_answers(shown, {"n": "x"}) == []


@pytest.mark.parametrize(("said", "data"), [("/nobody", {"to": "x@y"}), ("/n", {"to": "x@y", "n": ""})])
def test_an_answer_of_nobody_is_refused_and_not_said(said: str, data: dict[str, str]) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        personal_arguments.personal_answers({"fields": form(personal=said)["form"]["fields"]}, data)
    assert (refused.value.field, "x@y" in json.dumps(refused.value.body())) == ("data.to", False)


@pytest.mark.parametrize(
    "more",
    [
        {"personal": "who"},
        {"personal": {"name": ""}},
        {"personal": "/who", "default": "ann@x"},
        {"personal": "/who", "options": [{"value": "a", "label": "a"}]},
    ],
)
def test_a_form_that_would_say_the_value_is_no_plan(more: dict[str, Any]) -> None:
    with pytest.raises(BadRequestProblem):
        submit(form(**more))


def test_an_answer_that_is_hidden_goes_into_a_personal_argument_alone() -> None:
    asked = form(personal="/who")
    takes = {"id": "a", "tool": "mail", "args": {"who": "ann", "to": {"$ref": "f#/to"}}}
    assert found(asked, takes) == []
    assert found(asked, {"id": "p", "tool": "plain", "args": {"to": {"$ref": "f#/n"}}}) == []
    refused = [
        {"id": "p", "tool": "plain", "args": {"to": {"$ref": "f#/to"}}},
        {"id": "p", "tool": "plain", "args": {"to": {"$ref": "f#"}}},
        {"id": "p", "tool": "mail", "args": {"who": {"$ref": "f#/to"}}},
        {"id": "p", "tool": "mail", "args": {"who": "ann", "to": {"$ref": "f#/n"}}},
        {
            "id": "p",
            "tool": "plain",
            "compensate_with": {"tool": "mail", "args": {"who": "a", "to": {"$ref": "f#/to"}}},
        },
        {"id": "h", "kind": "human", "args": {"x": {"$ref": "f#/to"}}, "form": {"title": "t"}},
        {"id": "m", "kind": "llm", "args": {"model": "fast", "prompt": {"$ref": "f#/to"}}},
    ]
    for node in refused:
        with pytest.raises(BadRequestProblem) as error:
            personal_arguments.personal_arguments(planned_with(asked, takes, node), REGISTRY)
        assert error.value.code == "personal_not_served", node
    with pytest.raises(BadRequestProblem, match="the result of a is hidden whole"):
        found(asked, takes, {"id": "p", "tool": "plain", "args": {"to": {"$ref": "a#"}}})


def test_a_signals_value_that_is_hidden_goes_into_a_personal_argument_alone() -> None:
    waits = {"id": "w", "kind": "wait", "wait": {"key": "p", "personal": {"/iban": "/customer"}}}
    takes = {"id": "a", "tool": "mail", "args": {"who": "ann", "to": {"$ref": "w#/iban"}}}
    assert found(waits, takes) == []
    assert found(waits, {"id": "p", "tool": "plain", "args": {"to": {"$ref": "w#/amount"}}}) == []
    for pointer in ("/iban", "", "/iban/x"):
        with pytest.raises(BadRequestProblem, match="only a personal argument takes what w hides"):
            found(waits, {"id": "p", "tool": "plain", "args": {"to": {"$ref": f"w#{pointer}"}}})
    with pytest.raises(BadRequestProblem, match="the result of a is hidden whole"):
        found(waits, takes, {"id": "p", "tool": "plain", "args": {"to": {"$ref": "a#"}}})
    with pytest.raises(BadRequestProblem, match=r"plan\.nodes\[0\]\.wait"):
        personal_arguments.check_unmarked(planned_with(waits), REGISTRY, "x")
    graph = h.graph({**waits, "tool": None})
    with pytest.raises(ConflictProblem, match="has hidden values"):
        personal_arguments.check_continuable(h.fold(h.planned(graph)))


def planned_with(*nodes: dict[str, Any]) -> dict[str, Any]:
    """As a plan is pinned, whatever else would refuse it."""
    names = {tool for node in nodes for tool in (node.get("tool"), (node.get("compensate_with") or {}).get("tool"))}
    return {"nodes": list(nodes), "tools": {name: {} for name in names - {None}}}
