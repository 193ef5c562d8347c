"""A broker that asks who one is, by each mechanism, with and without TLS: every connection of ours is let in."""

import asyncio
from collections.abc import Generator
from types import SimpleNamespace

import pytest
import structlog
from aiokafka.abc import AbstractTokenProvider

from aetheris.cli.embedded.probes import brokers_answer
from aetheris.protocol.base.records import Draft
from aetheris.runtime.kafka import bootstrap
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.kafka.bootstrap import LoginUnusable, login_of
from aetheris.runtime.kafka.connection import Disconnected, KafkaConnection, connect
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.log.interface import LogUnreachable
from tests.testkit.asking_brokers import (
    EVENTS,
    SCRAM,
    WAYS,
    WORD,
    AskingBrokers,
    Tokens,
    all_is_served,
    asking_brokers,
)
from tests.testkit.attempts import fresh

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]


class NoTokens(AbstractTokenProvider):
    """Its service is away."""

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  it has no type there
        raise ValueError(WORD)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Generator[AskingBrokers]:
    with asking_brokers(tmp_path_factory.mktemp("asking")) as found:
        yield found


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
    asking: AskingBrokers, way: str, monkeypatch: pytest.MonkeyPatch, *, tls: bool
) -> None:
    address = asking.address(way, tls=tls)
    await all_is_served(address, asking.context(tls=tls))
    if tls:
        monkeypatch.setenv("AETHERIS_KAFKA_CA", str(asking.authority.ca))
    assert await asyncio.to_thread(brokers_answer, address)


async def test_a_login_that_ends_is_made_again_and_nothing_is_lost_twice_or_in_doubt(asking: AskingBrokers) -> None:
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
    asking: AskingBrokers, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"{asking.servers['ASKING']}?tokens={way}" if way in {"ended", "away"} else asking.address(way, "guessed")
    with pytest.raises(LogUnreachable) as refused:
        await KafkaLog(address).start()
    host, port = asking.servers["ASKING"].split(":")
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
