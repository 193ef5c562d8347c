"""`aetheris verify ID --from-log`: by the installation's root, where it is known."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli import fromlog
from aetheris.cli.app import app
from aetheris.cli.embedded.plan import RECORD_KEYS
from aetheris.cli.fromlog import JobRecords
from aetheris.proofs.trust import TrustedKey
from aetheris.protocol.messages import events as ev
from tests.unit.proofs.test_signed_histories import JOB, SignedLog, born, drafted, whole


@pytest.fixture
def signed(tmp_path: Path) -> SignedLog:
    return whole(tmp_path / RECORD_KEYS)


@pytest.fixture
def log(signed: SignedLog, monkeypatch: pytest.MonkeyPatch) -> JobRecords:
    """What lies in Kafka of the job: somebody wrote before its planner did, and a permission behind."""
    first, last = signed.records[0], signed.records[-1]
    other = replace(first, value=drafted(born()).value)
    paused = drafted(ev.JobPaused(job_id=JOB, number=2, by="eve"))
    behind = replace(last, headers=paused.headers, value=paused.value)
    records = [replace(one, offset=at) for at, one in enumerate((other, *signed.records, behind))]

    async def read_log(_bootstrap: str, _job_id: str, _keys: Sequence[TrustedKey], _data: Path) -> JobRecords:
        return JobRecords(records)

    monkeypatch.setattr(fromlog, "read_log", read_log)
    monkeypatch.setattr("aetheris.cli.local.kafka", lambda _data: "nowhere")  # pyright: ignore[reportUnknownLambdaType]
    return JobRecords(records)


def verified(data: Path, *more: str, **env: str) -> dict[str, Any]:
    argv = ["verify", JOB, "--from-log", "--data", str(data), "--json", *more]
    return json.loads(CliRunner().invoke(app, argv, env=env).stdout)


def rules(report: dict[str, Any]) -> set[str]:
    return {one["rule"] for one in report["violations"]}


@pytest.mark.parametrize("said_by", ["the folder", "the option", "the environment"])
def test_an_unsigned_creation_before_the_real_one_makes_no_unsigned_job_of_it(
    tmp_path: Path, signed: SignedLog, log: JobRecords, said_by: str
) -> None:
    named = {"AETHERIS_KAFKA": "elsewhere"} if said_by != "the folder" else {}
    more = ("--installation", signed.root) if said_by == "the option" else ()
    if said_by == "the environment":
        named["AETHERIS_INSTALLATION"] = f"{'f' * 64}, {signed.root}"
    report = verified(tmp_path, *more, **named)
    assert report["installation"] == signed.root
    assert [one["offset"] for one in report["unproven"]] == [len(log.records) - 1]
    assert not rules(report) & {"other_installation", "not_born", "born_twice"}


@pytest.mark.usefixtures("log")
def test_where_nobody_says_the_root_the_answer_says_that_there_is_one(tmp_path: Path) -> None:
    report = verified(tmp_path, AETHERIS_KAFKA="elsewhere")
    assert report["installation"] is None
    assert [(one["rule"], one["offset"]) for one in report["notes"]] == [("signed_creation", 1)]


def test_a_job_that_is_signed_under_no_known_root_does_not_hold(tmp_path: Path, log: JobRecords) -> None:
    del log.records[1:]
    assert "other_installation" in rules(verified(tmp_path, "--installation", "f" * 64))
