"""A whole system, its relay and a witness: a bundle holds under a policy that asks for the witness, and not before."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aetheris.cli.embedded.ports import free_port
from tests.testkit import services
from tests.testkit.attempts import fresh
from tests.testkit.external_server import running_outside, until
from tests.testkit.standalone import SCRIPT
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

WITHIN_S = 120
CHECK_BUNDLE = REPOSITORY / "libs/bundle_check/src/aetheris_check/check_bundle.py"
UP = ("up", "--tools", "tests.testkit.external_tools")


def aetheris(env: dict[str, str], *argv: str, ends: int | None = 0) -> subprocess.CompletedProcess[str]:
    """`aetheris`, as a process; `ends`: the exit code that it must have, None for any."""
    command = [sys.executable, "-m", "aetheris.cli", *argv]
    done = subprocess.run(
        command, env=env, cwd=REPOSITORY, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert ends is None or done.returncode == ends, f"{argv}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture
def env(tmp_path: Path) -> Generator[dict[str, str]]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AETHERIS_") and not name.lower().endswith("_proxy")
    }
    (tmp_path / "outside").mkdir()
    with running_outside(tmp_path / "outside") as outside:
        made = {**inherited, **outside.env, "AETHERIS_DATA": str(tmp_path / "data"), "PYTHONPATH": str(REPOSITORY)}
        try:
            yield made
        finally:
            aetheris(made, "down", ends=None)


def test_a_bundle_holds_under_a_policy_when_its_witness_has_seen_it(env: dict[str, str], tmp_path: Path) -> None:
    plan, policy, bundle = tmp_path / "plan.json", tmp_path / "policy", tmp_path / "job.zip"
    aetheris(env, *UP)
    vkey = aetheris(env, "seals", "vkey").stdout.strip()
    made = ("--key", str(tmp_path / "w.pem"), "--state", str(tmp_path / "state"))
    witness = aetheris(env, "witness", "init", "--name", "witness.example/w", *made).stdout.strip()
    argv = [sys.executable, "-m", "aetheris.cli", "witness", "serve", *made, "--log", vkey, "--port", "0"]
    serving = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
    assert serving.stderr is not None
    try:
        url = serving.stderr.readline().split(" at ")[1].strip()
        policy.write_text(f"log {vkey}\nwitness w {witness} {url}\nquorum w\n")
        aetheris(env, "down")
        env["AETHERIS_SEAL_POLICY"] = str(policy)
        aetheris(env, *UP)
        job_id = _sealed(env, plan, fresh("seen"))

        checked = ("verify", str(bundle), "--policy", str(policy), "--json")
        asks_nobody = {name: value for name, value in env.items() if name != "AETHERIS_SEAL_POLICY"}
        aetheris(asks_nobody, "export", job_id, "--out", str(bundle))
        assert "no_quorum" in aetheris(env, *checked, ends=1).stdout
        log, own, old = tmp_path / "log", tmp_path / "own", tmp_path / "old"
        aetheris(env, "seals", "checkpoint", "--out", str(old))
        aetheris(env, "seals", "relay", "--policy", str(policy), "--tiles", str(log), "--once")
        aetheris(asks_nobody, "export", job_id, "--out", str(bundle))
        aetheris(env, *checked)
        aetheris(env, "seals", "tiles", "--out", str(own), "--once")
        assert httpx.get(f"{url}/livez", trust_env=False).text == "alive\n"
        relayed(env, policy)
        _export_asks(env, plan, tmp_path / "later.zip", policy)
    finally:
        serving.kill()
        serving.wait()
        serving.stderr.close()
    keys = Path(env["AETHERIS_DATA"]) / "keys" / "seal.pub"
    assert "— witness.example/w " in (log / "checkpoint").read_text()
    for folder in (log, own):  # whoever has these files asks no service
        asked = ("--tiles", str(folder), "--public-key", str(keys), "--data", str(tmp_path / "nowhere"))
        aetheris(env, "seals", "consistency", str(old), *asked)
        aetheris(env, "seals", "inclusion", str(bundle), *asked)
    for script, asked in ((CHECK_BUNDLE, ("--witness", witness, "--quorum", "1")), (SCRIPT, ())):
        command = [sys.executable, str(script), str(bundle), "--public-key", str(keys), *asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"
    anew = ("--to", str(tmp_path / "anew"))
    _export_goes_on_alone(env, plan, tmp_path / "alone.zip", policy)
    refused = aetheris(env, "seals", "relay", "--policy", str(policy), *anew, "--once", ends=1)
    assert "no answer: ConnectError" in refused.stderr


def relayed(env: dict[str, str], policy: Path) -> None:
    """A relay that goes on says that it has reached the quorum, and ends when it is told to."""
    port = free_port()
    command = [sys.executable, "-m", "aetheris.cli", "seals", "relay", "--policy", str(policy), "--every", "1"]
    with subprocess.Popen([*command, "--health-port", str(port)], env=env, stderr=subprocess.DEVNULL) as relay:
        try:
            until(lambda: services.asked(port, "/livez")[0] == 200, WITHIN_S)
            until(lambda: services.asked(port, "/readyz")[0] == 200, WITHIN_S)
            relay.terminate()
            assert relay.wait(WITHIN_S) == 0
        finally:
            relay.kill()


def _export_asks(env: dict[str, str], plan: Path, bundle: Path, policy: Path) -> None:
    """Its witness has not seen the job's seal: it is asked now."""
    said = aetheris(env, "export", _sealed(env, plan, fresh("asked")), "--out", str(bundle)).stderr
    assert "by w, at 20" in said
    assert "unwitnessed" not in said
    aetheris(env, "verify", str(bundle), "--policy", str(policy), "--json")


def _export_goes_on_alone(env: dict[str, str], plan: Path, bundle: Path, policy: Path) -> None:
    """Its witness has gone: it says so, and the bundle does not hold under the policy."""
    said = aetheris(env, "export", _sealed(env, plan, fresh("alone")), "--out", str(bundle)).stderr
    assert "by w: no answer: ConnectError" in said
    assert "unwitnessed" in said
    assert "no_quorum" in aetheris(env, "verify", str(bundle), "--policy", str(policy), "--json", ends=1).stdout


def _sealed(env: dict[str, str], plan: Path, tag: str) -> str:
    node = {"id": "one", "tool": "poke_probeable", "args": {"tag": tag}, "depends_on": []}
    plan.write_text(json.dumps({"nodes": [node]}))
    job_id = json.loads(aetheris(env, "run", str(plan), "--json").stdout)["job_id"]
    until(lambda: _verified(env, job_id)["seal"]["ok"], WITHIN_S)
    return job_id


def _verified(env: dict[str, str], job_id: str) -> Any:
    return json.loads(aetheris(env, "verify", job_id, "--json", ends=None).stdout)
