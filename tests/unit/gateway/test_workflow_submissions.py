"""Plans with workflows: pinned with every tool that their code may call, or refused by name."""

import json
from typing import Any

import pytest

from aetheris.gateway.core import submissions
from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.core.submissions import SubmissionRequest
from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry, Submit

ASKED = SubmissionRequest("j", "ann", "acme", None)
SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "currency": {"type": "string", "default": "EUR"}},
    "required": ["order"],
    "additionalProperties": False,
}


def entry(name: str, **fields: Any) -> RegistryEntry:
    base = {"name": name, "version": "1", "schema": {"type": "object"}, "schema_hash": name, "effect_class": "opaque"}
    return RegistryEntry.model_validate(base | fields)


PERSONAL = {"type": "object", "properties": {"to": {"type": "string", "x-personal": "/to"}}}
REGISTRY = {
    one.name: one
    for one in (
        entry("charge", irreversible=True),
        entry("refund"),
        entry("mail", schema=PERSONAL),
        entry("handle", kind="workflow", effect_class="pure", calls=("charge", "refund"), schema=SCHEMA),
        entry("lost", kind="workflow", effect_class="pure", calls=("charge", "gone")),
        entry("nested", kind="workflow", effect_class="pure", calls=("handle",)),
        entry("chatty", kind="workflow", effect_class="pure", calls=("mail",)),
    )
}


def submitted(body: dict[str, Any], **models: ModelEntry) -> Submit:
    return submissions.submit_command(json.dumps(body).encode(), ASKED, REGISTRY, models)


def plan(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"plan": {"nodes": list(nodes)}}


HANDLE = {"id": "h", "kind": "workflow", "tool": "handle", "args": {"order": "o-1"}}


def test_a_workflow_is_pinned_with_all_that_it_calls_and_its_arguments_are_filled_in() -> None:
    found = submitted(plan(HANDLE, {"id": "r", "tool": "refund", "depends_on": ["h"]})).plan or {}
    assert set(found["tools"]) == {"handle", "charge", "refund"}
    assert found["tools"]["charge"]["irreversible"] is True
    assert found["nodes"][0] == HANDLE | {"args": {"order": "o-1", "currency": "EUR"}}


@pytest.mark.parametrize(
    ("node", "field", "words"),
    [
        (HANDLE | {"tool": "unknown"}, "plan.nodes[0].tool", "no workflow unknown is registered"),
        (HANDLE | {"tool": "charge"}, "plan.nodes[0].tool", "no workflow charge is registered"),
        (HANDLE | {"kind": "tool"}, "plan.nodes[0].tool", "no tool handle is registered"),
        (HANDLE | {"args": {}}, "plan.nodes[0].args", "missing order"),
        (HANDLE | {"tool": "lost"}, "plan.nodes[0].tool", "lost calls gone"),
        (HANDLE | {"tool": "nested"}, "plan.nodes[0].tool", "nested calls handle"),
        (HANDLE | {"irreversible": True}, "plan.nodes[0].irreversible", "by its calls"),
        (
            {"id": "r", "tool": "refund", "compensate_with": {"tool": "handle"}},
            "plan.nodes[0].compensate_with.tool",
            "no tool handle is registered",
        ),
    ],
)
def test_what_can_not_run_is_refused_by_name(node: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        submitted(plan(node))
    assert refused.value.details["field"] == field
    assert words in str(refused.value)


def test_code_is_given_nothing_personal_since_what_it_says_is_recorded_in_the_clear() -> None:
    with pytest.raises(BadRequestProblem) as refused:
        submitted(plan(HANDLE | {"tool": "chatty", "args": {}}))
    assert refused.value.code == "personal_not_served"


def test_a_model_is_offered_no_workflow() -> None:
    fast = ModelEntry(name="fast", provider_model="openai:m")
    found = submitted({"goal": "help", "tools": ["charge", "ref*"]}, fast=fast)
    assert found.brief is not None
    assert found.brief.tools == ("charge", "refund")
    with pytest.raises(BadRequestProblem):
        submitted({"goal": "help", "tools": ["handle"]}, fast=fast)


def test_a_workflow_that_claims_effects_of_its_own_is_no_line_of_the_registry() -> None:
    for claims in ({"effect_class": "opaque"}, {"effect_class": "pure", "irreversible": True}):
        with pytest.raises(ValueError, match="it is pure"):
            entry("handle", kind="workflow", **claims)
