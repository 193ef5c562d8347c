"""`aetheris subscribe` on a real broker: from anywhere, resumed by a group; and kcat reads the same."""

import asyncio
import json
import os
import shutil
import subprocess
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import JobCompleted
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from tests.testkit.attempts import fresh

pytestmark = pytest.mark.real

kcat_needed = pytest.mark.skipif(
    shutil.which("kcat") is None and "CI" not in os.environ, reason="kcat comes with `make system-deps`"
)


async def write(kafka: str, job: str, *numbers: int) -> None:
    """Facts of a job, e-N each."""
    await ensure_topics(kafka, 4)
    log = KafkaLog(kafka)
    await log.start()
    appender = log.appender()
    await appender.start()
    bodies = [(number, JobCompleted(job_id=job, result=number)) for number in numbers]
    time = "2026-01-01T00:00:00Z"
    drafts = [
        draft(Topic.JOBS_EVENTS, body, key=job, id=f"e-{number}", source="test", time=time) for number, body in bodies
    ]
    await appender.append([(one,) for one in drafts])
    await appender.stop()
    await log.stop()


def lines(kafka: str, *argv: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["subscribe", "--until-now", *argv], env={"AETHERIS_KAFKA": kafka})
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_from_anywhere_and_resumed(kafka: str) -> None:
    job, group = fresh("subscribed"), fresh("group")
    asyncio.run(write(kafka, job, 1, 2, 3))
    first = lines(kafka, "--job", job)
    assert [(one["id"], one["payload"]["result"]) for one in first] == [("e-1", 1), ("e-2", 2), ("e-3", 3)]
    second = first[1]
    assert [one["id"] for one in lines(kafka, "--from", f"{second['partition']}:{second['offset']}", "--job", job)] == [
        "e-2",
        "e-3",
    ]
    assert lines(kafka, "--from", "now", "--job", job) == []
    assert lines(kafka, "--type", "job_sealed", "--job", job) == []

    assert [one["id"] for one in lines(kafka, "--group", group, "--job", job)] == ["e-1", "e-2", "e-3"]
    asyncio.run(write(kafka, job, 4))
    assert [one["id"] for one in lines(kafka, "--group", group, "--job", job)] == ["e-4"]


@kcat_needed
def test_kcat_reads_the_same(kafka: str) -> None:
    job = fresh("read-by-kcat")
    asyncio.run(write(kafka, job, 1, 2))
    argv = ["kcat", "-C", "-b", kafka, "-t", Topic.JOBS_EVENTS, "-o", "beginning", "-e", "-q", "-J"]
    reported = subprocess.run(argv, capture_output=True, check=True).stdout.split(b"\n")
    read = [json.loads(line) for line in reported if job.encode() in line]  # the broker is shared: others write garbage
    theirs = [(one["partition"], one["offset"], json.loads(one["payload"])) for one in read if one["key"] == job]
    ours = [(one["partition"], one["offset"], one["payload"]) for one in lines(kafka, "--job", job)]
    assert theirs == ours
    assert len(ours) == 2


def test_bad_usage(kafka: str) -> None:
    for argv in (["--from", "yesterday"], ["--group", "a b"], ["--type", "job_exploded"]):
        done = CliRunner().invoke(app, ["subscribe", *argv], env={"AETHERIS_KAFKA": kafka})
        assert done.exit_code == 2
    assert CliRunner().invoke(app, ["subscribe"], env={"AETHERIS_KAFKA": "127.0.0.1:1"}).exit_code == 5
