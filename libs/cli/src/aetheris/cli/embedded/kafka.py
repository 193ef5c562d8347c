"""The real Kafka broker, one KRaft node or several on 127.0.0.1, from jars that are locked by sha256.

`install` fetches the jars and makes the class data archive (once per user); `Broker` says how one broker
on one folder is configured and started, `cluster_in` how several of them make a cluster. Who starts it keeps it
running: the supervisor, or `running_broker`.
"""

import base64
import hashlib
import secrets
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from aetheris.cli.embedded.errors import EmbeddedError, NotReadyError
from aetheris.cli.embedded.jars import KAFKA_VERSION, Progress, cache_folder, class_path, fetch_jars
from aetheris.cli.embedded.java import Java, find_java
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.cli.embedded.processes import end, exclusive, spawn
from aetheris.runtime.kafka.bootstrap import login_of, with_login
from aetheris.runtime.keys.key_file import write_once

SMALL = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # quick to start, 170 MB
FAST = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")  # C2 has compiled its code within a minute of load

IN_SYNC = 2
"""Replicas that acknowledge a record, where there are as many."""

READY_WITHIN_S = 60.0
STOP_WITHIN_S = 30.0
_POLL_S = 0.02

# Only what differs from Kafka's defaults; {…} is filled in per folder.
_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:{protocol},CONTROLLER:{protocol}
log.dirs={log_folder}

# Of one node: nothing to replicate to, nobody to wait for.
default.replication.factor={nodes}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={nodes}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={nodes}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor={nodes}
share.coordinator.state.topic.min.isr={in_sync}
share.coordinator.state.topic.num.partitions=1
metadata.max.idle.interval.ms=10000
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
# Threads that wait for work wake up several times a second each: a small machine needs few.
num.network.threads=2
num.io.threads=3
background.threads=2
group.coordinator.threads=1
share.coordinator.threads=1

# A mark in a consumer group must outlive any pause of the machine: a lost one is a gap.
offsets.retention.minutes=2147483647
unclean.leader.election.enable=false
auto.create.topics.enable=false

# The cleaner's map of keys comes out of the heap: 16 MiB hold 700,000 keys a pass.
log.cleaner.dedupe.buffer.size=16777216
"""

_ALONE = """\
controller.quorum.election.timeout.ms=100
# A killed broker may register again only once its former session has ended (9 s by default).
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
"""

_AMONG_OTHERS = """\
# Longer than a busy machine keeps a broker from its heartbeat: one that is fenced without need loses what it leads.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
"""

_GUARDED = """\
# Whoever else is on the machine reaches these ports: nobody is served who doesn't know the password.
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.plaintext.plain.sasl.jaas.config={jaas}
listener.name.controller.plain.sasl.jaas.config={jaas}
"""
_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="{user}" password="{password}" user_{user}="{password}";'
)
_USER = "aetheris"

_LOGGING = """\
status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %m (%c)%n
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
logger.lifecycle.name=kafka.server.KafkaRaftServer
logger.lifecycle.level=info
"""


@dataclass(frozen=True)
class Installation:
    """What every broker of this user shares: Java, the jars' cache, the class data archive."""

    java: Java
    cache: Path

    @property
    def archive(self) -> Path:
        """The class data archive; it only fits the very Java that wrote it."""
        build = hashlib.sha256(f"{self.java.path}\n{self.java.version}\nguarded".encode()).hexdigest()[:12]
        return self.cache / f"classes-{build}.jsa"


@dataclass(frozen=True)
class Tuning:
    """How a broker differs from the usual one: the JVM's options, and properties of its own."""

    jvm: tuple[str, ...] = SMALL
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


USUAL = Tuning()


@dataclass(frozen=True)
class Broker:
    """One broker: its folder (configuration and log) and its two ports on 127.0.0.1.

    `voters` are the controllers of its cluster, node → port, itself among them; none: it is alone.
    `login` is a file with user:password, which everybody is asked for; none: nobody is.
    """

    installation: Installation
    folder: Path
    port: int
    controller_port: int
    tuning: Tuning = USUAL
    node: int = 1
    voters: Mapping[int, int] = field(default_factory=dict[int, int])
    cluster_id: str = ""
    login: Path | None = None

    @property
    def server(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """As services are told where it is."""
        return self.server if self.login is None else with_login(self.server, self.login)

    @property
    def log_folder(self) -> Path:
        """Where the broker keeps its partitions."""
        return self.folder / "log"

    def prepare(self) -> None:
        """Write the configuration, and format the log's folder if it is new.

        Raises: EmbeddedError, if formatting fails.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties.unlink(missing_ok=True)
        self._properties.touch(mode=0o600)
        self._properties.write_text(self._configuration())
        self._logging.write_text(_LOGGING)
        if not (self.log_folder / "meta.properties").exists():
            self._format()

    def argv(self) -> tuple[str, ...]:
        """The command that runs the broker in the foreground; SIGTERM shuts it down cleanly."""
        return (*self._java(), "kafka.Kafka", str(self._properties))

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _logging(self) -> Path:
        return self.folder / "log4j2.properties"

    def _configuration(self) -> str:
        voters = self.voters or {self.node: self.controller_port}
        usual = _PROPERTIES.format(
            node=self.node,
            voters=",".join(f"{node}@127.0.0.1:{port}" for node, port in voters.items()),
            nodes=len(voters),
            in_sync=min(len(voters), IN_SYNC),
            port=self.port,
            controller_port=self.controller_port,
            log_folder=self.log_folder,
            protocol="PLAINTEXT" if self.login is None else "SASL_PLAINTEXT",
        )
        usual += self._guard()
        usual += _ALONE if len(voters) == 1 else _AMONG_OTHERS
        return usual + "".join(f"{name}={value}\n" for name, value in self.tuning.properties.items())

    def _guard(self) -> str:
        known = login_of(self.address)
        if known is None:
            return ""
        return _GUARDED.format(jaas=_JAAS.format(user=known.user, password=known.password))

    def _java(self) -> tuple[str, ...]:
        archive = self.installation.archive
        return (
            str(self.installation.java.path),
            *self.tuning.jvm,
            *((f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()),
            f"-Dlog4j2.configurationFile={self._logging}",
            "-cp",
            class_path(self.installation.cache),
        )

    def _format(self) -> None:
        tool = (*self._java(), "kafka.tools.StorageTool", "format")
        argv = (*tool, "--cluster-id", self.cluster_id or _fresh_cluster_id(), "--config", str(self._properties))
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=READY_WITHIN_S)
        if done.returncode:
            report = self.folder / "format.txt"
            report.write_text(done.stdout + done.stderr)
            raise EmbeddedError(f"Kafka could not format {self.log_folder}", f"Read {report}.")


def install(progress: Progress) -> Installation:
    """Have Java, the locked jars and the class data archive ready.

    Raises: JavaMissingError, JarsMissingError, NotReadyError.
    """
    installation = Installation(find_java(), cache_folder())
    fetch_jars(installation.cache, progress)
    with exclusive(installation.cache / "archive.lock"):
        if not installation.archive.exists():
            progress("kafka", f"making the class data archive of Kafka {KAFKA_VERSION}, once")
            _make_archive(installation)
    return installation


def login_in(data: Path) -> Path:
    """The login of the brokers of a data folder: a word that nobody else on the machine can read."""
    path = data / "kafka" / "login"
    if not path.exists():
        write_once(path, f"{_USER}:{secrets.token_hex(32)}\n".encode())
    return path


def broker_in(
    installation: Installation, data: Path, ports: Ports, tuning: Tuning = USUAL, login: Path | None = None
) -> Broker:
    """The broker of a data folder, on the ports that the folder keeps."""
    port, controller_port = ports.get("kafka"), ports.get("kafka-controller")
    return Broker(installation, data / "kafka", port, controller_port, tuning, login=login)


def cluster_in(  # noqa: PLR0917  as `broker_in`, of several
    installation: Installation,
    data: Path,
    ports: Ports,
    count: int,
    tuning: Callable[[int], Tuning] = lambda _: USUAL,
    login: Path | None = None,
) -> list[Broker]:
    """The brokers of a data folder that make one cluster, each a controller too; `tuning` by node, from 1 on."""
    voters = {node: ports.get(f"kafka-{node}-controller") for node in range(1, count + 1)}
    named = data / "kafka" / "cluster-id"
    if not named.exists():
        named.parent.mkdir(parents=True, exist_ok=True)
        named.write_text(_fresh_cluster_id())
    return [
        Broker(
            installation,
            data / "kafka" / str(node),
            ports.get(f"kafka-{node}"),
            port,
            tuning(node),
            node,
            voters,
            named.read_text(),
            login,
        )
        for node, port in voters.items()
    ]


@contextmanager
def running_broker(broker: Broker, log: Path) -> Generator[str]:
    """Run a broker for as long as the block lasts; gives its address once it answers.

    Raises: NotReadyError.
    """
    broker.prepare()
    child = spawn(broker.argv(), log=log)
    try:
        wait_ready("kafka", lambda: kafka_answers(broker.address), lambda: child.poll() is None, log)
        yield broker.address
    finally:
        end(child, STOP_WITHIN_S)


def wait_ready(
    part: str,
    ready: Callable[[], bool],
    alive: Callable[[], bool],
    log: Path,
    within_s: float = READY_WITHIN_S,
) -> None:
    """Ask until the answer is yes.

    Raises: NotReadyError, as soon as the process has ended or the time is over.
    """
    deadline = time.monotonic() + within_s
    while not ready():
        if not alive() or time.monotonic() > deadline:
            how = f"was not ready after {within_s:.0f} s" if alive() else "exited while starting"
            raise NotReadyError(f"{part} {how}", f"Read {log}.")
        time.sleep(_POLL_S)


def _make_archive(installation: Installation) -> None:
    """Run a throw-away broker that writes down at its exit which classes it loaded."""
    with tempfile.TemporaryDirectory(dir=installation.cache, prefix="archive-") as scratch:
        folder = Path(scratch)
        staged = folder / "classes.jsa"
        broker = broker_in(installation, folder, Ports(folder), login=login_in(folder))
        recording = Tuning((*SMALL, f"-XX:ArchiveClassesAtExit={staged}"))
        with running_broker(replace(broker, tuning=recording), folder / "kafka.log"):
            pass
        if staged.exists():  # without it the broker only starts more slowly
            staged.replace(installation.archive)


def _fresh_cluster_id() -> str:
    """22 characters of URL-safe base64; StorageTool takes a leading dash for an option."""
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
