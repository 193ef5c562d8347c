"""What comes behind a job's seal, on a running system: a late success is amended through kills, and nothing else."""

import asyncio
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.installation import process_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400)]

PATIENCE_S = 120.0
AUDITOR, EXECUTOR = "verifier-0", "executor-0"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    env = {"AETHERIS_LEASE_TTL_S": "2", "AETHERIS_SESSION_TIMEOUT_S": "3"}
    with running_rig(tmp_path_factory.mktemp("amended"), env) as rig:
        first = rig.system.completed(poke("a", fresh("first"), tool="poke_pure"))
        rig.system.wait_sealed(first)
        rig.system.kill("ledger-0")  # an empty Redis may have lost leases; a later ledger knows
        rig.system.wait_ready(PATIENCE_S)
        yield rig


def given_up(rig: Rig, tag: str) -> tuple[str, Any]:
    """A sealed job whose one call took effect, though a person has said that it did not: its answer is still held."""
    held = rig.external.hold(tag)
    job = rig.system.submit({"id": "a", "tool": "poke_opaque", "args": {"tag": tag, "hold": tag}})
    rig.external.wait_for(1, tag, PATIENCE_S)
    worker = process_of(rig.system.data_of(job, "tool_invocation_started")[0]["worker_id"])
    asleep = rig.system.asleep(worker)
    asleep.__enter__()
    rig.system.wait_status(job, "waiting", PATIENCE_S)
    assert rig.system.resolve(job, "a", "not_executed").status_code == 200
    rig.system.wait_status(job, "failed", PATIENCE_S)
    rig.system.wait_sealed(job, PATIENCE_S)
    held.unlink()
    return job, asleep


def wake(asleep: Any) -> None:
    asleep.__exit__(None, None, None)


def junk(rig: Rig, job: str) -> None:
    """By somebody who may append: a yes that nobody said, a byte that is nothing, a line that nobody signed."""
    (started,) = rig.system.data_of(job, "tool_invocation_started")
    named = {name: started[name] for name in ("job_id", "node_id", "idempotency_key", "tool_version", "args_hash")}
    said = {"decision": "approve", "approver": "the CFO", "rule": "r"}
    rig.system.append(ev.ApprovalDecided.model_validate(named | said), "/tool_executor/rogue")
    place = partition_of(job, len(rig.system.ends(Topic.JOBS_EVENTS)))
    line = json.dumps({"job_id": job, "event_count": 1, "root": "0" * 64}).encode()
    rig.system.write(
        [
            (Draft(Topic.JOBS_EVENTS, job.encode(), b"\xff", (), place),),
            (Draft(Topic.JOBS_SEALS, job.encode(), line),),
        ]
    )


def command(rig: Rig, *argv: str) -> tuple[int, dict[str, Any]]:
    ran = CliRunner().invoke(app, [*argv, "--data", str(rig.system.data), "--json"])
    return ran.exit_code, json.loads(ran.stdout) if ran.stdout.startswith("{") else {"out": ran.output}


def told_since(rig: Rig, kept: Path, newer: Path) -> None:
    """What was amended since a bundle was kept: by the gateway, by a file, and by Kafka's own lines."""
    seen: list[list[str]] = []
    for options in ((), ("--newer", str(newer)), ("--from-log",)):
        code, told = command(rig, "amendments", str(kept), *options)
        assert (code, told["violations"]) == (1, []), (options, told)
        seen.append([one["line"] for one in told["amendments"]])
        facts = told["amendments"][0]["facts"]
        assert (facts is None) == ("--from-log" in options)
        assert facts is None or "tool_invocation_finished" in {one["type"] for one in facts}
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 1
    code, told = command(rig, "amendments", str(newer), "--from-log")
    assert (code, told["amendments"], told["violations"]) == (0, [], []), told


def assert_shown_nowhere(rig: Rig, job: str, bundle: Path) -> None:
    """No view shows the made-up yes, of the job by its id or of its bundle."""
    for name in ("trace", "ledger", "effects", "why"):
        for target in (job, str(bundle)):
            code, shown = command(rig, name, target)
            assert code in (0, 1), (name, target, shown)
            assert "the CFO" not in json.dumps(shown), (name, target)


def test_a_late_success_behind_a_seal_is_amended_through_kills_of_the_auditor(rig: Rig, tmp_path: Path) -> None:
    tag = fresh("late")
    job, asleep = given_up(rig, tag)
    before = rig.system.verified(job)
    kept = tmp_path / "kept.zip"
    assert command(rig, "export", job, "--out", str(kept))[0] == 0
    assert command(rig, "amendments", str(kept))[1]["ok"]
    junk(rig, job)
    rig.system.kill(AUDITOR)
    wake(asleep)
    until(lambda: len(rig.system.data_of(job, "tool_invocation_finished")) > 1, PATIENCE_S)
    rig.system.kill(AUDITOR)
    rig.system.wait_ready(PATIENCE_S)
    until(lambda: rig.system.report(job)["amended"] is not None, PATIENCE_S)
    report = rig.system.report(job)
    assert (report["ok"], report["seal"]["ok"], report["amended"]["ok"]) == (False, True, True)
    assert report["amended"]["root"] == before["event_chain_root_hash"]
    assert {one["rule"] for one in report["violations"]} == {one["rule"] for one in report["amended"]["shows"]}
    assert "truth_differs" in {one["rule"] for one in report["violations"]}
    bundle = tmp_path / "amended.zip"
    code, exported = command(rig, "export", job, "--out", str(bundle))
    assert (code, exported["ok"]) == (0, False), exported
    code, verified = command(rig, "verify", str(bundle))
    assert (code, verified["amended"]["event_count"]) == (1, before["event_count"])
    left = sorted(one["message"].split(":")[0] for one in verified["after_seal"])
    assert left == ["a record that can't be read", "approval_decided", "state_changed"], "all but late facts"
    told_since(rig, kept, bundle)
    code, audited = command(rig, "seals", "audit")
    assert (code, audited["ok"]) == (0, True), audited
    assert audited["unsigned"] >= 1


def test_what_a_stranger_appends_to_a_sealed_job_is_in_no_bundle_and_no_view(rig: Rig, tmp_path: Path) -> None:
    job = rig.system.completed(poke("a", fresh("sealed"), tool="poke_opaque"))
    rig.system.wait_sealed(job, PATIENCE_S)
    junk(rig, job)
    until(lambda: len(rig.system.report(job)["after_seal"]) == 2, PATIENCE_S)
    assert rig.system.verified(job)["amended"] is None
    bundle = tmp_path / "sealed.zip"
    assert command(rig, "export", job, "--out", str(bundle))[0] == 0
    code, verified = command(rig, "verify", str(bundle))
    assert (code, verified["ok"]) == (0, True), verified
    assert "the CFO" not in json.dumps(verified)
    assert command(rig, "verify", job, "--from-log")[0] == 0
    assert_shown_nowhere(rig, job, bundle)


def test_evidence_of_a_second_success_can_not_be_dropped_unseen(rig: Rig) -> None:
    """Who holds a stream without what was amended is contradicted by the log of seals."""
    job, asleep = given_up(rig, fresh("dropped"))
    wake(asleep)
    until(lambda: rig.system.report(job)["amended"] is not None, PATIENCE_S)
    lines = asyncio.run(_lines(rig, job))
    assert [line.get("amends") is not None for line in lines] == [False, True]
    assert lines[1]["event_count"] > lines[0]["event_count"]


async def _lines(rig: Rig, job: str) -> list[dict[str, Any]]:
    """What the log of seals has of a job, in order."""
    log, place = KafkaLog(rig.system.state().kafka), (str(Topic.JOBS_SEALS), 0)
    await log.start()
    try:
        end = (await log.end_offsets([place]))[place]
        found = [record async for records in replay(log, place, 0, end) for record in records]
        return [json.loads(record.value) for record in found if record.key == job.encode()]
    finally:
        await log.stop()
