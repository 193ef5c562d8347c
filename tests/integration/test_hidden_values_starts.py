"""A person's value in what starts a job, by the time, by a message or by a webhook, stays where its owner put it.

That is the file of the plan, and the topic of the messages: both are the user's own (docs/schedules.md).
"""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aetheris.cli import token_files
from aetheris.cli.embedded.ports import free_port
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.runtime.kafka.bootstrap import client_options
from tests.testkit.attempts import fresh as fresh_name
from tests.testkit.external_server import until
from tests.testkit.hidden_rig import HiddenRig, call, fresh, leaks, running_hidden_rig
from tests.testkit.services import ServiceProcess, running_service
from tests.testkit.tokens import entry_of, token_of

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400)]

PATIENCE_S = 90.0
KEY = "a key that signs deliveries"
HELLO = {"id": "hello", "tool": "greet", "args": {"text": "you"}}
STARTS = """
[[schedules]]
name = "{name}"
cron = "* * * * *"
plan = "literal.json"
within_s = 3600

[[topics]]
name = "{name}"
topic = "{name}"
plan = "named.json"

[[webhooks]]
name = "{name}"
secret = "key"
plan = "named.json"
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[HiddenRig]:
    with running_hidden_rig(tmp_path_factory.mktemp("started")) as rig:
        yield rig


@dataclass(frozen=True)
class Starts:
    """What starts jobs under a name: a schedule, a topic and a webhook, each with a person's value."""

    rig: HiddenRig
    name: str
    user: Path
    """Where its owner keeps the file and the plans."""
    kept: Path
    """Where the scheduler keeps what it keeps, and its log."""
    port: int

    @contextmanager
    def scheduler(self) -> Generator[ServiceProcess]:
        env = {
            "AETHERIS_KAFKA": self.rig.system.state().kafka,
            "AETHERIS_DATA": str(self.kept),
            "AETHERIS_WORKER_ID": "scheduler-0",
            "AETHERIS_STARTS": str(self.user / "starts.toml"),
            "AETHERIS_GATEWAY_URL": self.rig.system.state().gateway,
            "AETHERIS_GATEWAY_TOKEN": str(self.user / "token"),
            "AETHERIS_HTTP_PORT": str(self.port),
            **self.rig.collector.env,
        }
        with running_service("scheduler", self.kept, env) as running:
            yield running

    def delivered(self, delivery: str, value: Any) -> int:
        body, sent = json.dumps(value).encode(), str(int(time.time()))
        signed = hmac.digest(KEY.encode(), f"{delivery}.{sent}.".encode() + body, hashlib.sha256)
        signature = f"v1,{base64.b64encode(signed).decode()}"
        headers = {"webhook-id": delivery, "webhook-timestamp": sent, "webhook-signature": signature}
        url = f"http://127.0.0.1:{self.port}/starts/{self.name}"
        try:
            return httpx.post(url, content=body, headers=headers, timeout=30, trust_env=False).status_code
        except httpx.TransportError:
            return 0

    def jobs(self) -> list[str]:
        """What it has started so far."""
        listed = self.rig.system.api.get("/jobs").json()["jobs"]
        return [one["job_id"] for one in listed if one["submitted_by"] == "scheduler"]

    def refused(self, code: str) -> int:
        """How often its log says so."""
        return sum(log.read_text().count(code) for log in self.kept.glob("*.log"))

    async def send(self, *messages: Any) -> None:
        options = client_options(self.rig.system.state().kafka)
        producer = AIOKafkaProducer(**options)
        await producer.start()
        for message in messages:
            await producer.send_and_wait(self.name, json.dumps(message).encode(), key=b"k")
        await producer.stop()

    async def make_topic(self) -> None:
        admin = AIOKafkaAdminClient(**client_options(self.rig.system.state().kafka))
        await admin.start()
        await admin.create_topics([NewTopic(self.name, num_partitions=1, replication_factor=1)])
        await admin.close()


def starts_of(rig: HiddenRig, folder: Path, subject: str, value: str) -> Starts:
    name, user, kept = fresh_name("starts"), folder / "user", folder / "scheduler"
    user.mkdir()
    kept.mkdir()
    with token_files.changed(rig.system.data / "tokens.toml") as entries:
        entries.append(entry_of("scheduler", roles=(Role.SUBMIT,), kind=PrincipalKind.SERVICE))
    (user / "token").write_text(token_of("scheduler"))
    (user / "key").write_text(KEY)
    (user / "starts.toml").write_text(STARTS.format(name=name))
    (user / "literal.json").write_text(json.dumps({"nodes": [HELLO, call("a", "echo", subject, value)]}))
    named = call("a", "echo", "", {"$start": "/value/email"})
    named["args"]["customer"] = {"$start": "/value/customer"}
    (user / "named.json").write_text(json.dumps({"nodes": [HELLO, named]}))
    return Starts(rig, name, user, kept, free_port())


def test_a_value_that_starts_a_job_is_erased_from_all_that_was_started(rig: HiddenRig, tmp_path: Path) -> None:
    value, subject = fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    starts = starts_of(rig, tmp_path, subject, value)
    said = {"customer": subject, "email": value}
    asyncio.run(starts.make_topic())
    asyncio.run(starts.send(said, {"email": value}, {**said, "customer": ""}, {**said, "email": {"$secret": value}}))
    with starts.scheduler():
        until(lambda: starts.delivered("d1", said) == 202, PATIENCE_S)
        assert starts.delivered("d2", {"email": value}) == 422
        assert starts.delivered("d3", {**said, "customer": ""}) == 422
        until(lambda: len(starts.jobs()) >= 3, PATIENCE_S)
        until(lambda: starts.refused("personal_not_served") >= 2, PATIENCE_S)
        until(lambda: starts.refused("occasion") >= 3, PATIENCE_S)
    jobs = starts.jobs()
    rig.system.wait_ended(jobs)
    assert {rig.system.job(job)["status"] for job in jobs} == {"completed"}
    assert rig.given(value)
    for job in jobs:
        rig.system.wait_sealed(job)
        rig.system.verified(job)
    assert_only_with_its_owner(starts, jobs)

    assert rig.post("/subjects/erase", {"subject": subject})[0] == 200
    with starts.scheduler():
        until(lambda: starts.delivered("d4", said) == 422, PATIENCE_S)
        asyncio.run(starts.send(said))
        until(lambda: starts.refused("erased") >= 3, PATIENCE_S)
    for job in jobs:
        rig.system.verified(job)
        opened = rig.system.api.get(f"/jobs/{job}/openings").json()
        assert (opened["openings"], opened["erased"]) == ([], 2)
    assert_only_with_its_owner(starts, jobs)


def assert_only_with_its_owner(starts: Starts, jobs: list[str]) -> None:
    """In his topic (which shows that a value would be found), and in nothing that the installation keeps or says."""
    found = leaks(starts.rig, *jobs, beside=[starts.kept])
    assert {place for place in found if starts.name not in place} == set()
    assert any(place.startswith("segment") for place in found)
    assert any(place.startswith("kafka") for place in found)
