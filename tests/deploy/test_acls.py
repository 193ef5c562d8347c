"""Real brokers with TLS and an authorizer: with the generated users each service does its work, and no more."""

import asyncio
import subprocess
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from aetheris.cli import token_files
from aetheris.cli.app import app
from aetheris.cli.embedded import kafka
from aetheris.cli.embedded.kafka import Broker, Tuning, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.valkey import Valkey, running_valkey
from aetheris.http_server.internal import kept_in, make
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.keys.files import make_key
from aetheris.runtime.process.settings import RuntimeSettings
from tests.deploy.kafka_tools import command
from tests.deploy.manifests import kubectl_needed, name, of_kind
from tests.testkit.attempts import fresh
from tests.testkit.authority import Authority, Identity
from tests.testkit.external_server import running_outside, until
from tests.testkit.rig import Rig
from tests.testkit.services import SERVICES, asked, processes
from tests.testkit.system import System
from tests.testkit.tokens import headers_of, write_tokens

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(900), kubectl_needed]

PARTITIONS = 4
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Secured:
    """Two brokers that speak TLS, and who may speak to them."""

    address: str
    authority: Authority
    users: dict[str, Identity]

    def env(self, user: str) -> dict[str, str]:
        """What a process is told to be this user."""
        found = self.users[user]
        return {
            "AETHERIS_KAFKA": self.address,
            "AETHERIS_KAFKA_CA": str(self.authority.ca),
            "AETHERIS_KAFKA_CERT": str(found.certificate),
            "AETHERIS_KAFKA_KEY": str(found.key),
        }

    def producer(self, user: str | None) -> AIOKafkaProducer:
        """A producer of this user, or of somebody without a certificate."""
        own = self.users[user] if user is not None else None
        files = {"kafka_ca": self.authority.ca} | (
            {} if own is None else {"kafka_cert": own.certificate, "kafka_key": own.key}
        )
        context = tls_context(RuntimeSettings.model_validate(files))
        return AIOKafkaProducer(
            **client_options(self.address), security_protocol="SSL", ssl_context=context, request_timeout_ms=15_000
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Generator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "authority")
    with brokers(folder, authority) as (plain, encrypted):
        asyncio.run(ensure_topics(plain, PARTITIONS, 2))
        grant(plain)
        users = {name(user): authority.sign(name(user)) for user in of_kind("production", "KafkaUser")}
        yield Secured(encrypted, authority, users)


@contextmanager
def brokers(folder: Path, authority: Authority) -> Generator[tuple[str, str]]:
    """A controller with a broker, and a second broker: the addresses for whoever may do anything, and of TLS."""
    ports, own = Ports(folder), authority.sign("broker")
    store = folder / "broker.pem"
    store.write_bytes(own.key.read_bytes() + own.certificate.read_bytes())
    common = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "offsets.topic.replication.factor": "2",
    }
    installation = install(lambda _part, _message: None)
    controller, cluster = ports.get("controller"), "A" + "a" * 21
    with ExitStack() as running, mock.patch.object(kafka, "_fresh_cluster_id", return_value=cluster):
        for node in (1, 2):
            plain, tls = (f"127.0.0.1:{ports.get(f'{kind}-{node}')}" for kind in ("plain", "tls"))
            listeners = f"PLAINTEXT://{plain},SSL://{tls}"
            properties = common | {
                "node.id": str(node),
                "process.roles": "broker,controller" if node == 1 else "broker",
                "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}" if node == 1 else listeners,
                "advertised.listeners": listeners,
            }
            tuning = Tuning(properties=properties)
            broker = Broker(installation, folder / f"broker-{node}", ports.get(f"plain-{node}"), controller, tuning)
            running.enter_context(running_broker(broker, folder / f"broker-{node}.log"))
        addresses = [",".join(f"127.0.0.1:{ports.get(f'{kind}-{n}')}" for n in (1, 2)) for kind in ("plain", "tls")]
        yield addresses[0], addresses[1]


def grant(bootstrap: str) -> None:
    """What Strimzi's user operator does with the generated KafkaUsers, by Kafka's own tool."""
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(_run, list(_grants(bootstrap))):
            assert done.returncode == 0, done.stdout + done.stderr


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def _grants(bootstrap: str) -> Iterator[list[str]]:
    for user in of_kind("production", "KafkaUser"):
        alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
        for acl in user["spec"]["authorization"]["acls"]:
            resource = acl["resource"]
            kind = (resource["type"], resource["patternType"], tuple(acl["operations"]))
            alike.setdefault(kind, []).append(resource["name"])
        for (what, pattern, operations), names in alike.items():
            argv = ["--bootstrap-server", bootstrap, "--add", "--allow-principal", f"User:{name(user)}"]
            argv += ["--resource-pattern-type", "prefixed" if pattern == "prefix" else pattern]
            argv += [part for operation in operations for part in ("--operation", operation)]
            argv += [part for one in names for part in (f"--{what}", one)]
            yield command("org.apache.kafka.tools.AclCommand", *argv)


@pytest.fixture(scope="module")
def rig(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_services(secured, tmp_path_factory.mktemp("services"), {}) as rig:
        yield rig


@contextmanager
def running_services(secured: Secured, folder: Path, told: Mapping[str, Mapping[str, str]]) -> Generator[Rig]:
    """Each service as its user; `told` are settings of one service beside."""
    write_tokens(folder, {"n": "default", token_files.APPROVER: "default"})
    seal = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "seal.pem").write_bytes(seal)
    (folder / "seal.pem").chmod(0o600)
    make_key(folder / "log.pem")
    make(kept_in(folder))
    ports = Ports(folder)
    valkey = Valkey(folder / "valkey")
    with running_outside(folder / "outside") as external, running_valkey(valkey, folder / "valkey.log") as redis:
        settings = external.env | {
            "AETHERIS_REDIS": redis,
            "AETHERIS_DATA": str(folder),
            "AETHERIS_SEAL_KEY": str(folder / "seal.pem"),
            "AETHERIS_SEAL_LOG_KEY": str(folder / "log.pem"),
            "AETHERIS_TOOLS": "tests.testkit.external_tools",
            "AETHERIS_VERIFIER_URL": f"http://127.0.0.1:{ports.get('verifier-http')}",
            "AETHERIS_LEASE_TTL_S": "2",
        }
        own = {
            service: {**secured.env(f"aetheris-{service.replace('_', '-')}"), **told.get(service, {})}
            for service in SERVICES
        }
        with processes(folder, settings, own) as running:

            def ready() -> bool:
                return all(asked(port, "/readyz")[0] == 200 for _, port in running.values())

            try:
                until(ready, PATIENCE_S)
            except TimeoutError:
                body = {service: (folder / f"{service}.log").read_text()[-600:] for service in SERVICES}
                raise AssertionError(body) from None
            url = f"http://127.0.0.1:{Ports(folder).get('gateway-http')}/api"
            headers = headers_of("n")
            with httpx.Client(base_url=url, headers=headers, timeout=20, trust_env=False) as api:
                yield Rig(System(folder, api), external)


def poke(node: str, tag: str, *after: str, tool: str = "poke_probeable") -> dict[str, Any]:
    return {"id": node, "tool": tool, "args": {"tag": f"{tag}-{node}"}, "depends_on": list(after)}


async def test_each_service_does_its_work(secured: Secured, rig: Rig) -> None:
    async with secured.producer("aetheris-gateway") as gateway:  # who may write commands may write nonsense
        await gateway.send_and_wait(Topic.JOBS_COMMANDS, b"no command", key=b"garbage")
    tag = fresh("secured")
    second, third = poke("b", tag, "a", tool="poke_idempotent"), poke("c", tag, "b", tool="poke_pure")
    job = rig.system.submit(poke("a", tag), second, third)
    rig.system.wait_status(job, "completed", PATIENCE_S)
    parked = rig.system.submit(poke("lost", tag, tool="poke_lost"))
    rig.system.wait_status(parked, "waiting", PATIENCE_S)
    rig.system.resolve(parked, "lost", "happened", result={})
    rig.system.wait_status(parked, "completed", PATIENCE_S)
    for one in (job, parked):
        until(lambda one=one: _sealed(rig, one), PATIENCE_S)
    assert (rig.external.count(f"{tag}-a"), rig.external.count(f"{tag}-b")) == (1, 1)
    text = "".join((rig.system.data / f"{service}.log").read_text() for service in SERVICES)
    assert "Authorization" not in text
    env = secured.env("aetheris-subscriber")
    argv = ["subscribe", "--until-now", "--group", "test", "--job", job]
    done = await asyncio.to_thread(CliRunner().invoke, app, argv, env=env)
    assert done.exit_code == 0, done.output
    assert '"job_completed"' in done.output


def _sealed(rig: Rig, job: str) -> bool:
    report = rig.system.api.get(f"/jobs/{job}/verify").json()
    return bool(report.get("ok")) and report.get("seal") is not None


async def test_nobody_writes_what_is_not_theirs(secured: Secured) -> None:
    everything = [*map(str, Topic), *(dead_letters(str(topic)) for topic in Topic)]
    for user in of_kind("production", "KafkaUser"):
        acls = user["spec"]["authorization"]["acls"]
        own = {acl["resource"]["name"] for acl in acls if "Write" in acl["operations"]}
        async with secured.producer(name(user)) as producer:
            for topic in sorted(set(everything) - own):
                with pytest.raises(TopicAuthorizationFailedError):
                    await producer.send_and_wait(topic, b"{}", key=b"forged")


async def test_who_runs_probes_can_not_write_the_log_of_seals(secured: Secured) -> None:
    async with secured.producer("aetheris-prober") as prober:
        for topic in (Topic.JOBS_SEALS, Topic.AUDIT_CHECKPOINTS, Topic.VERIFICATIONS):
            with pytest.raises(TopicAuthorizationFailedError):
                await prober.send_and_wait(topic, b"{}", key=b"forged")
    async with secured.producer("aetheris-verifier") as verifier:
        await verifier.send_and_wait(Topic.JOBS_SEALS, b"no seal", key=b"garbage")


async def test_without_a_certificate_nobody_is_heard(secured: Secured) -> None:
    producer = secured.producer(None)
    try:
        with pytest.raises(KafkaConnectionError):
            await producer.start()
    finally:
        await producer.stop()
