"""What downstream relies on: the committed AsyncAPI and schemas are the models', and no change breaks a reader."""

import json
import runpy
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.protocol.messages.events import EVENTS, ToolInvocationFinished
from aetheris.protocol.messages.published import asyncapi, breaks, schemas

DOCS = Path(__file__).parents[2] / "docs"
FINISHED = "tool_invocation_finished.v1"


def test_the_committed_files_are_what_the_models_say() -> None:
    generate = runpy.run_path(str(DOCS / "schemas" / "generate.py"))
    wanted = generate["rendered"]()
    stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    left = {path.name for path in (DOCS / "schemas").glob("*.json")} - {path.name for path in wanted}
    assert not stale, "run `make docs`"
    assert not left, "run `make docs`"
    assert generate["broken"]() == []


def test_every_event_is_described_and_takes_what_is_written() -> None:
    found = schemas()
    assert {f"{name}.v1" for name in EVENTS} <= found.keys()
    for schema in found.values():
        Draft7Validator.check_schema(dict(schema))
    event = ToolInvocationFinished(
        job_id="j",
        node_id="n",
        idempotency_key="k",
        invocation_id="i",
        outcome=Outcome.SUCCESS,
        via=Via.EXECUTOR,
        result={"a": 1},
    )
    validator = Draft7Validator(dict(found[FINISHED]))
    payload = json.loads(event.model_dump_json(exclude_none=True))
    assert list(validator.iter_errors(payload)) == []
    assert list(validator.iter_errors(payload | {"outcome": "perhaps"}))


def test_the_document_names_what_exists() -> None:
    document = asyncapi("./schemas")
    assert {channel["address"] for channel in document["channels"].values()} == {
        Topic.JOBS_EVENTS,
        Topic.JOBS_SEALS,
        Topic.ACCESS_RECORDS,
        Topic.LEDGER_RECORDS,
    }
    for message in document["components"]["messages"].values():
        assert (DOCS / message["payload"]["schema"]["$ref"]).exists()
    for channel in document["channels"].values():
        assert channel["messages"].keys() <= document["components"]["messages"].keys()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda new: new["properties"].pop("external_id"), "/external_id: removed"),
        (lambda new: new["required"].append("error"), "/error: made required"),
        (lambda new: new["required"].remove("via"), "/via: no longer required"),
        (lambda new: new["$defs"]["Via"]["enum"].remove("late"), "/via: no longer takes the value late"),
        (lambda new: new["properties"]["error"]["anyOf"].pop(), "/error: no longer takes null"),
        (lambda new: new["$defs"]["BlobRef"]["properties"].pop("size"), "/result_ref/size: removed"),
        (lambda new: new["properties"]["result"].update(type="string"), "/result: no longer takes anything"),
    ],
)
def test_what_breaks_a_reader_is_found(change: Any, fault: str) -> None:
    old = schemas()[FINISHED]
    new = deepcopy(dict(old))
    assert breaks(old, new) == []
    change(new)
    assert fault in breaks(old, new)


def test_what_is_added_breaks_nobody() -> None:
    old = schemas()[FINISHED]
    new = deepcopy(dict(old))
    new["properties"]["cost"] = {"type": "number"}
    new["$defs"]["Via"]["enum"].append("oracle")
    assert breaks(old, new) == []
    assert breaks(new, {**new, "required": [*new["required"], "cost"]}) == ["/cost: made required"]
