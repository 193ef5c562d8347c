"""The command against the whole system: every answer and exit code that a user sees on the way."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from aetheris.cli.embedded import lifecycle
from aetheris.proofs import notes
from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer, running_outside, until
from tests.testkit.standalone import SCRIPT

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).parent.parent.parent
WITHIN_S = 120
UP = ("up", "--tools", "tests.testkit.external_tools")


@dataclass(frozen=True)
class Command:
    """`aetheris`, as a process of its own on one data folder."""

    data: Path
    env: dict[str, str]

    def __call__(self, *argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "aetheris.cli", *argv]
        return subprocess.run(
            command, env=self.env, cwd=REPOSITORY, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )

    def json(self, *argv: str) -> Any:
        """What it prints with --json; it must have ended well."""
        done = self(*argv, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def plan(self, name: str, *nodes: dict[str, Any]) -> str:
        """A file with a plan."""
        path = self.data.parent / f"{name}.json"
        path.write_text(json.dumps({"nodes": list(nodes)}))
        return str(path)


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> Generator[ExternalServer]:
    with running_outside(tmp_path_factory.mktemp("outside")) as running:
        yield running


@pytest.fixture(scope="module")
def aetheris(external: ExternalServer, tmp_path_factory: pytest.TempPathFactory) -> Generator[Command]:
    """Up by `aetheris up`, down by whatever the tests left to do."""
    data = tmp_path_factory.mktemp("cli") / "data"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AETHERIS_")}
    command = Command(data, {**inherited, **external.env, "AETHERIS_DATA": str(data), "PYTHONPATH": str(REPOSITORY)})
    try:
        up = command(*UP, "--json")
        assert up.returncode == 0, up.stderr
        assert json.loads(up.stdout)["gateway"].startswith("http://127.0.0.1:")
        assert all(
            f"{part}-0" in up.stderr
            for part in ("gateway", "planner", "ledger", "executor", "prober", "verifier", "console")
        )
        until(lambda: "poke_probeable" in command("tools").stdout, 30)
        yield command
    finally:
        if lifecycle.supervisor_pid(data) is not None:
            lifecycle.down(data)


def poke(name: str, tool: str, tag: str, *needs: str, **args: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "args": {"tag": tag, **args}, "depends_on": list(needs)}


def test_a_job_from_plan_to_proof(aetheris: Command, external: ExternalServer) -> None:
    tag, once = fresh("cli"), fresh("once")
    steps = (poke("one", "poke_probeable", f"{tag}-1"), poke("two", "poke_opaque", f"{tag}-2", "one"))
    plan = aetheris.plan("good", *steps)
    ran = aetheris("run", plan, "--idempotency-key", once, "--json")
    assert ran.returncode == 0, ran.stderr
    job = json.loads(ran.stdout)
    job_id = job["job_id"]
    lines = [line.split() for line in ran.stderr.splitlines()]
    for node, tool in (("one", "poke_probeable"), ("two", "poke_opaque")):
        assert [node, tool, "started", "attempt", "0", f"aetheris:{job_id}:{node}:0"] in lines
        assert any(line[:5] == [node, tool, "done", "attempt", "0"] and len(line) == 6 for line in lines)
    assert [effect["tag"] for effect in external.effects() if effect["tag"].startswith(tag)] == [f"{tag}-1", f"{tag}-2"]

    again = aetheris.json("submit", plan, "--idempotency-key", once)
    assert again["job_id"] == job_id
    other = aetheris.plan("other", steps[0])
    assert aetheris("submit", other, "--idempotency-key", once).returncode == 1

    assert job_id in [one["job_id"] for one in aetheris.json("jobs")]
    assert aetheris.json("job", job_id)["status"] == "completed"
    assert aetheris("cancel", job_id).returncode == 1

    assert aetheris.json("job", job_id[:18])["job_id"] == job_id
    assert aetheris.json("result", job_id[:18]) == {"two": {"poked": f"{tag}-2"}}
    assert aetheris.json("result", job_id, "one") == {"poked": f"{tag}-1"}
    assert aetheris("logs", "--part", "executor").stdout.count("restored") >= 1
    written = [json.loads(line) for line in aetheris("logs", job_id[:18], "--json").stdout.splitlines()]
    steps_of = [(one["part"], one["event"]) for one in written if one.get("node_id") == "one"]
    assert {("executor", "tool_invocation_started"), ("executor", "tool_invocation_finished")} <= set(steps_of)
    assert all(one["took_ms"] >= 0 for one in written if one["event"] == "tool_invocation_finished")

    followed = aetheris("events", job_id, "--follow", "--json")  # ends by itself: with the seal
    events = [json.loads(line) for line in followed.stdout.splitlines()]
    assert events[-1]["type"] == "job_sealed"
    assert events == aetheris.json("events", job_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))

    online = aetheris.json("verify", job_id)
    assert (online["seal"]["ok"], online["ended"]) == (True, True)
    stream = aetheris.data.parent / "stream.jsonl"
    assert aetheris("export", job_id, "--stream", "--out", str(stream)).returncode == 0
    assert len(stream.read_text().splitlines()) == len(events) + 1  # no record repeats an event id
    proofs = [aetheris.json("verify", str(stream)), aetheris.json("verify", job_id, "--from-log")]
    assert all(proof["event_chain_root_hash"] == online["event_chain_root_hash"] for proof in proofs)


def test_a_strangers_check_needs_the_bundle_and_one_file(aetheris: Command, tmp_path: Path) -> None:
    job_id = aetheris.json("jobs")[0]["job_id"]
    bundle = tmp_path / "evidence.zip"
    done = aetheris("export", job_id, "--out", str(bundle))
    assert done.returncode == 0, done.stderr
    public = aetheris.data / "keys" / "seal.pub"
    command = [sys.executable, "-I", str(SCRIPT), str(bundle), "--public-key", str(public)]
    script = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert script.returncode == 0, script.stdout
    own = aetheris.json("verify", str(bundle), "--public-key", str(public))
    online = aetheris.json("verify", job_id)
    for report in (own, json.loads(script.stdout)):
        assert {name: report[name] for name in online if name != "notes"} == {
            name: online[name] for name in online if name != "notes"
        }


def test_the_log_of_seals_shows_what_is_dropped(aetheris: Command, tmp_path: Path) -> None:
    kept = tmp_path / "checkpoint"
    assert aetheris("seals", "checkpoint", "--out", str(kept)).returncode == 0
    job_id = json.loads(aetheris("run", aetheris.plan("more", poke("m", "poke_opaque", "cli-m")), "--json").stdout)[
        "job_id"
    ]
    until(lambda: aetheris.json("verify", job_id)["seal"]["ok"], WITHIN_S)
    grown = aetheris.json("seals", "consistency", str(kept))
    assert grown["size"] > grown["old_size"]
    assert aetheris("seals", "inclusion", job_id).stdout.startswith("c2sp.org/tlog-proof@v1\n")
    audited = aetheris.json("seals", "audit", "--checkpoint", str(kept))
    assert (audited["ok"], audited["leaves"] >= grown["size"]) == (True, True)  # lines of other kinds come meanwhile
    assert aetheris("seals", "rotate").returncode == 1  # it runs


def test_what_contradicts_an_earlier_checkpoint_is_not_signed(aetheris: Command) -> None:
    """The verifier had signed another tree of that size: somebody has rewritten the log of seals since."""
    assert aetheris("seals", "checkpoint").returncode == 0
    keys = aetheris.data / "keys"
    kept = (keys / "checkpoint").read_text()
    signed = notes.read_checkpoint(kept)
    private_key = load_pem_private_key((keys / "seal.pem").read_bytes(), None)
    assert isinstance(private_key, Ed25519PrivateKey)
    other = notes.sign_checkpoint(signed.origin, signed.size, hashlib.sha256(b"other").digest(), private_key)
    (keys / "checkpoint").write_text(other)
    try:
        ran = aetheris("run", aetheris.plan("fork", poke("f", "poke_opaque", "cli-f")), "--json")
        job_id = json.loads(ran.stdout)["job_id"]
        until(lambda: aetheris.json("verify", job_id)["seal"]["ok"], WITHIN_S)
        for command in (("seals", "checkpoint"), ("seals", "inclusion", job_id), ("export", job_id, "--out", "-")):
            refused = aetheris(*command)
            assert (refused.returncode, refused.stdout) == (5, "")
            assert f"jobs.seals is not what was signed when it had {signed.size} records" in refused.stderr
    finally:
        (keys / "checkpoint").write_text(kept)
    assert aetheris("seals", "checkpoint").returncode == 0


def test_a_parked_step_says_why_and_is_resolved_by_hand(aetheris: Command, external: ExternalServer) -> None:
    tag = fresh("parked")
    held = external.hold(tag)
    plan = aetheris.plan("parked", poke("pay", "poke_opaque", tag, hold=held.name))
    job_id = aetheris.json("submit", plan)["job_id"]
    external.wait_for(1, tag, WITHIN_S)
    executor = lifecycle.status(aetheris.data).parts["executor-0"].state.pid
    assert executor is not None
    os.kill(executor, 9)  # the effect stands, and nobody has heard of it
    until(lambda: aetheris.json("job", job_id)["status"] == "waiting", WITHIN_S)
    held.unlink()

    shown = aetheris("job", job_id).stdout
    assert "pay is parked" in shown
    assert f"aetheris resolve {job_id} --node pay" in shown
    assert aetheris("verify", job_id).returncode == 1

    resolve = ("resolve", job_id, "--node", "pay", "--happened", "--evidence", "found in their list")
    refused = aetheris(*resolve)
    assert (refused.returncode, "needs the role resolve" in refused.stderr) == (1, True)
    assert "--as approver" in refused.stderr
    resolve = (*resolve, "--as", "approver")
    assert aetheris(*resolve, "--result", json.dumps({"poked": tag})).returncode == 0
    until(lambda: aetheris.json("job", job_id)["status"] == "completed", WITHIN_S)
    assert aetheris(*resolve).returncode == 1
    assert external.count(tag) == 1


def test_what_is_wrong_is_said_by_the_exit_code(aetheris: Command) -> None:
    unknown_tool = aetheris("submit", aetheris.plan("bad", poke("a", "no_such_tool", "t")))
    assert (unknown_tool.returncode, "plan.nodes[0].tool" in unknown_tool.stderr) == (2, True)
    assert aetheris("job", "no-such-job").returncode == 4
    assert aetheris("verify", "no-such-job").returncode == 4
    assert aetheris("doctor").returncode == 0
    bogus = aetheris("jobs", "--status", "bogus")
    assert (bogus.returncode, "needs_upgrade, completed, failed" in bogus.stderr) == (2, True)


def test_down_ends_everything_and_up_finds_the_jobs_again(aetheris: Command) -> None:
    """The sealing key is changed in between: what the old one sealed stays good."""
    if lifecycle.supervisor_pid(aetheris.data) is None:  # an attempt before this one ended in between
        assert aetheris(*UP).returncode == 0
    ran = aetheris("run", aetheris.plan("kept", poke("k", "poke_opaque", "cli-k")), "--json")
    job_id = json.loads(ran.stdout)["job_id"]
    until(lambda: aetheris.json("verify", job_id)["seal"]["ok"], WITHIN_S)
    before = aetheris.json("jobs")
    assert job_id in [one["job_id"] for one in before]
    assert aetheris("down").returncode == 0
    assert aetheris("jobs").returncode == 5
    assert aetheris("down").returncode == 5
    rotated = aetheris.json("seals", "rotate")
    assert aetheris(*UP).returncode == 0
    assert [one["job_id"] for one in aetheris.json("jobs")] == [one["job_id"] for one in before]
    bundle = aetheris.data.parent / "old.zip"
    assert aetheris("export", job_id, "--out", str(bundle)).returncode == 0
    assert set(aetheris.json("verify", str(bundle))["trusted"]) >= {rotated["old"], rotated["new"]}
    assert aetheris("down").returncode == 0
