"""Brokers that ask who one is, by each mechanism, in the clear and over TLS; and all that our connections do there."""

import asyncio
import base64
import json
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext

from aiokafka.abc import AbstractTokenProvider

from aetheris.cli.embedded.kafka import SMALL, Broker, Tuning, cluster_in, install
from aetheris.cli.embedded.ports import Ports
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.admin import check_broker, delete_below, ensure_topics, marks
from aetheris.runtime.kafka.bootstrap import with_login
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.process.settings import RuntimeSettings
from tests.testkit.attempts import cleared_by, fresh
from tests.testkit.authority import Authority
from tests.testkit.cluster import Cluster
from tests.testkit.scram import add_scram_user

USER, WORD = "ann", "a-word=of=hers"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = ("PLAIN", *SCRAM, "OAUTHBEARER")
NOBODY_ASKS = "none"
_SECURITY = "org.apache.kafka.common.security"
_JAAS = {
    "plain": f'{_SECURITY}.plain.PlainLoginModule required user_{USER}="{WORD}";',
    "scram-sha-256": f"{_SECURITY}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_SECURITY}.scram.ScramLoginModule required;",
    "oauthbearer": f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
}
EVENTS = (str(Topic.JOBS_EVENTS), 0)
LOGGED_IN_MS = 2_000
"""In the clear a token is good for so long: the broker drops a connection over which anything is asked behind it."""

Made = Callable[[Path, Ports, int, Callable[[int], Tuning]], list[Broker]]
"""Of a folder, its ports, how many, and each one's tuning."""


class Tokens(AbstractTokenProvider):
    """Tokens without a signature, which Kafka's own validator for trials takes."""

    def __init__(self, lasts_s: float = 3600) -> None:
        self._lasts_s = lasts_s

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  it has no type there
        now_s = time.time() - 7200 if self._lasts_s < 0 else time.time() - 1
        claims = {"sub": USER, "iat": now_s, "exp": time.time() + self._lasts_s}
        parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in ({"alg": "none"}, claims)]
        return b".".join((*parts, b"")).decode()


@dataclass(frozen=True)
class AskingBrokers:
    """Brokers that ask, in the clear and over TLS; at `plain` and `encrypted` nobody is asked."""

    servers: dict[str, str]
    """Listener → host:port of each."""
    authority: Authority
    folder: Path

    def address(self, way: str, word: str = WORD, *, tls: bool = False) -> str:
        """As AETHERIS_KAFKA says it."""
        if way == NOBODY_ASKS:
            return self.servers["ENCRYPTED" if tls else "PLAINTEXT"]
        servers = self.servers["ASKING_TLS" if tls else "ASKING"]
        if way == "OAUTHBEARER":
            return f"{servers}?tokens=good"
        login = self.folder / fresh("login")
        login.write_text(f"{USER}:{word}\n")
        return with_login(servers, login) + (f"&mechanism={way}" if way != "PLAIN" else "")

    def context(self, *, tls: bool) -> SSLContext | None:
        """Of who trusts their CA."""
        return tls_context(RuntimeSettings.model_validate({"kafka_ca": self.authority.ca})) if tls else None


def _usual(folder: Path, ports: Ports, count: int, tuning: Callable[[int], Tuning]) -> list[Broker]:
    return cluster_in(install(lambda _part, _message: None), folder, ports, count, tuning)


@contextmanager
def asking_brokers(folder: Path, count: int = 1, made: Made = _usual) -> Generator[AskingBrokers]:
    """Up, and down again; `made` says of which release they are."""
    ports, authority = Ports(folder), Authority(folder / "authority")
    own, store = authority.sign("broker"), folder / "broker.pem"
    store.write_bytes(own.key.read_bytes() + own.certificate.read_bytes())
    protocols = {"PLAINTEXT": "PLAINTEXT", "ENCRYPTED": "SSL", "ASKING": "SASL_PLAINTEXT", "ASKING_TLS": "SASL_SSL"}

    def server(listener: str, node: int) -> str:
        return f"127.0.0.1:{ports.get(f'kafka-{node}' if listener == 'PLAINTEXT' else f'{listener}-{node}')}"

    def tuning(node: int) -> Tuning:
        listeners = ",".join(f"{name}://{server(name, node)}" for name in protocols)
        return Tuning(
            SMALL,
            {
                "listeners": f"{listeners},CONTROLLER://127.0.0.1:{ports.get(f'kafka-{node}-controller')}",
                "advertised.listeners": listeners,
                "listener.security.protocol.map": ",".join(
                    f"{name}:{protocol}" for name, protocol in (protocols | {"CONTROLLER": "PLAINTEXT"}).items()
                ),
                "sasl.enabled.mechanisms": ",".join(WAYS),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(store),
                "listener.name.asking.oauthbearer.connections.max.reauth.ms": str(LOGGED_IN_MS),
            }
            | {
                f"listener.name.{listener}.{way}.sasl.jaas.config": jaas
                for listener in ("asking", "asking_tls")
                for way, jaas in _JAAS.items()
            },
        )

    cluster = Cluster(folder, made(folder, ports, count, tuning))
    try:
        cluster.start()
        with cleared_by(cluster.wake_all):
            asyncio.run(add_scram_user(server("PLAINTEXT", 1), USER, WORD))
            nodes = range(1, count + 1)
            servers = {name: ",".join(server(name, node) for node in nodes) for name in protocols}
            yield AskingBrokers(servers, authority, folder)
    finally:
        cluster.end()


async def all_is_served(address: str, context: SSLContext | None, *, replication: int = 1) -> None:
    """Each kind of connection that services have, and what they ask over it."""
    await ensure_topics(address, 1, replication, tls=context)
    await check_broker(address, 1, dev=replication == 1, tls=context)
    log = KafkaLog(address, tls=context)
    await log.start()
    appender, reader, pulse = log.appender(), log.reader(), log.pulse()
    group = fresh("group")
    member = log.membership(group, "one", (EVENTS[0],))
    beating = asyncio.create_task(pulse.run())
    try:
        value = fresh("value").encode()
        end = (await log.end_offsets([EVENTS]))[EVENTS]
        await appender.start()
        await appender.append([(Draft(EVENTS[0], b"k", value, partition=0),)])
        await reader.start()
        reader.assign({EVENTS: end})
        found = await reader.poll(10.0)
        assert [one.value for one in found[EVENTS]] == [value]
        owned = asyncio.Event()

        async def assigned(_numbers: frozenset[int]) -> None:
            owned.set()

        await member.start(assigned, assigned)
        await asyncio.wait_for(owned.wait(), 30)
        await member.commit({EVENTS: end})
        assert await member.committed([EVENTS]) == {EVENTS: end}
        assert list(await log.members(group)) != []
        assert list(await log.attendants(group)) == ["one"]
        assert (await marks(address, EVENTS[0], 1, tls=context))[group] == {0: end}
        await delete_below(address, {EVENTS: end}, tls=context)
        assert (await log.beginning_offsets([EVENTS]))[EVENTS] == end
        assert pulse.unready() is None
    finally:
        beating.cancel()
        await member.stop(leave=True)
        await reader.stop()
        await appender.stop()
        await log.stop()
