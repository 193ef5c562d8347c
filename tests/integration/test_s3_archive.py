"""All that lies on S3: bundles that are archived there, and a backup with its blobs and keys. A real S3 server."""

import asyncio
import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pyrage
import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.proofs.trust import LOG, read_keys
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.admin import delete_below
from tests.integration.test_backup_drill import dying_system
from tests.integration.test_s3 import PREFIX, S3Rig, make
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import wait
from tests.testkit.s3 import BUCKET, running_s3
from tests.testkit.system import running_system

AGE = cast("Any", pyrage)
"""It ships no types."""

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]

PATIENCE_S = 120.0
KEPT = f"s3://{BUCKET}/kept/one"


@pytest.fixture
def rig(tmp_path: Path) -> Generator[S3Rig]:
    with running_s3(tmp_path / "s3") as s3:
        env = {
            **s3.env,
            "AETHERIS_TOOLS": "tests.testkit.s3_tools",
            "AETHERIS_BLOBS": f"s3://{BUCKET}/{PREFIX}",
            "AETHERIS_ARCHIVE_AFTER_DAYS": "0",
            "S3_BUCKET": BUCKET,
        }
        with dying_system(tmp_path / "data", env) as system:
            yield S3Rig(system, s3, tmp_path)


def archived(rig: S3Rig, job: str) -> list[str]:
    return [key for key in rig.s3.keys(f"{PREFIX}/archive/") if f"/{job}." in key]


def command(rig: S3Rig, *argv: str, ends: int = 0) -> dict[str, Any]:
    code, said = rig.cli(*argv)
    assert code == ends, said
    return said


def emptied(rig: S3Rig) -> None:
    """The bucket has lost all that services kept there."""
    for key in rig.s3.keys(f"{PREFIX}/"):
        rig.s3.client.delete_object(Bucket=BUCKET, Key=key)
    assert rig.s3.keys(f"{PREFIX}/") == []


def replays(rig: S3Rig, job: str) -> bool:
    """Whether what is stored of it is what was recorded, large results included."""
    replayed = rig.api_of(job, "replay").json()
    return bool(replayed["ok"]) and replayed["unchecked"] == 0


def test_what_is_archived_on_s3_is_read_there_once_kafka_has_let_go_of_it(rig: S3Rig) -> None:
    word = fresh("")[-5:]
    job = rig.system.completed(make("a", word), make("b", fresh("")[-5:], "a"))
    rig.system.wait_sealed(job)
    until(lambda: bool(archived(rig, job)), PATIENCE_S)
    ends = rig.system.ends(str(Topic.JOBS_EVENTS))
    asyncio.run(delete_below(rig.system.state().kafka, {place: end for place, end in ends.items() if end}))
    assert rig.system.verified(job)["ok"]
    assert replays(rig, job)
    assert command(rig, "verify", job, "--from-log")["ok"]
    (bundle,) = archived(rig, job)
    held = rig.s3.client.get_object(Bucket=BUCKET, Key=bundle)["Body"].read()
    (rig.folder / "job.zip").write_bytes(held)
    assert rig.cli("verify", str(rig.folder / "job.zip"), "--public-key", str(rig.system.data / "keys" / "seal.pub"))[
        1
    ]["ok"]


def test_a_backup_in_a_bucket_has_log_blobs_and_keys_and_brings_all_back(rig: S3Rig, tmp_path: Path) -> None:
    me = AGE.x25519.Identity.generate()
    (tmp_path / "me").write_text(f"# mine\n{me}\n")
    (tmp_path / "me").chmod(0o600)
    data, job = rig.system.data, rig.system.completed(make("a", fresh("")[-5:]))
    rig.system.wait_sealed(job)
    until(lambda: bool(archived(rig, job)), PATIENCE_S)
    held = rig.system.submit(make("a", fresh("")[-5:]), wait("w", "go", "a"))
    rig.system.wait_status(held, "waiting", PATIENCE_S)
    blobs = rig.s3.keys(f"{PREFIX}/")
    taken = command(rig, "backup", KEPT, "--keys-to", str(me.to_public()))
    assert (taken["blobs"], taken["keys"]) == (len(blobs), True)
    assert command(rig, "backup", KEPT, ends=2)["error"]["code"] == "not_empty"
    for key in rig.s3.keys("kept/"):
        content = rig.s3.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        assert b"PRIVATE KEY" not in content, "no key lies there in the clear"
    log_key = _log_key(data)
    assert CliRunner().invoke(app, ["down", "--data", str(data)]).exit_code == 0
    shutil.rmtree(data)
    emptied(rig)
    words = ("--by", "ann", "--old-ended", "its machine burnt", "--expect", taken["sha256"])
    assert command(rig, "restore", KEPT, *words, ends=78)["error"]["code"] == "key_unusable", "without keys, no fence"
    shutil.rmtree(data, ignore_errors=True)
    restored = command(rig, "restore", KEPT, *words, "--identity", str(tmp_path / "me"))
    assert [one["job_id"] for one in restored["jobs"]] == [held]
    assert rig.s3.keys(f"{PREFIX}/") == blobs
    assert restored["new_log_key"] is not None
    assert _log_key(data) != log_key, "what was signed behind the backup's end is not contradicted"
    assert {path.stat().st_mode & 0o077 for path in (data / "keys").rglob("*.pem")} == {0}
    env = {
        **rig.s3.env,
        "AETHERIS_TOOLS": "tests.testkit.s3_tools",
        "AETHERIS_BLOBS": f"s3://{BUCKET}/{PREFIX}",
        "S3_BUCKET": BUCKET,
    }
    with running_system(data, env) as system:
        again = S3Rig(system, rig.s3, rig.folder)
        assert system.verified(job)["ok"]
        assert replays(again, job)
        answer = system.api.post("/freezes/end", json={"tenant": "default"}, headers=system.approver)
        assert answer.status_code == 200, answer.text
        assert system.api.post(f"/jobs/{held}/resume", json={}).status_code in (200, 202)
        system.signal(held, "go").raise_for_status()
        system.wait_ended([held], PATIENCE_S)
        system.wait_sealed(held)
        assert system.verified(held)["ok"]


def _log_key(data: Path) -> str:
    """The id of the key that signs the log of seals."""
    listed = data / "keys" / "seal-keys.json"
    path = listed if listed.exists() else data / "keys" / "seal.pub"
    keys = [key for key in read_keys(path.read_bytes()) if key.use == LOG]
    assert keys, json.loads(path.read_text())
    return max(keys, key=lambda key: str(key.valid_from or "")).key_id
