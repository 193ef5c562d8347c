"""What the commands' tests share: a gateway to ask."""

import threading
from collections.abc import Generator

import pytest

from tests.testkit.scripted_gateway import ScriptedGateway


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Generator[ScriptedGateway]:
    server = ScriptedGateway()
    monkeypatch.setenv("AETHERIS_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AETHERIS_TOKEN", "token-of-a-test")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
