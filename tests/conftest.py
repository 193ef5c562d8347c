"""The real parts that tests run on: one Kafka broker and one Valkey for a whole session.

Topics and keys are shared by all tests of the session, and by a test's second chance: give yours names of their own
(tests.testkit.attempts.fresh).
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.valkey import Valkey, running_valkey
from tests.testkit import attempts

settings.register_profile("any machine", deadline=None)  # a busy one is slow, and that proves nothing
settings.load_profile("any machine")

_FAILED = pytest.StashKey[bool]()


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note an attempt that failed."""
    report = yield
    if report.failed:
        item.session.stash[_FAILED] = True
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whoever comes after a failed attempt, its second chance or another test, starts clean."""
    if item.session.stash.get(_FAILED, False):
        item.session.stash[_FAILED] = False
        attempts.clear_away()


def _quiet(part: str, message: str) -> None:
    """Nobody watches a test session start."""
