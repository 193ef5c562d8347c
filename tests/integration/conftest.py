"""The system that most tests of the whole system stand on; a module that needs another has a `rig` of its own."""

from collections.abc import Generator

import pytest

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
