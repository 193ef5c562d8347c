"""Another user of the machine, beside `aetheris up`: he reads nothing, writes nothing, and is not heard."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.plan import State
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.runtime.kafka.bootstrap import LoginUnusable, client_options, login_of, servers_of, with_login
from aetheris.runtime.kafka.connection import Disconnected, connect
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.log.interface import LogUnreachable

pytestmark = [pytest.mark.nightly, pytest.mark.real]

NOBODY = 65534
LOOK = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for folder in sys.argv[1:]:
    try:
        print(os.listdir(folder))
    except PermissionError:
        pass
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A folder that stood open before, and what runs there: the servers alone."""
    folder = tmp_path_factory.mktemp("strangers") / "data"
    folder.mkdir(mode=0o755)
    lifecycle.up(folder, services=(), progress=lambda _part, _state: None)
    yield folder
    lifecycle.down(folder)


@pytest.fixture(scope="module")
def state(data: Path) -> State:
    found = State.load(data)
    assert found is not None
    return found


def test_the_folder_and_what_is_secret_in_it_are_the_owners(data: Path) -> None:
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    for name in ("kafka/login", "kafka/server.properties", "plan.json", "state.json", "keys/internal.key"):
        assert stat.S_IMODE((data / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE((data / "valkey" / "valkey.sock").stat().st_mode) == 0o700
    login = login_of(with_login("x", data / "kafka" / "login"))
    assert login is not None
    assert login.password not in (data / "plan.json").read_text() + (data / "state.json").read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_another_user_sees_nothing_of_it(data: Path) -> None:
    for above in data.parents:
        above.chmod(above.stat().st_mode | 0o055)
    argv = [sys.executable, "-c", LOOK, str(data), str(data / "kafka"), str(data / "valkey"), str(data / "keys")]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == ""


async def test_without_the_word_nobody_reads_or_writes(data: Path, state: State, tmp_path: Path) -> None:
    assert kafka_answers(state.kafka)
    wrong = tmp_path / "wrong"
    wrong.write_text("aetheris:" + "0" * 64)
    for bootstrap in (servers_of(state.kafka), with_login(servers_of(state.kafka), wrong)):
        assert not kafka_answers(bootstrap)
        with pytest.raises(LogUnreachable):
            await KafkaLog(bootstrap).start()
        admin = AIOKafkaAdminClient(**client_options(bootstrap), request_timeout_ms=2000)
        with pytest.raises(KafkaError):
            await admin.start()
        await admin.close()
        producer = AIOKafkaProducer(**client_options(bootstrap), request_timeout_ms=2000)
        with pytest.raises(KafkaError):
            await producer.start()
        await producer.stop()
    for port in (Ports(data).get("kafka"), Ports(data).get("kafka-controller")):
        assert not kafka_answers(f"127.0.0.1:{port}")
        with pytest.raises(Disconnected):
            await connect(("127.0.0.1", port), None, login_of(with_login("x", wrong)))


async def test_with_the_word_our_own_connection_and_clients_are_heard(state: State) -> None:
    log = KafkaLog(state.kafka)
    await log.start()
    await log.stop()
    async with AIOKafkaProducer(**client_options(state.kafka)) as producer:
        assert await asyncio.wait_for(producer.client.fetch_all_metadata(), 20)


@pytest.mark.parametrize("content", [None, "", "aetheris", "aetheris:", ":word"])
def test_a_login_that_is_none_is_refused_without_its_content(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "a folder, with ?" / "login"
    path.parent.mkdir()
    if content is not None:
        path.write_text(content)
    with pytest.raises(LoginUnusable) as refused:
        login_of(with_login("127.0.0.1:1", path))
    assert str(path) in str(refused.value)
    assert "word" not in str(refused.value).replace("password", "")
