"""The log of seals before a witness that nobody here wrote, PyPI's aics-witness: it cosigns, counts, refuses a fork."""

import os
import shutil
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.cli.embedded.ports import free_port
from aetheris.proofs.claims import log_entry
from aetheris.proofs.notes import BadNote, parse_consistency, verifier_key
from aetheris.proofs.witnesses import open_witnessed, open_witnessed_inclusion, read_log_policy
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.testkit.memory import MemoryLog
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.seallog import SealLog
from tests.testkit.evidence import KEY, ORIGIN
from tests.testkit.external_server import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

WITNESS = "aics-witness==0.1.0"
LOG_KEY = Ed25519PrivateKey.from_private_bytes(b"\x03" * 32)
LOG = verifier_key(ORIGIN, LOG_KEY.public_key())
LINES = [b"seal %d" % at for at in range(20)]
WITHIN_S = 60.0


def python312() -> str | None:
    """An interpreter that the witness runs on: it needs 3.12."""
    named = [name for minor in (12, 13, 14) if (name := shutil.which(f"python3.{minor}"))]
    by_pyenv = sorted(glob(str(Path.home() / ".pyenv/versions/3.1[2-9]*/bin/python")))
    asked = ("-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))")
    return next(
        (one for one in (*named, *by_pyenv) if subprocess.run([one, *asked], check=False).returncode == 0), None
    )


@dataclass
class RunningWitness:
    """Where it takes checkpoints, and its verifier key."""

    url: str
    vkey: str

    def asked(self, body: str) -> httpx.Response:
        """Its answer to add-checkpoint."""
        return httpx.post(f"{self.url}/add-checkpoint", content=body.encode(), timeout=WITHIN_S, trust_env=False)


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningWitness]:
    python = python312()
    if python is None:
        pytest.skip("aics-witness needs Python 3.12, which is not on this machine")
    folder = tmp_path_factory.mktemp("witness")
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    subprocess.run([str(folder / "venv/bin/pip"), "install", "-q", WITNESS], check=True, timeout=300)
    command, address = str(folder / "venv/bin/aics-witness"), f"127.0.0.1:{free_port()}"
    env = {**os.environ, "AICS_WITNESS_CONFIG": str(folder / "witness.json")}

    def said(*argv: str) -> str:
        return subprocess.run([command, *argv], env=env, capture_output=True, text=True, check=True).stdout

    made = said("init", "--name", "witness.example/w", "--listen", address)
    said("add-log", "--origin", ORIGIN, "--vkey", LOG)
    vkey = next(word for word in made.split() if word.startswith("witness.example/w+"))
    process = subprocess.Popen([command, "serve"], env=env, stderr=subprocess.DEVNULL)
    try:
        running = RunningWitness(f"http://{address}", vkey)
        until(lambda: answers(running.url), WITHIN_S)
        yield running
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


async def seal_log(folder: Path, *lines: bytes) -> SealLog:
    """A verifier's log of seals with these lines."""
    log = MemoryLog(topics={Topic.JOBS_SEALS: 1})
    appender = log.appender()
    await appender.start()
    await appender.append([(Draft(Topic.JOBS_SEALS, b"job", line),) for line in lines])
    return SealLog(log, SealKeys(KEY, LOG_KEY), ORIGIN, folder / "checkpoint", WITHIN_S)


async def test_it_cosigns_our_log_unchanged_counts_and_refuses_a_fork(witness: RunningWitness, tmp_path: Path) -> None:
    policy = read_log_policy(f"log {LOG}\nwitness w {witness.vkey} {witness.url}\nquorum w\n".encode())
    seen = 0
    for size in (7, 8, 20):
        ours = await seal_log(tmp_path / str(size), *LINES[:size])
        body = await ours.consistency(seen)
        answer = witness.asked(body)
        assert (answer.status_code, answer.text.startswith("— witness.example/w ")) == (200, True), answer.text
        note = parse_consistency(body).checkpoint
        found = open_witnessed(note + answer.text, policy)
        assert (found.checkpoint.size, found.by, found.at is not None) == (size, ("w",), True)
        proof = await ours.inclusion(LINES[3])
        assert open_witnessed_inclusion(proof + answer.text, log_entry(LINES[3]), policy).by == ("w",)
        with pytest.raises(BadNote, match="not enough"):
            open_witnessed_inclusion(proof, log_entry(LINES[3]), policy)
        seen = size

    behind = witness.asked(await (await seal_log(tmp_path / "again", *LINES)).consistency(3))
    assert (behind.status_code, behind.text) == (409, "20\n"), "it says which size it has seen"
    assert behind.headers["content-type"] == "text/x.tlog.size"
    forked = await seal_log(tmp_path / "forked", *LINES[:5], b"another", *LINES[6:], b"more")
    refused = witness.asked(await forked.consistency(20))
    assert (refused.status_code, "—" in refused.text) == (422, False)
