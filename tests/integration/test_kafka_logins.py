"""A broker that asks who one is, by each mechanism, with and without TLS: every connection of ours is let in."""

import asyncio
import base64
import json
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog
from aiokafka.abc import AbstractTokenProvider

from aetheris.cli.embedded.kafka import SMALL, Broker, Tuning, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import brokers_answer
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka import bootstrap
from aetheris.runtime.kafka.admin import check_broker, ensure_topics
from aetheris.runtime.kafka.bootstrap import LoginUnusable, login_of, with_login
from aetheris.runtime.kafka.connection import Disconnected, KafkaConnection, connect
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.process.settings import RuntimeSettings
from tests.testkit.attempts import fresh
from tests.testkit.authority import Authority

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

USER, WORD = "ann", "a-word=of=hers"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = ("PLAIN", *SCRAM, "OAUTHBEARER")
_SECURITY = "org.apache.kafka.common.security"
JAAS = {
    "plain": f'{_SECURITY}.plain.PlainLoginModule required user_{USER}="{WORD}";',
    "scram-sha-256": f"{_SECURITY}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_SECURITY}.scram.ScramLoginModule required;",
    "oauthbearer": f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
}
EVENTS = (str(Topic.JOBS_EVENTS), 0)
LOGGED_IN_MS = 2_000
"""In the clear a token is good for so long: the broker drops a connection over which anything is asked behind it."""


class Tokens(AbstractTokenProvider):
    """Tokens without a signature, which Kafka's own validator for trials takes."""

    def __init__(self, lasts_s: float = 3600) -> None:
        self._lasts_s = lasts_s

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  it has no type there
        now_s = time.time() - 7200 if self._lasts_s < 0 else time.time() - 1
        claims = {"sub": USER, "iat": now_s, "exp": time.time() + self._lasts_s}
        parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in ({"alg": "none"}, claims)]
        return b".".join((*parts, b"")).decode()


class NoTokens(AbstractTokenProvider):
    """Its service is away."""

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  it has no type there
        raise ValueError(WORD)


@dataclass(frozen=True)
class AskingBroker:
    """A broker that asks, in the clear and over TLS; at `plain` nobody is asked."""

    plain: str
    clear: str
    tls: str
    authority: Authority
    folder: Path

    def address(self, way: str, word: str = WORD, *, tls: bool = False) -> str:
        servers = self.tls if tls else self.clear
        if way == "OAUTHBEARER":
            return f"{servers}?tokens=good"
        login = self.folder / fresh("login")
        login.write_text(f"{USER}:{word}\n")
        return with_login(servers, login) + (f"&mechanism={way}" if way != "PLAIN" else "")


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Generator[AskingBroker]:
    folder = tmp_path_factory.mktemp("asking")
    ports, authority = Ports(folder), Authority(folder / "authority")
    own, store = authority.sign("broker"), folder / "broker.pem"
    store.write_bytes(own.key.read_bytes() + own.certificate.read_bytes())
    plain, clear, tls = (f"127.0.0.1:{ports.get(name)}" for name in ("plain", "clear", "tls"))
    listeners = f"PLAINTEXT://{plain},CLEAR://{clear},ENCRYPTED://{tls}"
    properties = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{ports.get('controller')}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CLEAR:SASL_PLAINTEXT,ENCRYPTED:SASL_SSL,CONTROLLER:PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": ",".join(WAYS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "listener.name.clear.oauthbearer.connections.max.reauth.ms": str(LOGGED_IN_MS),
    } | {
        f"listener.name.{listener}.{way}.sasl.jaas.config": jaas
        for listener in ("clear", "encrypted")
        for way, jaas in JAAS.items()
    }
    installation = install(lambda _part, _message: None)
    broker = Broker(
        installation, folder / "kafka", ports.get("plain"), ports.get("controller"), Tuning(SMALL, properties)
    )
    with running_broker(broker, folder / "kafka.log"):
        java = broker.argv()[: broker.argv().index("kafka.Kafka")]
        argv = ["--bootstrap-server", plain, "--alter", "--entity-type", "users", "--entity-name", USER]
        for way in SCRAM:
            config = ["--add-config", f"{way}=[iterations=4096,password={WORD}]"]
            command = [*java, "kafka.admin.ConfigCommand", *argv, *config]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 0, done.stdout + done.stderr
        yield AskingBroker(plain, clear, tls, authority, folder)


@pytest.fixture(autouse=True)
def providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a package brought them."""
    made = {"good": Tokens, "ended": lambda: Tokens(-3600), "away": NoTokens, "none": object, "broken": lambda: 1 / 0}

    def found(group: str, name: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(load=lambda: made[name])] if group == bootstrap.TOKENS and name in made else []

    monkeypatch.setattr(bootstrap, "entry_points", found)
    bootstrap._provider.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("way", WAYS)
async def test_each_kind_of_connection_is_let_in(
    asking: AskingBroker, way: str, monkeypatch: pytest.MonkeyPatch, *, tls: bool
) -> None:
    context = tls_context(RuntimeSettings.model_validate({"kafka_ca": asking.authority.ca})) if tls else None
    address = asking.address(way, tls=tls)
    await ensure_topics(address, 1, tls=context)
    await check_broker(address, 1, dev=True, tls=context)
    log = KafkaLog(address, tls=context)
    await log.start()
    appender, reader = log.appender(), log.reader()
    member = log.membership(fresh("group"), "one", (EVENTS[0],))
    try:
        end = (await log.end_offsets([EVENTS]))[EVENTS]
        await appender.start()
        await appender.append([(Draft(EVENTS[0], b"k", way.encode(), partition=0),)])
        await reader.start()
        reader.assign({EVENTS: end})
        found = await reader.poll(10.0)
        assert [one.value for one in found[EVENTS]] == [way.encode()]
        assert log.pulse().unready() is None
        owned = asyncio.Event()

        async def assigned(_numbers: frozenset[int]) -> None:
            owned.set()

        await member.start(assigned, assigned)
        await asyncio.wait_for(owned.wait(), 30)
        await member.commit({EVENTS: end})
        assert await member.committed([EVENTS]) == {EVENTS: end}
    finally:
        await member.stop(leave=True)
        await reader.stop()
        await appender.stop()
        await log.stop()
    if tls:
        monkeypatch.setenv("AETHERIS_KAFKA_CA", str(asking.authority.ca))
    assert await asyncio.to_thread(brokers_answer, address)


async def test_a_login_that_ends_is_made_again_and_nothing_is_lost_twice_or_in_doubt(asking: AskingBroker) -> None:
    address = asking.address("OAUTHBEARER")
    await ensure_topics(address, 1)
    log = KafkaLog(address)
    await log.start()
    appender, reader = log.appender(), log.reader()
    member = log.membership(fresh("group"), "one", (EVENTS[0],))
    assignments: list[frozenset[int]] = []
    owned = asyncio.Event()

    async def assigned(numbers: frozenset[int]) -> None:
        assignments.append(numbers)
        owned.set()

    try:
        end = (await log.end_offsets([EVENTS]))[EVENTS]
        await appender.start()
        await reader.start()
        reader.assign({EVENTS: end})
        await member.start(assigned, assigned)
        await asyncio.wait_for(owned.wait(), 30)
        sent, read, used = list[bytes](), list[bytes](), set[KafkaConnection]()
        with structlog.testing.capture_logs() as said:
            while len(used) < 5:
                sent.append(f"{len(sent)}".encode())
                await appender.append([(Draft(EVENTS[0], b"k", sent[-1], partition=0),)])
                if appender._producer is not None:
                    used.update(appender._producer.connections.values())
                while len(read) < len(sent):
                    read += [one.value for one in (await reader.poll(10.0)).get(EVENTS, [])]
                await asyncio.sleep(0.01)
            await member.commit({EVENTS: end + len(sent)})
        assert read == sent
        assert [one["event"] for one in said if one["log_level"] != "info"] == []
        assert assignments == [frozenset({0})]
    finally:
        await member.stop(leave=True)
        await reader.stop()
        await appender.stop()
        await log.stop()


@pytest.mark.parametrize("way", ["PLAIN", *SCRAM, "ended", "away"])
async def test_who_is_not_known_is_not_let_in_and_no_word_is_told(
    asking: AskingBroker, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"{asking.clear}?tokens={way}" if way in {"ended", "away"} else asking.address(way, "guessed")
    with pytest.raises(LogUnreachable) as refused:
        await KafkaLog(address).start()
    host, port = asking.clear.split(":")
    with pytest.raises(Disconnected) as unheard:
        await connect((host, int(port)), None, login_of(address))
    assert not await asyncio.to_thread(brokers_answer, address)
    for said in (str(refused.value), str(unheard.value), caplog.text):
        assert "guessed" not in said
        assert WORD not in said


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("login=/x&mechanism=GSSAPI", "GSSAPI is no mechanism"),
        ("login=/x&word=secret", "not login, word"),
        ("tokens=good&login=/x", "not login, tokens"),
        ("mechanism=PLAIN", "not mechanism"),
        ("tokens=missing", "no package"),
        ("tokens=none", "AbstractTokenProvider"),
        ("tokens=broken", "ZeroDivisionError"),
    ],
)
def test_what_can_not_be_meant_is_refused_by_name(query: str, why: str) -> None:
    with pytest.raises(LoginUnusable, match=why) as refused:
        login_of(f"127.0.0.1:1?{query}")
    assert "secret" not in str(refused.value)
