"""Brokers with TLS and an authorizer, which write down whom they let do what; each service as its generated user."""

import asyncio
import re
import subprocess
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import SSLContext
from types import MappingProxyType
from typing import NamedTuple
from unittest import mock

import httpx
from aiokafka import AIOKafkaProducer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aetheris.cli import token_files
from aetheris.cli.embedded import kafka
from aetheris.cli.embedded.kafka import SMALL, Broker, Tuning, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.valkey import Valkey, running_valkey
from aetheris.http_server.internal import kept_in, make
from aetheris.protocol.base.writers import Party
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.keys.files import load_key, make_installation, make_key
from aetheris.runtime.process.settings import RuntimeSettings
from aetheris.verifier.keys import SealKeys, publish
from tests.deploy.kafka_tools import command
from tests.deploy.manifests import WHOLE, Manifest, name, of_kind
from tests.testkit.authority import Authority, Identity
from tests.testkit.external_server import running_outside, until
from tests.testkit.rig import Rig
from tests.testkit.services import SERVICES, asked, processes
from tests.testkit.system import System
from tests.testkit.tokens import headers_of, write_tokens

PARTITIONS = 4
PATIENCE_S = 120.0
SIGNERS = {
    "gateway": Party.GATEWAY,
    "planner": Party.PLANNER,
    "ledger": Party.LEDGER,
    "prober": Party.PROBER,
    "verifier": Party.AUDITOR,
}
ENDS = {"prefix": "*", "literal": ""}
_AUDIT = """\
appender.audit.type=File
appender.audit.name=audit
appender.audit.fileName=${sys:audit}
appender.audit.layout.type=PatternLayout
appender.audit.layout.pattern=%m%n
logger.audit.name=kafka.authorizer.logger
logger.audit.level=debug
logger.audit.additivity=false
logger.audit.appenderRef.audit.ref=audit
"""
_SAID = re.compile(
    r"Principal = User:(?P<user>\S+) is (?P<said>Allowed|Denied) operation = (?P<operation>\w+) "
    r".*? on resource = (?P<what>\w+):\w+:(?P<name>\S+) for request"
)


class Right(NamedTuple):
    """What a user may do with what; a name that ends in * is that of all that begin so."""

    user: str
    operation: str
    what: str
    name: str

    @classmethod
    def of(cls, user: str, operation: str, what: str, name: str) -> "Right":
        """However manifests, Kafka's tool and the brokers write it."""
        return cls(user, operation.upper().replace("_", ""), what.upper(), name)

    def covers(self, used: "Right") -> bool:
        """Whether by this one that was allowed."""
        name = self.name.removesuffix("*")
        return self[:3] == used[:3] and (used.name == name or (name != self.name and used.name.startswith(name)))


@dataclass(frozen=True)
class Secured:
    """Two brokers, who may do what at them, and what they have said to whom."""

    plain: str
    """Where whoever asks may do anything."""
    address: str
    """Where who asks is who his certificate says."""
    authority: Authority
    users: dict[str, Identity]
    audits: Sequence[Path]

    def env(self, user: str) -> dict[str, str]:
        """What a process is told to be this user."""
        found = self.users[user]
        return {
            "AETHERIS_KAFKA": self.address,
            "AETHERIS_KAFKA_CA": str(self.authority.ca),
            "AETHERIS_KAFKA_CERT": str(found.certificate),
            "AETHERIS_KAFKA_KEY": str(found.key),
        }

    def context(self, user: str | None) -> SSLContext | None:
        """Of a client that is this user, or somebody without a certificate."""
        own = self.users[user] if user is not None else None
        files = {"kafka_ca": self.authority.ca} | (
            {} if own is None else {"kafka_cert": own.certificate, "kafka_key": own.key}
        )
        return tls_context(RuntimeSettings.model_validate(files))

    def producer(self, user: str | None) -> AIOKafkaProducer:
        """A producer of this user, or of somebody without a certificate."""
        return AIOKafkaProducer(**client_options(self.address, self.context(user)), request_timeout_ms=15_000)

    def said(self, what: str) -> set[Right]:
        """What was Allowed, or Denied, until now."""
        lines = [line for path in self.audits for line in path.read_text().splitlines()]
        found = [one for line in lines if (one := _SAID.match(line)) is not None and one["said"] == what]
        return {Right.of(one["user"], one["operation"], one["what"], one["name"]) for one in found}

    def missed(self, users: Iterable[str]) -> set[Right]:
        """What these were denied and need; the controller's clock is asked where one may, and nobody here may."""
        asked_if_allowed = {Right.of(user, "Describe", "cluster", "kafka-cluster") for user in users}
        return {right for right in self.said("Denied") if right.user in set(users)} - asked_if_allowed

    def forget_group(self, group: str) -> None:
        """Its marks hold the log up no more, once the brokers have seen its members go."""
        argv = ["--bootstrap-server", self.plain, "--delete", "--group", group]
        delete = command("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *argv)
        until(lambda: "was successful" in _run(delete).stdout, PATIENCE_S)

    @contextmanager
    def without(self, right: Right) -> Generator[None]:
        """Inside nobody but who may do anything has this right."""
        _done([_acl_command(self.plain, "--remove", right)])
        try:
            yield
        finally:
            _done([_acl_command(self.plain, "--add", right)])


@contextmanager
def secured_brokers(folder: Path, overlays: Mapping[str, str] = MappingProxyType({"": WHOLE})) -> Generator[Secured]:
    """Up, with all topics and the rights of all generated users, and down again.

    Args:
        folder: where all of it lies.
        overlays: prefix of an installation → the overlay that it is generated for.
    """
    authority = Authority(folder / "authority")
    found = [user for overlay in overlays.values() for user in of_kind(overlay, "KafkaUser")]
    with _brokers(folder, authority) as (plain, encrypted):
        for prefix in overlays:
            asyncio.run(ensure_topics(plain, PARTITIONS, 2, prefix=prefix))
        _done(list(_grants(plain, found)))
        users = {name(user): authority.sign(name(user)) for user in found}
        yield Secured(plain, encrypted, authority, users, [folder / f"audit-{node}.log" for node in (1, 2)])


def kafka_users() -> list[Manifest]:
    """Every generated user, those of components that production does without too."""
    return of_kind(WHOLE, "KafkaUser")


def granted() -> set[Right]:
    """What is generated for whom."""
    return {
        Right.of(
            name(user),
            operation,
            acl["resource"]["type"],
            acl["resource"]["name"] + ENDS[acl["resource"]["patternType"]],
        )
        for user in kafka_users()
        for acl in user["spec"]["authorization"]["acls"]
        for operation in acl["operations"]
    }


@contextmanager
def _brokers(folder: Path, authority: Authority) -> Generator[tuple[str, str]]:
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
        running.enter_context(mock.patch.object(kafka, "_LOGGING", kafka._LOGGING + _AUDIT))
        for node in (1, 2):
            plain, tls = (f"127.0.0.1:{ports.get(f'{kind}-{node}')}" for kind in ("plain", "tls"))
            listeners = f"PLAINTEXT://{plain},SSL://{tls}"
            properties = common | {
                "node.id": str(node),
                "process.roles": "broker,controller" if node == 1 else "broker",
                "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}" if node == 1 else listeners,
                "advertised.listeners": listeners,
            }
            tuning = Tuning((*SMALL, f"-Daudit={folder / f'audit-{node}.log'}"), properties)
            broker = Broker(installation, folder / f"broker-{node}", ports.get(f"plain-{node}"), controller, tuning)
            running.enter_context(running_broker(broker, folder / f"broker-{node}.log"))
        addresses = [",".join(f"127.0.0.1:{ports.get(f'{kind}-{n}')}" for n in (1, 2)) for kind in ("plain", "tls")]
        yield addresses[0], addresses[1]


def _done(commands: Sequence[Sequence[str]]) -> None:
    """What Strimzi's user operator does with KafkaUsers, by Kafka's own tool."""
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(_run, commands):
            assert done.returncode == 0, done.stdout + done.stderr


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def _grants(bootstrap: str, users: Iterable[Manifest]) -> Iterator[list[str]]:
    for user in users:
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


def _acl_command(bootstrap: str, change: str, right: Right) -> list[str]:
    argv = ["--bootstrap-server", bootstrap, change, "--allow-principal", f"User:{right.user}"]
    argv += ["--operation", right.operation.capitalize(), f"--{right.what.lower()}", right.name]
    argv += ["--force"] if change == "--remove" else []
    return command("org.apache.kafka.tools.AclCommand", *argv)


def _valkey(folder: Path) -> AbstractContextManager[str]:
    return running_valkey(Valkey(folder / "valkey"), folder / "valkey.log")


def signing(keys: Path) -> dict[str, dict[str, str]]:
    """What each service is told so that it signs its records under a fresh root, whose keys lie in this folder."""
    now = datetime.now(UTC)
    rooted = {
        "AETHERIS_INSTALLATION": make_installation(keys, SIGNERS.values(), now - timedelta(1), now + timedelta(1))
    }
    return {"tool_executor": rooted} | {
        service: {
            **rooted,
            "AETHERIS_RECORD_KEY": str(keys / f"{party}.pem"),
            "AETHERIS_RECORD_CERT": str(keys / f"{party}.cert.json"),
        }
        for service, party in SIGNERS.items()
    }


@contextmanager
def running_services(
    secured: Secured,
    folder: Path,
    told: Mapping[str, Mapping[str, str]],
    shared: Mapping[str, str] | None = None,
    prefix: str = "",
) -> Generator[Rig]:
    """Each service as its user of the installation with this prefix, on a Valkey of its own where none is named.

    Args:
        secured: the brokers.
        folder: the data folder.
        told: settings of one service beside.
        shared: those of all.
        prefix: the installation's.
    """
    write_tokens(folder, {"n": "default", token_files.APPROVER: "default"})
    seal = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "seal.pem").write_bytes(seal)
    (folder / "seal.pem").chmod(0o600)
    make_key(folder / "log.pem")
    publish(SealKeys(load_key(folder / "seal.pem"), load_key(folder / "log.pem")), folder / "keys")
    make(kept_in(folder))
    ports = Ports(folder)
    with ExitStack() as running:
        external = running.enter_context(running_outside(folder / "outside"))
        named = any("AETHERIS_REDIS" in one for one in told.values())
        redis = {} if named else {"AETHERIS_REDIS": running.enter_context(_valkey(folder))}
        settings = external.env | {
            **redis,
            "AETHERIS_PREFIX": prefix,
            "AETHERIS_DATA": str(folder),
            "AETHERIS_SEAL_KEY": str(folder / "seal.pem"),
            "AETHERIS_SEAL_LOG_KEY": str(folder / "log.pem"),
            "AETHERIS_TOOLS": "tests.testkit.external_tools",
            "AETHERIS_VERIFIER_URL": f"http://127.0.0.1:{ports.get('verifier-http')}",
            "AETHERIS_LEASE_TTL_S": "2",
            **(shared or {}),
        }
        own = {
            service: {**secured.env(f"{prefix or 'aetheris'}-{service.replace('_', '-')}"), **told.get(service, {})}
            for service in SERVICES
        }
        with processes(folder, settings, own) as started:

            def ready() -> bool:
                return all(asked(port, "/readyz")[0] == 200 for _, port in started.values())

            try:
                until(ready, PATIENCE_S)
            except TimeoutError:
                body = {service: (folder / f"{service}.log").read_text()[-600:] for service in SERVICES}
                raise AssertionError(body) from None
            url = f"http://127.0.0.1:{Ports(folder).get('gateway-http')}/api"
            headers = headers_of("n")
            with httpx.Client(base_url=url, headers=headers, timeout=20, trust_env=False) as api:
                until(lambda: bool(api.get("/tools").json().get("tools")), PATIENCE_S)
                yield Rig(System(folder, api), external)
