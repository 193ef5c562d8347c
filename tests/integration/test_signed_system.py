"""Services sign on a running system: what others write for them starts and ends nothing, through kills too."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.errors import EmbeddedError, RefusedError
from aetheris.cli.embedded.plan import Plan
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    Cancel,
    CancelContract,
    FreezeAnswer,
    FreezeBarrier,
    FreezeOrder,
    JobCommand,
    Pause,
    Resolve,
    Respond,
    Signal,
    Submit,
    Verification,
)
from aetheris.protocol.messages.events import Event
from aetheris.runtime.keys.files import certified, load_key
from aetheris.runtime.keys.signing import raw_public_key
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig, wait
from tests.testkit.standalone import SCRIPT

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

EVERY = 200
PATIENCE_S = 120.0
ROGUE = "/tool_executor/rogue"
BOB = {"id": "bob", "tenant": "default", "kind": "person", "roles": ["approve", "operate", "resolve"]}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("signed"), {"AETHERIS_CHECKPOINT_EVERY": str(EVERY)}) as rig:
        yield rig


def keys_of(rig: Rig) -> Path:
    return rig.system.data / "keys" / "records"


def asked(rig: Rig, tag: str) -> tuple[str, dict[str, Any]]:
    """A job whose call waits for a yes: its id, and what was asked."""
    job = rig.system.submit(poke("a", tag, tool="poke_irreversible"))
    rig.system.wait_asked(job)
    (request,) = rig.system.data_of(job, "approval_requested")
    return job, request


def forgeries(job: str, request: dict[str, Any]) -> list[Event]:
    """What would let the call run, or end the job or what it waits for, had its writer said it."""
    named = {name: request[name] for name in ("job_id", "node_id", "idempotency_key")}
    about = named | {name: request[name] for name in ("args_hash", "tool_version", "rule", "token") if name in request}
    ended = named | {"invocation_id": "n", "via": "human", "outcome": "permanent_failure", "error": "e"}
    return [
        ev.ApprovalDecided.model_validate(about | {"decision": "approve", "approver": "bob"}),
        ev.PolicyAllowed.model_validate(about | {"rule": "r", "policy_hash": "p"}),
        ev.InvocationRejected.model_validate(named | {"reason": "cancelled"}),
        ev.ToolInvocationFinished.model_validate(ended),
        ev.CancelRequested(job_id=job, by="ann"),
        ev.JobCompleted(job_id=job),
        ev.JobSealed.model_validate(
            {
                "job_id": job,
                "tenant": "default",
                "event_count": 1,
                "root": "r",
                "chain": 2,
                "tree": "t",
                "execution_hash": "e",
            }
            | {"outcome_hash": "o", "sealed_at": "2026-01-01T00:00:00Z", "signature": "s", "key_id": "k"}
        ),
    ]


def forge(rig: Rig, job: str, request: dict[str, Any]) -> set[str]:
    """Each of them, by who may only append; their events' ids."""
    for event in forgeries(job, request):
        rig.system.append(event, ROGUE)
    until(lambda: len(_rogue(rig, job)) % len(forgeries(job, request)) == 0, PATIENCE_S)
    return _rogue(rig, job)


def _rogue(rig: Rig, job: str) -> set[str]:
    return {event["id"] for event in rig.system.events(job) if event["source"] == ROGUE}


def test_what_its_writer_did_not_sign_starts_nothing_and_ends_nothing(rig: Rig) -> None:
    tag = fresh("forged")
    job, request = asked(rig, tag)
    forged = forge(rig, job, request)
    after = rig.system.completed(poke("b", fresh("after"), tool="poke_pure"))
    assert rig.external.count(tag) == 0
    assert rig.system.job(job)["status"] == "waiting"
    assert rig.system.api.post("/ecs/respond", json=yes(rig, job), headers=rig.system.approver).status_code == 200
    rig.system.wait_ended([job], PATIENCE_S)
    rig.system.wait_sealed(job)
    report = rig.system.verified(job)
    assert {one["event_id"] for one in report["unproven"]} == forged
    assert (rig.external.count(tag), rig.system.job(job)["status"]) == (1, "completed")
    assert rig.system.verified(after)["unproven"] == []
    asked_under_other_roots(rig, after, report["installation"])


def asked_under_other_roots(rig: Rig, job: str, root: str) -> None:
    """By the command line and by the script that stands alone alike."""
    rig.system.wait_sealed(job)
    bundle = rig.system.data / f"{job}.zip"
    exported = CliRunner().invoke(app, ["export", job, "--out", str(bundle), "--data", str(rig.system.data)])
    assert exported.exit_code == 0, exported.output
    for named, holds in ((root, True), ("0" * 64, False)):
        argv = ["verify", str(bundle), "--installation", named, "--data", str(rig.system.data), "--json"]
        done = CliRunner().invoke(app, argv)
        public = str(rig.system.data / "keys" / "seal.pub")
        said = [sys.executable, str(SCRIPT), str(bundle), "--public-key", public, "--installation", named]
        other = subprocess.run(said, capture_output=True, text=True, check=False)
        assert (done.exit_code == 0, other.returncode == 0) == (holds, holds), done.output
        for text in (done.stdout, other.stdout):
            rules = [broken["rule"] for broken in json.loads(text)["violations"]]
            assert rules == ([] if holds else ["other_installation"])


def yes(rig: Rig, job: str) -> dict[str, Any]:
    return {"request_id": rig.system.wait_asked(job)["request_id"], "action": "approve"}


def commands(rig: Rig, job: str, request: str) -> list[JobCommand]:
    """What a person might say of a job as it stands, and never did."""
    said = {"job_id": job, "by": "bob", "tenant": "default", "principal": BOB}
    execution = rig.system.job(job)["steps"][0]["execution_id"]
    read = rig.system.ends(Topic.JOBS_EVENTS)[str(Topic.JOBS_EVENTS), partition_of(job, 4)] - 1
    about = said | {"as_of": read, "execution_id": execution}
    return [
        Respond.model_validate(about | {"request_id": request, "action": "approve"}),
        Resolve.model_validate(about | {"verdict": "not_executed", "evidence": "looked"}),
        CancelContract.model_validate(about),
        Signal.model_validate(about | {"correlation_key": "go", "payload": 1}),
        Cancel.model_validate(said),
        Pause.model_validate(said | {"number": 1}),
    ]


def test_what_no_gateway_signed_nobody_obeys(rig: Rig) -> None:
    """By who may write to jobs.commands, without a key of the gateway's, or with another's."""
    tag, lost = fresh("said"), fresh("lost")
    waiting, _ = asked(rig, tag)
    parked = rig.system.submit(poke("a", lost, tool="lost_irreversible"))
    allowed(rig, parked)
    until(lambda: rig.system.types(parked, "invocation_parked") != [], PATIENCE_S)
    for job in (waiting, parked):
        before = rig.system.types(job)
        for command in commands(rig, job, rig.system.wait_asked(waiting)["request_id"]):
            rig.system.forge(Topic.JOBS_COMMANDS, job, command, ROGUE)
            rig.system.say_as(Party.PLANNER, Topic.JOBS_COMMANDS, job, command)
        rig.system.completed(poke("b", fresh("after"), tool="poke_pure"))
        assert (rig.system.types(job), before) == (before, before)
    never = Submit.model_validate(
        {"job_id": fresh("never"), "by": "ann", "tenant": "default", "request_hash": "r"}
        | {"plan": rig.system.data_of(waiting, "job_created")[0]["plan"]}
    )
    rig.system.forge(Topic.JOBS_COMMANDS, never.job_id, never, ROGUE)
    refused(rig, {waiting, parked, never.job_id})
    assert rig.system.api.get(f"/jobs/{never.job_id}").status_code == 404, "not even shown as submitted"
    assert (rig.external.count(tag), rig.external.count(lost)) == (0, 1)
    allowed(rig, waiting)
    assert rig.system.resolve(parked, "a", "happened").status_code == 200
    rig.system.wait_ended([waiting, parked], PATIENCE_S)
    assert (rig.external.count(tag), rig.external.count(lost)) == (1, 1)
    rig.system.say_as(Party.GATEWAY, Topic.JOBS_COMMANDS, never.job_id, never)
    until(lambda: rig.system.job(never.job_id) != {}, PATIENCE_S)


def allowed(rig: Rig, job: str) -> None:
    answer = rig.system.api.post("/ecs/respond", json=yes(rig, job), headers=rig.system.approver)
    assert answer.status_code == 200, answer.text


def refused(rig: Rig, jobs: set[str]) -> None:
    """Planner and ledger name each, and nothing of what they say."""

    def named() -> set[str]:
        texts = [(rig.system.data / "logs" / f"{part}-0.log").read_text() for part in ("planner", "ledger")]
        lines = [json.loads(line) for text in texts for line in text.splitlines() if "not signed by" in line]
        assert not any("looked" in str(line) or "bob" in str(line) for line in lines)
        return {line["key"] for line in lines}

    until(lambda: named() >= jobs, PATIENCE_S)


def test_freezes_are_the_gateways_to_order_and_the_ledgers_to_answer(rig: Rig) -> None:
    """By who may write to freezes and jobs.events: an order, a barrier, answers, and an order's end."""
    tenant = rig.system.data_of(rig.system.submit(poke("a", fresh("t"), tool="poke_pure")), "job_created")
    scope = FreezeScope(tenant=tenant[0]["tenant"] if tenant else "default", tool="poke_pure")
    forged = FreezeOrder(scope=scope, number=1, frozen=True, by="eve", at="now")
    rig.system.forge(Topic.FREEZES, forged.key, forged, ROGUE)
    rig.system.say_as(Party.LEDGER, Topic.FREEZES, forged.key, forged)
    rig.system.forge(Topic.JOBS_EVENTS, forged.key, FreezeBarrier(order=forged), ROGUE)
    for number in range(8):
        rig.system.completed(poke("a", f"free-{number}", tool="poke_pure"))
    assert frozen(rig) == []
    with rig.system.asleep("ledger-0"), ThreadPoolExecutor() as people:
        answering = people.submit(operate, rig, "/freezes")
        until(lambda: [one["answered"] for one in frozen(rig)] == [0], 20)
        for number in range(4):
            answer = FreezeAnswer(scope=scope, number=1, frozen=True, partition=number)
            rig.system.forge(Topic.FREEZES, scope.key, answer, ROGUE)
        end = forged.model_copy(update={"frozen": False})
        rig.system.forge(Topic.FREEZES, scope.key, end, ROGUE)
        until(lambda: "freeze_answer" in (rig.system.data / "logs" / "gateway-0.log").read_text(), PATIENCE_S)
        ((shown, by, answered),) = [(one["number"], one["by"], one["answered"]) for one in frozen(rig)]
        assert (shown, by != "eve", answered) == (1, True, 0)
        os.kill(rig.system.pid("ledger-0"), signal.SIGCONT)
        answer = answering.result()
    assert (answer.status_code, answer.json()["answered"]) == (200, 4), answer.text
    held = rig.system.submit(poke("a", fresh("held"), tool="poke_pure"))
    until(lambda: rig.system.types(held, "job_frozen") != [], PATIENCE_S)
    assert operate(rig, "/freezes/end").status_code == 200
    rig.system.wait_ended([held], PATIENCE_S)


def operate(rig: Rig, path: str) -> httpx.Response:
    return rig.system.api.post(path, json={"tool": "poke_pure"}, headers=rig.system.approver, timeout=60)


def frozen(rig: Rig) -> list[dict[str, Any]]:
    return rig.system.api.get("/freezes", headers=rig.system.approver).json()["freezes"]


def test_after_kills_and_from_a_checkpoint_forgeries_are_still_void_and_signatures_go_on(rig: Rig) -> None:
    """Of a job out of reach of the mark a service knows only what its checkpoint has: the keys are in there, too."""
    tag = fresh("checkpoint")
    job = rig.system.submit(wait("word", "go"), poke("a", tag, "word", tool="poke_irreversible"))
    rig.system.wait_status(job, "waiting", PATIENCE_S)
    place = (str(Topic.JOBS_EVENTS), partition_of(job, 4))
    until_end = rig.system.ends(Topic.JOBS_EVENTS)[place] + REACH + 8 * EVERY
    while rig.system.ends(Topic.JOBS_EVENTS)[place] < until_end:
        jobs = [rig.system.submit(*(poke(f"s{n}", str(n), tool="poke_pure") for n in range(40))) for _ in range(40)]
        rig.system.wait_ended(jobs, PATIENCE_S)
    for topic in (Topic.PLANNER_CHECKPOINTS, Topic.LEDGER_CHECKPOINTS):
        until(lambda topic=topic: rig.system.ends(topic)[str(topic), place[1]] > 0, PATIENCE_S)
    with rig.system.all_killed():
        pass
    rig.system.wait_ready(PATIENCE_S)
    for part in ("planner-0", "ledger-0", "executor-0"):
        text = (rig.system.data / "logs" / f"{part}.log").read_text()
        lines = [json.loads(line) for line in text.splitlines() if '"event": "restored"' in line]
        known = [one["known"] for one in lines if one["partition"] == place[1]]
        assert known[-1] > 0, f"{part} loaded a checkpoint"
    assert rig.system.signal(job, "go", 1).status_code == 200
    rig.system.wait_asked(job, PATIENCE_S)
    (request,) = rig.system.data_of(job, "approval_requested")
    forged = forge(rig, job, request)
    assert rig.system.api.post("/ecs/respond", json=yes(rig, job), headers=rig.system.approver).status_code == 200
    rig.system.wait_ended([job], PATIENCE_S)
    rig.system.wait_sealed(job)
    report = rig.system.verified(job)
    assert {one["event_id"] for one in report["unproven"]} == forged
    assert (rig.external.count(tag), rig.system.job(job)["status"]) == (1, "completed")


def test_who_has_the_ledgers_key_permits_and_who_has_another_does_not(rig: Rig) -> None:
    """That the ledger can is what the table says of it; it shows that nothing else holds a permission back."""
    tag = fresh("keys")
    job, request = asked(rig, tag)
    decided = forgeries(job, request)[0]
    rig.system.append_as(Party.PLANNER, decided)
    rig.system.append_as(Party.AUDITOR, decided)
    rig.system.completed(poke("b", fresh("between"), tool="poke_pure"))
    assert rig.external.count(tag) == 0
    rig.system.append_as(Party.LEDGER, decided)
    rig.system.wait_ended([job], PATIENCE_S)
    assert rig.external.count(tag) == 1


def test_each_key_is_its_owners_alone(rig: Rig) -> None:
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys_of(rig).iterdir()}
    assert set(files.values()) == {0o600}
    assert set(files) >= {"root.pem", "gateway.pem", "planner.pem", "ledger.pem", "prober.pem", "auditor.pem"}
    for name, part in {one.name: one for one in Plan.load(rig.system.data).parts}.items():
        named = {variable for variable in ("AETHERIS_RECORD_KEY", "AETHERIS_RECORD_CERT") if part.env.get(variable)}
        signs = name.rpartition("-")[0] in ("gateway", "planner", "ledger", "prober", "verifier")
        assert (len(named) == 2) == signs, name


def test_with_a_certificate_that_has_ended_the_system_does_not_start_and_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running_rig(tmp_path):
        pass
    keys, now = folder / "keys" / "records", datetime.now(UTC)
    public = raw_public_key(load_key(keys / "ledger.pem"))
    over = certified(load_key(keys / "root.pem"), Party.LEDGER, public, now - timedelta(2), now - timedelta(1))
    (keys / "ledger.cert.json").write_text(json.dumps(over.to_json()))
    with pytest.raises(RefusedError, match="ledger-0 refuses to run: the certificate of this ledger was in force from"):
        lifecycle.up(folder, progress=lambda _part, _state: None)


def test_a_folder_whose_keys_are_gone_is_refused(tmp_path: Path) -> None:
    """Its jobs could be judged by nobody; and one of before is not taken for one that is signed."""
    with running_rig(tmp_path):
        pass
    (tmp_path / "data" / "keys" / "records" / "root.pem").unlink()
    with pytest.raises(EmbeddedError, match="holds jobs whose records are not signed"):
        lifecycle.up(tmp_path / "data", progress=lambda _part, _state: None)


def test_behind_a_revocation_a_stolen_key_permits_nothing_and_begins_no_job(tmp_path: Path) -> None:
    """Planner and ledger come back with other keys; the thief has the old ones."""
    tag, stolen = fresh("revoked"), tmp_path / "stolen"
    with running_rig(tmp_path) as rig:
        job, request = asked(rig, tag)
        shutil.copytree(keys_of(rig), stolen)
        for party in ("planner", "ledger"):
            replace_key(rig, party, tmp_path / f"{party}.json")
    with running_rig(tmp_path) as rig:
        until(lambda: len(rig.system.data_of(job, "key_revoked")) == 2, PATIENCE_S)
        rig.system.append_as(Party.LEDGER, forgeries(job, request)[0], stolen)
        after = rig.system.completed(poke("b", fresh("after"), tool="poke_pure"))
        assert rig.system.types(after)[:3] == ["job_created", "key_revoked", "key_revoked"]
        assert (rig.external.count(tag), rig.system.job(job)["status"]) == (0, "waiting")
        assert rig.system.api.post("/ecs/respond", json=yes(rig, job), headers=rig.system.approver).status_code == 200
        rig.system.wait_ended([job], PATIENCE_S)
        assert rig.external.count(tag) == 1


def replace_key(rig: Rig, party: str, revocation: Path) -> None:
    """As docs/configuration.md says."""
    folder = keys_of(rig)
    by, certificate = ["--root", str(folder / "root.pem")], str(folder / f"{party}.cert.json")
    root("revoke", certificate, "--reason", "stolen", "--out", str(revocation), *by)
    root("bring", str(revocation), "--to", str(folder / "revocations.json"), "--data", str(rig.system.data))
    root("certify", party, "--new-key", "--folder", str(folder), *by)


def root(*argv: str) -> None:
    done = CliRunner().invoke(app, ["root", *argv])
    assert done.exit_code == 0, done.output


def test_nobody_says_for_the_prober_what_became_of_a_call_nor_has_it_asked(rig: Rig, tmp_path: Path) -> None:
    """A call that was reset before it was sent, while its prober sleeps: found, says a forger, and asks himself."""
    tag = fresh("probed")
    once = tmp_path / tag
    once.touch()
    with rig.system.asleep("prober-0"):
        job = rig.system.submit({"id": "a", "tool": "poke_reset", "args": {"tag": tag, "once": str(once)}})
        until(lambda: rig.system.types(job, "invocation_in_doubt") != [], PATIENCE_S)
        (started,) = rig.system.data_of(job, "tool_invocation_started")
        named = {name: started[name] for name in ("job_id", "node_id", "idempotency_key", "invocation_id")}
        own = named | {"external_key": started["external_key"], "ask": "q"}
        for answer in ("found", "not_found"):
            rig.system.append(ev.InvocationProbed.model_validate(own | {"answer": answer}), ROGUE)
        asked_of = own | {"birth": 0, "tool_name": started["tool_name"], "tool_version": started["tool_version"]}
        rig.system.forge(Topic.VERIFICATIONS, job, Verification.model_validate(asked_of), ROGUE)
        until(lambda: len(_rogue(rig, job)) == 2, PATIENCE_S)
        rig.system.completed(poke("b", fresh("after"), tool="poke_pure"))
        assert rig.system.types(job, "tool_invocation_finished", "invocation_reopened") == []
    rig.system.wait_ended([job], PATIENCE_S)
    rig.system.wait_sealed(job)
    assert (rig.external.count(tag), rig.system.job(job)["status"]) == (1, "completed")
    answers = [one for one in rig.system.events(job, "invocation_probed") if one["source"] != ROGUE]
    assert "not_found" in {one["data"]["answer"] for one in answers}
    assert "q" not in {one["data"]["ask"] for one in answers}, "only the ledger has it asked"
    assert {one["event_id"] for one in rig.system.verified(job)["unproven"]} == _rogue(rig, job)
