"""`aetheris witness serve` as a process: what it has answered it knows when it is killed and starts again."""

import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from aetheris.proofs.merkle import Tree, leaf_hash
from aetheris.proofs.notes import ConsistencyProof, sign_checkpoint, verifier_key
from aetheris.proofs.witnesses import open_witnessed, read_log_policy
from tests.testkit.evidence import KEY, ORIGIN

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(120)]

NAME = "witness.example/w"
LOG = verifier_key(ORIGIN, KEY.public_key())
COMMAND = (sys.executable, "-m", "aetheris.cli", "witness")
WITHIN_S = 30.0
SIZES = 400


@contextmanager
def serving(folder: Path) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """Where it listens; killed at the end, without a word."""
    argv = [*COMMAND, "serve", "--key", str(folder / "w.pem"), "--state", str(folder / "state"), "--log", LOG]
    process = subprocess.Popen([*argv, "--port", "0"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert " at http://" in said, said
        yield said.split(" at ")[1].strip(), process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def tree(size: int, replaced: int | None = None) -> Tree:
    made = Tree()
    for at in range(size):
        made.append(leaf_hash(b"other" if at == replaced else b"seal %d" % at))
    return made


def body(old: int, made: Tree, size: int) -> tuple[str, bytes]:
    """A checkpoint, and what is posted of it."""
    note = sign_checkpoint(ORIGIN, size, made.root(size), KEY)
    return note, ConsistencyProof(old, tuple(made.consistency(old, size)), note).dumps().encode()


def test_a_killed_witness_knows_what_it_has_answered(tmp_path: Path) -> None:
    argv = [*COMMAND, "init", "--name", NAME, "--key", str(tmp_path / "w.pem"), "--state", str(tmp_path / "state")]
    vkey = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    policy = read_log_policy(f"log {LOG}\nwitness w {vkey}\nquorum w\n".encode())
    made, answered = tree(SIZES), 0
    for after in (5, 60, 20):
        with serving(tmp_path) as (url, process), httpx.Client(trust_env=False, timeout=WITHIN_S) as client:
            found = client.post(f"{url}/add-checkpoint", content=body(answered, made, answered)[1])
            known = int(found.text) if found.status_code == 409 else answered
            assert found.status_code in (200, 409), found.text
            assert known in (answered, answered + 1), "all that was answered is known, and what was in the air perhaps"
            answered, killer, begun = known, threading.Timer(WITHIN_S, process.kill), known
            try:
                while answered < SIZES:
                    note, posted = body(answered, made, answered + 1)
                    answer = client.post(f"{url}/add-checkpoint", content=posted)
                    assert open_witnessed(note + answer.text, policy).by == ("w",)
                    answered += 1
                    if answered == begun + after:
                        killer = threading.Thread(target=process.kill)
                        killer.start()
            except httpx.TransportError:
                pass
            assert answered >= begun + after
            killer.join()
    with serving(tmp_path) as (url, _):
        size = int(httpx.post(f"{url}/add-checkpoint", content=body(0, made, 1)[1], trust_env=False).text)
        assert size in (answered, answered + 1)
        forked = httpx.post(f"{url}/add-checkpoint", content=body(size, tree(SIZES, 2), SIZES)[1], trust_env=False)
        assert forked.status_code == 422
