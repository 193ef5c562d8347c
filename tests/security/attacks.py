"""What the checks of `make security` do to a system: every operation of the API as one asks for it, and records written
by hand.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.replay import replay
from tests.testkit import http_api
from tests.testkit.system import System

TOLD = (Topic.JOBS_COMMANDS, Topic.JOBS_EVENTS, Topic.WORKERS, Topic.TOOLS_REGISTRY)
"""Where what somebody may do over HTTP ends up."""


class Operation(NamedTuple):
    """One request of the API, such that who may would be heard."""

    method: str
    path: str
    body: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations(job: str, execution: str, request: str) -> Iterator[Operation]:
    """Everything of docs/openapi.json that asks for a token, about this job, its step and its open request."""
    filled = {"job_id": job, "execution_id": execution, "request_id": request, "seq": "1"}
    filled |= {"name": "poke_irreversible", "worker_id": "executor-0", "receipt": "a" * 64, "pseudonym": "a" * 32}
    filled |= {"topic": str(Topic.JOBS_COMMANDS), "partition": "0", "offset": "0"}
    for template, methods in http_api.document()["paths"].items():
        for method, described in methods.items():
            if described.get("security"):
                path = template.format(**filled) + _QUERIES.get(template, "").format(**filled)
                body = _BODIES.get(template.rpartition("/")[2], {"reason": "because"})
                yield Operation(method.upper(), path, None if method == "get" else _filled(body, filled))


_QUERIES = {"/api/effects": "?job_id={job_id}", "/api/seals/consistency": "?old=0"}
_BODIES: dict[str, dict[str, Any]] = {
    "jobs": {"plan": {"nodes": [{"id": "a", "tool": "poke_pure", "args": {"tag": "from-a-stranger"}}]}},
    "continue": {"request_id": "{request_id}"},
    "respond": {"request_id": "{request_id}", "action": "approve"},
    "signal": {"correlation_key": "k"},
    "resolve": {"verdict": "happened", "evidence": "looked"},
    "end": {"evidence": "looked"},
    "reconcile": {},
    "trial": {"policy": "x"},
    "erase": {"subject": "c-17"},
    "enrol": {"subject": "c-17"},
    "hold": {"subject": "c-17"},
    "schedules": {"scheduler": "from-a-stranger"},
}


def _filled(body: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {key: value.format(**names) if isinstance(value, str) else value for key, value in body.items()}


class Written(NamedTuple):
    """The records of one job in one topic whose type names this."""

    topic: Topic
    job: str
    kind: str


def written_again(system: System, what: Written, under: str, times: int = 3) -> int:
    """Append each of them again, byte for byte, under this job's key; how many there were before."""
    return asyncio.run(_written_again(system.state().kafka, what, under.encode(), times))


async def _written_again(kafka: str, what: Written, under: bytes, times: int) -> int:
    log = KafkaLog(kafka)
    appender = log.appender()
    await log.start()
    try:
        await appender.start()
        found = [record async for record in _all(log, what.topic) if _is(record, what)]
        again = [Draft(record.topic, under, record.value, record.headers) for record in found]
        await appender.append([(one,) for one in again * times])
        await appender.stop()
        return len(found)
    finally:
        await log.stop()


async def _all(log: KafkaLog, topic: Topic) -> AsyncIterator[Record]:
    """Every record that is there now."""
    places = [(str(topic), number) for number in range(await log.partitions(topic))]
    begins, ends = await log.beginning_offsets(places), await log.end_offsets(places)
    for place in places:
        async for records in replay(log, place, begins[place], ends[place]):
            for record in records:
                yield record


def _is(record: Record, what: Written) -> bool:
    return record.key == what.job.encode() and what.kind.encode() in (record.header("ce_type") or b"")
