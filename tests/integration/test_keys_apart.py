"""A hostile probe takes home all that its process has: no key is in it, and the job that it was asked of is sealed."""

import shutil
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.valkey import Valkey, running_valkey
from aetheris.verifier.keys import load_private_key
from tests.testkit.external_server import until
from tests.testkit.services import processes
from tests.testkit.system import System
from tests.testkit.tokens import headers_of, write_tokens

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
CANARY = "a-word-of-this-test-alone"


@pytest.fixture
def system(tmp_path: Path) -> Generator[System]:
    """Its services have three data folders: gateway and verifier, which share a key; the prober; all others."""
    kept, ports = tmp_path / "kept", Ports(tmp_path)
    for folder in (kept, tmp_path / "prober"):
        folder.mkdir()
    write_tokens(kept, {"n": "default"})
    broker = broker_in(install(lambda _part, _message: None), tmp_path, Ports(tmp_path / "broker"))
    valkey = Valkey(tmp_path / "valkey")
    settings = {
        "AETHERIS_KAFKA": broker.address,
        "AETHERIS_REDIS": valkey.url,
        "AETHERIS_DATA": str(tmp_path),
        "AETHERIS_DEV": "true",
        "AETHERIS_TOOLS": "tests.testkit.prying_tools",
        "AETHERIS_VERIFIER_URL": f"http://127.0.0.1:{ports.get('verifier-http')}",
        "PRYING_LOOT": str(tmp_path / "loot"),
        "PRYING_CANARY": CANARY,
    }
    own = {service: {"AETHERIS_DATA": str(kept)} for service in ("gateway", "verifier")}
    own["prober"] = {"AETHERIS_DATA": str(tmp_path / "prober")}
    with ExitStack() as running:
        running.enter_context(running_broker(broker, tmp_path / "kafka.log"))
        running.enter_context(running_valkey(valkey, tmp_path / "valkey.log"))
        running.enter_context(processes(tmp_path, settings, own))
        url = f"http://127.0.0.1:{Ports(tmp_path).get('gateway-http')}/api"
        client = httpx.Client(base_url=url, headers=headers_of("n"), timeout=20, trust_env=False)
        with client as api:
            yield System(tmp_path, api)


def test_a_probe_that_takes_all_it_can_read_finds_no_key(system: System, tmp_path: Path) -> None:
    until(lambda: _loaded(system), PATIENCE_S)
    job = system.submit({"id": "a", "tool": "pry", "args": {}})
    system.wait_status(job, "completed", PATIENCE_S)
    taken = b"\0".join(piece.read_bytes() for piece in (tmp_path / "loot").iterdir())
    shutil.rmtree(tmp_path / "loot")
    assert taken.count(CANARY.encode()) > 1, "its settings and its memory are in it"
    assert b"prying_tools" in taken

    keys = tmp_path / "kept" / "keys"
    seal = load_private_key(keys / "seal.pem")
    seed = seal.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    (pem,) = (line for line in (keys / "seal.pem").read_bytes().splitlines() if not line.startswith(b"-"))
    secrets = {
        "the seal's": seed,
        "the seal's in hex": seed.hex().encode(),
        "the seal's file": pem,
        "the gateway's and the verifier's": (keys / "internal.key").read_bytes().strip(),
    }
    assert all(len(secret) >= 32 for secret in secrets.values())
    assert [name for name, secret in secrets.items() if secret in taken] == []
    report = system.verified(job)
    assert report["seal"]["ok"], "who has the key has sealed it"


def _loaded(system: System) -> bool:
    try:
        answer = system.api.get("/tools")
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and "pry" in answer.text
