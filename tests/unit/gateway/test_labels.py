"""Labels: refused where they are none, recorded in the birth, in lists; never what a rule could read."""

import json
from typing import Any

import pytest

from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.core.submissions import SubmissionRequest, submit_command
from aetheris.gateway.views import JobQuery, Row
from aetheris.planner.core.creations import creation_group
from aetheris.planner.core.decisions import Append
from aetheris.proofs.redacted_records import CLASSES, PLAIN
from aetheris.protocol.base.labels import LONGEST_LABEL, MOST_LABELS, are_labels
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.events import JobCreated
from aetheris.protocol.plan.graph import InvalidPlan

PLAN = {"nodes": [{"id": "t", "kind": "wait", "wait": {"key": "go"}}]}
GOOD = {"order": "4711", "env": "prod \u00e4", "a.b-c_D": "x" * LONGEST_LABEL}
BAD: tuple[Any, ...] = (
    {"": "x"},
    {"a b": "x"},
    {"n" * 65: "x"},
    {"a=b": "x"},
    {"a": ""},
    {"a": "x" * (LONGEST_LABEL + 1)},
    {"a": "two\nlines"},
    {"a": "nul\x00"},
    {"a": 1},
    {"a": None},
    {"a": {"$hidden": {}}},
    {f"n{at}": "x" for at in range(MOST_LABELS + 1)},
    ["a"],
    "a=b",
)


def command_of(labels: Any) -> Submit:
    body = {"plan": PLAN, "labels": labels}
    asked = SubmissionRequest("job-1", "ann", "default", None)
    return submit_command(json.dumps(body).encode(), asked, {}, {})


def created_in(group: Append) -> JobCreated:
    return next(fact.event for fact in group.facts if isinstance(fact.event, JobCreated))


def test_labels_are_in_the_birth_and_in_the_hash_of_what_was_asked() -> None:
    command = command_of(GOOD)
    assert created_in(creation_group(command, "c-1")).labels == GOOD
    assert command.request_hash != command_of({**GOOD, "order": "4712"}).request_hash
    assert created_in(creation_group(command_of({}), "c-1")).labels is None


@pytest.mark.parametrize("labels", BAD, ids=str)
def test_what_is_no_label_is_refused_by_the_gateway_and_again_by_the_planner(labels: Any) -> None:
    assert not are_labels(labels)
    with pytest.raises(BadRequestProblem) as refused:
        command_of(labels)
    assert refused.value.details["field"].startswith("labels")
    forged = command_of({}).model_copy(update={"labels": labels})
    with pytest.raises(InvalidPlan, match="labels"):
        creation_group(forged, "c-1")


def test_a_list_is_narrowed_to_a_label() -> None:
    row = Row(
        job_id="j",
        tenant="t",
        status="running",
        request_hash="",
        submitted_by="ann",
        created_at="",
        labels={"order": "4711"},
    )
    assert JobQuery(label=("order", "4711")).takes(row)
    assert not JobQuery(label=("order", "471")).takes(row)
    assert not JobQuery(label=("env", "4711")).takes(row)
    assert not JobQuery(label=("order", "4711"), agent="bob").takes(row)
    assert row.summary()["labels"] == {"order": "4711"}
    assert JobQuery(label=("a", "b")).subject != JobQuery().subject, "a cursor of one leads nowhere in the other"


def test_a_bundle_without_arguments_shows_no_label() -> None:
    assert "labels" in CLASSES["arguments"]
    assert "labels" not in PLAIN
