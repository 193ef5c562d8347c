"""What keeps asyncapi.json from being FastStream's own (docs/adr/0008): fails once that no longer holds."""

import json
from typing import Any

from faststream.kafka import KafkaBroker
from faststream.specification import AsyncAPI

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.events import JobCancelled, JobCompleted
from aetheris.protocol.messages.published import asyncapi


def faststreams() -> dict[str, Any]:
    broker = KafkaBroker()
    broker.publisher(Topic.JOBS_EVENTS, title="jobEvents", schema=JobCompleted | JobCancelled)
    return json.loads(AsyncAPI(broker, title="Aetheris", version="1").to_specification().to_json())


def test_its_document_has_one_message_for_a_topic_without_names_and_headers() -> None:
    (message,) = faststreams()["components"]["messages"].values()
    assert "headers" not in message
    assert "job_completed" not in json.dumps(message)


def test_ours_names_each_event_its_headers_and_its_schema() -> None:
    found = asyncapi("./schemas")
    message = found["components"]["messages"]["job_completed"]
    assert message["name"] == "io.aetheris.job_completed.v1"
    assert message["payload"]["schema"]["$ref"] == "./schemas/job_completed.v1.json"
    assert "ce_type" in found["components"]["messageTraits"]["cloudEvent"]["headers"]["required"]
