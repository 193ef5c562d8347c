"""A job's options, from where they are said to where they are read; the ledger decides in test_ledger_doubt.py."""

import json
from typing import Any

import pytest

from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.core.submissions import SubmissionRequest, submit_command
from aetheris.planner.core.creations import creation_group
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, Submit
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.event_values import Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import TaskGraph
from aetheris.protocol.planning.schemas import graph_json, pin_of, pinned
from aetheris.sdk import tool
from aetheris.sdk.schema import DeclarationError
from aetheris.views.standing import job_view
from tests.testkit.histories import JOB, TENANT, finished, fold, graph, planned, started

PLAN = {"nodes": [{"id": "a", "tool": "act"}]}


def entry_of(**declared: Any) -> RegistryEntry:
    @tool("act", **(dict[str, Any]({"effect_class": "opaque", "irreversible": False}) | declared))
    def act() -> None: ...

    return RegistryEntry.model_validate(act.registry_entry())


def submit(**body: Any) -> Submit:
    asked = SubmissionRequest(JOB, "ann", TENANT, None)
    return submit_command(json.dumps({"plan": PLAN, **body}).encode(), asked, {"act": entry_of()}, {})


def test_a_tools_word_is_pinned() -> None:
    assert pin_of(entry_of(on_in_doubt="fail")).on_in_doubt == "fail"


def test_a_tool_that_says_nothing_leaves_plans_and_their_hashes_as_they_were() -> None:
    taken = graph_json(pinned(TaskGraph.model_validate(PLAN), {"act": entry_of()}))
    assert taken["tools"]["act"].keys() == {"version", "schema_hash", "effect_class"}


def test_a_tool_can_only_park_or_fail() -> None:
    with pytest.raises(DeclarationError, match="on_in_doubt"):
        entry_of(on_in_doubt="pray")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"on_in_doubt": "pray"}, "options.on_in_doubt"),
        ({"on_in_doubt": 1}, "options.on_in_doubt"),
        ({"in_doubt": "fail"}, "options.in_doubt"),
        ({"trace": "yes"}, "options.trace"),
        ({"trace": 1}, "options.trace"),
        ([], "options"),
    ],
)
def test_bad_options_name_the_field(options: Any, field: str) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        submit(options=options)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("body", "recorded"),
    [
        ({}, None),
        ({"options": {}}, None),
        ({"options": {"trace": None}}, None),
        ({"options": {"on_in_doubt": "fail"}}, {"on_in_doubt": "fail"}),
        ({"options": {"trace": False}}, {"trace": False}),
    ],
)
def test_what_a_job_was_asked_for_is_recorded_with_its_birth(body: dict[str, Any], recorded: Any) -> None:
    sent = draft("topic", submit(**body), key=JOB, id="1", source="test", time="")
    job_created = creation_group(Submit.model_validate_json(sent.value), "1").facts[0].event
    written = json.loads(draft("topic", job_created, key=JOB, id="1", source="test", time="").value)
    assert written.get("options") == recorded


def ended(effect_class: str, *more: Event, via: Via = Via.LEDGER) -> dict[str, Any]:
    failure = finished("a", "n1", "permanent_failure", via=via)
    end = ev.JobFailed(job_id=JOB, error="failed, not sure", node_id="a")
    plan = graph({"id": "a"}, act={"effect_class": effect_class})
    return job_view(fold(planned(plan), started("a", "n1"), failure, *more, end), "")


def test_a_job_that_failed_without_being_sure_says_so() -> None:
    view = ended("opaque")
    assert view["status"] == "failed"
    assert (
        "; whether a took effect is not known. Look outside for aetheris:job-1:a:0, and say what you found: aetheris"
        in view["why"]
    )


def test_what_is_known_is_not_said_to_be_unknown() -> None:
    assert "not known" not in ended("opaque", via=Via.EXECUTOR)["why"]
    assert "not known" not in ended("pure")["why"]
    assert "; a took effect all the same. A job" in ended("opaque", finished("a", "n1"))["why"]
