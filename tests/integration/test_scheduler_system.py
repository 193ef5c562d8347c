"""Jobs started by the time, by messages and by webhooks: each occasion once, whoever is killed; counted outside."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aetheris.cli import token_files
from aetheris.cli.embedded.ports import free_port
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.runtime.kafka.bootstrap import client_options
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig
from tests.testkit.services import ServiceProcess, running_service
from tests.testkit.tokens import entry_of, token_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PATIENCE_S = 90.0
MESSAGES, KILLS = 60, 6
DELIVERIES = 8


@contextmanager
def scheduler(rig: Rig, folder: Path, starts: str, name: str = "scheduler-0", **more: str) -> Generator[ServiceProcess]:
    with token_files.changed(rig.system.data / "tokens.toml") as entries:
        if not any(one.name == "scheduler" for one in entries):
            entries.append(entry_of("scheduler", roles=(Role.SUBMIT,), kind=PrincipalKind.SERVICE))
    (folder / "token").write_text(token_of("scheduler"))
    (folder / "starts.toml").write_text(starts)
    env = {
        "AETHERIS_KAFKA": rig.system.state().kafka,
        "AETHERIS_DATA": str(folder),
        "AETHERIS_WORKER_ID": name,
        "AETHERIS_STARTS": str(folder / "starts.toml"),
        "AETHERIS_GATEWAY_URL": rig.system.state().gateway,
        "AETHERIS_GATEWAY_TOKEN": str(folder / "token"),
        **more,
    }
    with running_service("scheduler", folder, env) as running:
        yield running


def counted(rig: Rig, tag: str) -> Counter[str]:
    """How often each effect of a tag happened."""
    return Counter(one["tag"] for one in rig.external.effects() if one["tag"].startswith(tag))


def plan(pointer: str) -> str:
    args = {"tag": {"$start": pointer}}
    return json.dumps({"nodes": [{"id": "poke", "tool": "poke_idempotent", "args": args}]})


def test_two_of_them_killed_and_restarted_start_each_due_time_once(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan("/due"))
    schedule = (
        '[[schedules]]\nname = "often"\ncron = "*/2 * * * *"\nplan = "plan.json"\ncatch_up = "all"\nwithin_s = 3600\n'
    )
    for _ in range(3):
        with scheduler(rig, tmp_path, schedule) as one, scheduler(rig, tmp_path, schedule, "scheduler-1") as two:
            until(lambda: counted(rig, "20").total() > 0, PATIENCE_S)
            os.kill(one.process.pid, signal.SIGKILL)
            os.kill(two.process.pid, signal.SIGKILL)
    with scheduler(rig, tmp_path, schedule):
        until(lambda: len(counted(rig, "20")) >= 29, PATIENCE_S)
    found = counted(rig, "20")
    assert set(found.values()) == {1}
    assert all(int(tag[14:16]) % 2 == 0 for tag in found)


async def test_each_message_of_a_topic_starts_one_job_whoever_is_killed(rig: Rig, tmp_path: Path) -> None:
    topic, tag = fresh("orders"), fresh("order")
    options = client_options(rig.system.state().kafka)
    admin = AIOKafkaAdminClient(**options)
    await admin.start()
    await admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    await admin.close()
    producer = AIOKafkaProducer(**options)
    await producer.start()
    for bad in (b"{", b"", json.dumps({"id": {"$secret": "x@1"}}).encode(), b"[]"):
        await producer.send_and_wait(topic, bad, headers=[("odd", b"\xff")])
    for number in range(MESSAGES):
        value = json.dumps({"id": f"{tag}-{number}"}).encode()
        await producer.send_and_wait(topic, value, key=str(number).encode(), partition=number % 2)
    await producer.stop()
    (tmp_path / "plan.json").write_text(plan("/value/id"))
    starts = f'[[topics]]\nname = "{topic}"\ntopic = "{topic}"\nplan = "plan.json"\n'
    for kill in range(KILLS):
        with scheduler(rig, tmp_path, starts) as running:
            wanted = (kill + 1) * MESSAGES // (KILLS + 1)
            await asyncio.to_thread(until, lambda wanted=wanted: len(counted(rig, tag)) >= wanted, PATIENCE_S)
            os.kill(running.process.pid, signal.SIGKILL)
    with scheduler(rig, tmp_path, starts):
        await asyncio.to_thread(until, lambda: len(counted(rig, tag)) >= MESSAGES, PATIENCE_S)
    assert counted(rig, tag) == Counter(f"{tag}-{number}" for number in range(MESSAGES))


def test_each_delivery_to_a_webhook_starts_one_job_whoever_is_killed_and_no_lie_any(rig: Rig, tmp_path: Path) -> None:
    hook, tag, key = fresh("hook"), fresh("delivered"), "a key that signs deliveries"
    (tmp_path / "plan.json").write_text(plan("/value/id"))
    (tmp_path / "key").write_text(key)
    starts = f'[[webhooks]]\nname = "{hook}"\nsecret = "key"\nplan = "plan.json"\n'
    port = free_port()
    url = f"http://127.0.0.1:{port}/starts/{hook}"
    for kill in range(KILLS + 1):
        with scheduler(rig, tmp_path, starts, AETHERIS_HTTP_PORT=str(port)) as running:
            for number in range(DELIVERIES):
                body = json.dumps({"id": f"{tag}-{number}"}).encode()
                until(lambda body=body, number=number: _delivered(url, key, f"d{number}", body) == 202, PATIENCE_S)
                if kill < KILLS and number == kill:
                    os.kill(running.process.pid, signal.SIGKILL)
                    break
            else:
                other, huge = json.dumps({"id": f"{tag}-other"}).encode(), b"1" * (256 * 1024 + 1)
                assert _delivered(url, "a key of somebody else's, long", "lie", other) == 401
                assert _delivered(url, key, "late", other, -301) == 401
                assert _delivered(url, key, "huge", huge) == 413
                assert _delivered(url, key, "none", b"{") == 422
                assert _delivered(url, key, "secret", b'{"id": {"$secret": "x@1"}}') == 422
                assert _delivered(url, key, "d0", other) == 422, "another body under a delivery's id"
                assert _delivered(f"{url}x", key, "other", other) == 404
                assert httpx.get(url, trust_env=False).status_code == 405
    until(lambda: len(counted(rig, tag)) >= DELIVERIES, PATIENCE_S)
    assert counted(rig, tag) == Counter(f"{tag}-{number}" for number in range(DELIVERIES))


def _delivered(url: str, key: str, delivery: str, body: bytes, after_s: int = 0) -> int:
    """The status of an answer; 0 where nobody listens."""
    sent = str(int(time.time()) + after_s)
    signed = hmac.digest(key.encode(), f"{delivery}.{sent}.".encode() + body, hashlib.sha256)
    signature = f"v1,{base64.b64encode(signed).decode()}"
    headers = {"webhook-id": delivery, "webhook-timestamp": sent, "webhook-signature": signature}
    try:
        return httpx.post(url, content=body, headers=headers, timeout=30, trust_env=False).status_code
    except httpx.TransportError:
        return 0
