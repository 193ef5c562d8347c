"""The real parts that tests run on: one Kafka broker and one Valkey for a whole session.

Topics and keys are shared by all tests of the session: give yours names of their own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.valkey import Valkey, running_valkey


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a real broker that holds no topic yet and creates none by itself."""
    data = tmp_path_factory.mktemp("kafka")
    broker = broker_in(install(_quiet), data, Ports(data))
    with running_broker(broker, data / "kafka.log") as address:
        yield address


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Redis url (unix://…) of a real, empty Valkey."""
    data: Path = tmp_path_factory.mktemp("valkey")
    with running_valkey(Valkey(data), data / "valkey.log") as url:
        yield url


def _quiet(part: str, message: str) -> None:
    """Nobody watches a test session start."""
