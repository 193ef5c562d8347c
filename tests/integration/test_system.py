"""The whole system as others see it: foreign Kafka clients, bad records on every topic, one trace per key."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.keys import idempotency_key, job_key
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.kafka.bootstrap import client_options, login_of, servers_of
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import TracedRig, poke, running_traced_rig

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 4
kcat_needed = pytest.mark.skipif(
    shutil.which("kcat") is None and "CI" not in os.environ, reason="kcat comes with `make system-deps`"
)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[TracedRig]:
    with running_traced_rig(tmp_path_factory.mktemp("system"), {"AETHERIS_TRACE_SAMPLE": "0"}) as rig:
        yield rig


@kcat_needed
def test_a_client_that_nobody_here_wrote_reads_the_events(rig: TracedRig) -> None:
    job = rig.system.completed(poke("a", "kcat-a"), poke("b", "kcat-b", "a"))
    bootstrap, topic = rig.system.state().kafka, Topic.JOBS_EVENTS
    login = login_of(bootstrap)
    assert login is not None
    known = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}
    known |= {"sasl.username": login.user, "sasl.password": login.password}
    settings = [part for name, value in known.items() for part in ("-X", f"{name}={value}")]
    partition = str(partition_of(job, PARTITIONS))
    argv = ["kcat", *settings, "-C", "-b", servers_of(bootstrap), "-t", topic, "-p", partition]
    argv += ["-o", "beginning", "-e", "-q", "-J"]
    lines = subprocess.run(argv, capture_output=True, check=True, timeout=30).stdout.splitlines()
    records = [record for record in map(json.loads, lines) if record["key"] == job]
    headers = [dict(zip(r["headers"][::2], r["headers"][1::2], strict=True)) for r in records]
    types = [h["ce_type"].removeprefix("io.aetheris.").removesuffix(".v1") for h in headers]
    assert types[:3] == ["job_created", "plan_generated", "tool_invocation_started"]
    assert types.index("tool_invocation_finished") + 1 == types.index("command_committed")
    assert types.index("job_completed") > max(i for i, name in enumerate(types) if name == "node_finished")
    for header, record in zip(headers, records, strict=True):
        assert header["ce_specversion"] == "1.0"
        assert header["content-type"] == "application/json"
        assert header["ce_subject"] in (job, "a", "b")
        assert {"ce_id", "ce_source", "ce_time"} <= header.keys()
        assert json.loads(record["payload"])["job_id"] == job


async def append(rig: TracedRig, topic: str, job: str, value: bytes, headers: list[tuple[str, bytes]]) -> int:
    """Put a record on a topic as a stranger would; its offset."""
    async with AIOKafkaProducer(**client_options(rig.system.state().kafka)) as producer:
        partition = partition_of(job, PARTITIONS)
        sent = await producer.send_and_wait(topic, value, key=job.encode(), partition=partition, headers=headers)
        return sent.offset


async def dead_letter(rig: TracedRig, topic: str, value: bytes) -> dict[str, bytes]:
    """The headers of the dead letter with these bytes, once it is there."""
    async with AIOKafkaConsumer(**client_options(rig.system.state().kafka)) as consumer:
        places = [TopicPartition(dead_letters(topic), number) for number in range(PARTITIONS)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        async for record in consumer:
            if record.value == value:
                return dict(record.headers)
    raise AssertionError("the consumer ended")


@pytest.mark.parametrize("topic", [Topic.JOBS_COMMANDS, Topic.TOOLS_REQUESTS, Topic.TOOLS_GRANTS, Topic.JOBS_EVENTS])
async def test_garbage_is_quarantined_and_others_go_on(rig: TracedRig, topic: Topic) -> None:
    job = "garbage"
    value = fresh(f"\xff not json {topic}").encode("latin-1")
    offset = await append(rig, topic, job, value, [("ce_type", b"io.aetheris.job_created.v1")])
    headers = await dead_letter(rig, topic, value)
    assert str(offset).encode() in headers.values()
    assert any("reason" in name and held for name, held in headers.items())
    nodes = [poke("a", f"after-garbage-{topic}-{number}") for number in range(PARTITIONS * 2)]
    for node in nodes:
        rig.system.completed(node)


async def test_verifications_garbage_is_quarantined(rig: TracedRig) -> None:
    value = fresh("no question").encode()
    await append(rig, Topic.VERIFICATIONS, "garbage", value, [])
    assert await dead_letter(rig, Topic.VERIFICATIONS, value)


def headers_of(kind: str) -> list[tuple[str, bytes]]:
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", f"test-{kind}".encode()),
        ("ce_source", b"test"),
        ("ce_type", f"io.aetheris.{kind}".encode()),
    ]


async def test_an_unknown_type_is_ignored_and_chained(rig: TracedRig) -> None:
    tag = fresh("unknown")
    held = rig.external.hold(tag)
    job = rig.system.submit(poke("a", tag, hold=tag), poke("b", f"{tag}-b", "a"))
    rig.external.wait_for(1, tag)
    await append(rig, Topic.JOBS_EVENTS, job, json.dumps({"job_id": job}).encode(), headers_of("brand_new.v1"))
    held.unlink()
    rig.system.wait_status(job, "completed")
    rig.system.verified(job)
    assert "brand_new" in rig.system.types(job)


def upgrade_check(rig: TracedRig) -> tuple[int, dict[str, Any]]:
    argv = ["upgrade", "check", "--as", "approver", "--data", str(rig.system.data), "--json"]
    done = CliRunner().invoke(app, argv)
    assert done.stdout, done.output
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("event_type", "says"),
    [("policy_allowed.v2", {}), ("tool_invocation_finished.v1", {"outcome": "undone", "via": "executor"})],
)
async def test_a_record_of_a_newer_version_pauses_its_job_alone(
    rig: TracedRig, event_type: str, says: dict[str, str]
) -> None:
    tag = fresh("upgrade")
    held = rig.external.hold(tag)
    job = rig.system.submit(poke("a", tag, hold=tag), poke("b", f"{tag}-b", "a", tool="poke_opaque"))
    rig.external.wait_for(1, tag)
    value = json.dumps({"job_id": job} | says).encode()
    await append(rig, Topic.JOBS_EVENTS, job, value, headers_of(event_type))
    rig.system.wait_status(job, "needs_upgrade")
    assert event_type.partition(".")[0] in rig.system.api.get(f"/jobs/{job}").json()["why"]
    code, told = await asyncio.to_thread(upgrade_check, rig)
    blocking = [one["detail"] for one in told["findings"] if one["blocks"]]
    assert (code, [job in detail and event_type.partition(".")[0] in detail for detail in blocking].count(True)) == (
        1,
        1,
    )
    services = {one["detail"].partition("/")[0] for one in told["findings"] if one["subject"] == "services"}
    assert {"gateway", "planner", "ledger", "tool_executor", "prober", "verifier"} <= services
    assert all(told["version"] in one["detail"] for one in told["findings"] if one["subject"] == "services")
    assert ("topics", False) in {(one["subject"], one["blocks"]) for one in told["findings"]}
    held.unlink()
    rig.system.completed(poke("a", "while-another-needs-an-upgrade"))
    assert rig.external.count(f"{tag}-b") == 0


def test_one_trace_for_each_key_of_a_job_that_wants_it(rig: TracedRig) -> None:
    other = rig.system.completed(poke("a", "untraced"))
    job = rig.system.completed(poke("a", "traced"), options={"trace": True})
    assert rig.system.api.post(f"/jobs/{job}/reconcile").status_code in (200, 202)
    key = idempotency_key(job, "a", "poke_probeable", {"tag": "traced", "delay_s": 0, "hold": ""})
    wanted = {"aetheris-planner", "aetheris-ledger", "aetheris-tool_executor", "aetheris-verifier"}
    named = {"request", "adjudicate", "execute_tool poke_probeable", "put_effect", "audit"}

    def is_whole() -> bool:
        found = rig.collector.of_trace(key[:32])
        return {span.service for span in found} >= wanted and {span.name for span in found} >= named

    until(is_whole, 60)
    spans = rig.collector.of_trace(key[:32])
    known = {span.span_id for span in spans}
    assert any(span.parent_id in known for span in spans if span.service == "aetheris-tool_executor")
    assert "traced" not in repr([span.attributes for span in spans])
    whole = {"command submit", "command reconcile", "step poke_probeable"}
    until(lambda: {span.name for span in rig.collector.of_trace(job_key(job)[:32])} >= whole, 20)
    [step] = [span for span in rig.collector.of_trace(job_key(job)[:32]) if span.name.startswith("step ")]
    [made] = [span for span in spans if span.name.startswith("execute_tool ")]
    assert step.links == {key[:32]}
    assert step.times_ns[0] <= made.times_ns[0] < step.times_ns[1]
    assert other not in {span.attributes.get("aetheris.job_id") for span in rig.collector.everything()}


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"nodes": [poke("a", "x", "b"), poke("b", "x", "a")]}, "depends_on"),
        ({"nodes": [{"id": "a", "tool": "nope"}]}, "nodes[0].tool"),
        ({"nodes": [{"id": "a", "tool": "poke_opaque", "args": {"tag": 5}}]}, "nodes[0].args/tag"),
        (
            {"nodes": [poke("a", "x"), {"id": "b", "tool": "poke_opaque", "args": {"tag": {"$ref": "z#"}}}]},
            "nodes[1].args/tag",
        ),
        ({"nodes": [poke("a", "x" * 2_000_000)]}, "plan"),
    ],
)
def test_a_bad_plan_is_refused_by_field_and_appends_nothing(rig: TracedRig, plan: dict[str, Any], field: str) -> None:
    before = rig.system.ends(Topic.JOBS_COMMANDS)
    answer = rig.system.api.post("/jobs", json={"plan": plan})
    assert answer.status_code == 400, answer.text
    assert field in answer.json()["error"]["message"]
    assert rig.system.ends(Topic.JOBS_COMMANDS) == before


def test_one_request_submits_and_waits(rig: TracedRig) -> None:
    def submit(wait_s: int, *nodes: dict[str, Any], key: str = "") -> tuple[int, dict[str, Any]]:
        headers = {"Prefer": f"wait={wait_s}"} | ({"Idempotency-Key": key} if key else {})
        answer = rig.system.api.post("/jobs", json={"plan": {"nodes": list(nodes)}}, headers=headers)
        return answer.status_code, answer.json()

    for _ in range(8):  # on every partition, soon after one another: each answer comes from the log
        code, job = submit(50, poke("a", fresh("waited")), poke("b", fresh("waited"), "a"))
        assert (code, job["status"]) == (200, "completed")
    code, job = submit(50, {"id": "a", "tool": "poke_refused", "args": {}})
    assert (code, job["status"]) == (200, "failed")
    tag = fresh("slow")
    held = rig.external.hold(tag)
    node = poke("a", tag, hold=tag)
    code, job = submit(1, node, key=tag)
    assert (code, job["status"] in ("submitted", "running")) == (202, True)
    with ThreadPoolExecutor(2) as asking:
        again = asking.submit(submit, 50, node, key=tag)
        seen = asking.submit(rig.system.api.get, f"/jobs/{job['job_id']}", headers={"Prefer": "wait=50"})
        rig.external.wait_for(1, tag)
        held.unlink()
        code, repeated = again.result()
        assert (code, repeated["job_id"], repeated["status"]) == (200, job["job_id"], "completed")
        assert seen.result().json()["status"] == "completed"
    assert rig.external.count(tag) == 1


def test_state_survives_a_flush(rig: TracedRig) -> None:
    job = rig.system.completed(poke("a", "before-flush"))
    rig.system.flush_redis()
    until(lambda: rig.system.job(job).get("status") == "completed", 60)
    rig.system.completed(poke("a", "after-flush"))
