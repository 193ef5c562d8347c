"""The system that most tests of the whole system stand on; a module that needs another has a `rig` of its own."""

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.testkit.browser import running_chromium
from tests.testkit.consoles import RunningConsole, StandInGateway, console_at, stand_in_gateway
from tests.testkit.external_server import ExternalServer
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import System


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    """A module's own: one process of each service, on the tools of `external_tools`."""
    with running_rig(tmp_path_factory.mktemp("rig")) as running:
        yield running


@pytest.fixture(scope="module")
def system(rig: Rig) -> System:
    """That of the rig."""
    return rig.system


@pytest.fixture(scope="module")
def external(rig: Rig) -> ExternalServer:
    """That of the rig."""
    return rig.external


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """A module's own."""
    with running_chromium() as running:
        yield running


@pytest.fixture
def gateway() -> Generator[StandInGateway]:
    """A stand-in, before which a console can be looked at without a system."""
    with stand_in_gateway() as running:
        yield running
        running.away = True  # ends streams


@pytest.fixture
def console(gateway: StandInGateway, tmp_path: Path) -> Generator[RunningConsole]:
    """Before that one; its pages have run no script that failed, and none that a policy kept from running."""
    running = console_at(tmp_path, gateway.url)
    with running.up():
        yield running
    assert running.trouble == []
