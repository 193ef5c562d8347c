"""`aetheris dlq` on a real broker: list, show, redrive, and every way to refuse."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.log.replay import replay
from tests.testkit.attempts import fresh

pytestmark = pytest.mark.real

TOPIC = Topic.VERIFICATIONS
PARTITION = 0
SECRET = b"\xffnot for the terminal"


async def write(kafka: str, name: str) -> None:
    """One dead letter, twice, and a fact that can't be redriven."""
    await ensure_topics(kafka, 4)
    log = KafkaLog(kafka)
    await log.start()
    appender = log.appender()
    await appender.start()
    headers = (("dlq_id", name.encode()), ("dlq_reason", b"not JSON"), ("dlq_offset", b"0"), ("ce_id", b"asked"))
    letter = Draft(dead_letters(TOPIC), name.encode(), SECRET, headers, PARTITION)
    fact = Draft(dead_letters(Topic.JOBS_EVENTS), name.encode(), b"{", headers, PARTITION)
    await appender.append([(letter,), (letter,), (fact,)])
    await appender.stop()
    await log.stop()


async def redriven(kafka: str, name: str) -> list[Record]:
    """What lies in the topic by now."""
    log = KafkaLog(kafka)
    await log.start()
    place = (TOPIC, PARTITION)
    try:
        end = (await log.end_offsets([place]))[place]
        return [r async for records in replay(log, place, 0, end) for r in records if r.key == name.encode()]
    finally:
        await log.stop()


def run(*argv: str, kafka: str, answer: str = "") -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["dlq", *argv], env={"AETHERIS_KAFKA": kafka}, input=answer)
    return done.exit_code, done.stdout, done.stderr


def as_json(*argv: str, kafka: str) -> Any:
    code, shown, complaint = run(*argv, "--json", kafka=kafka)
    assert code == 0, shown + complaint
    return json.loads(shown)


def mine(kafka: str, name: str, topic: Topic = TOPIC) -> dict[str, Any]:
    [letter] = [one for one in as_json("ls", "--topic", topic, kafka=kafka) if one["dlq_id"] == name]
    return letter


def test_a_dead_letter_is_listed_shown_and_redriven(kafka: str) -> None:
    name = fresh("cli-dlq")
    asyncio.run(write(kafka, name))
    letter = mine(kafka, name)
    assert (letter["topic"], letter["partition"], letter["reason"]) == (TOPIC, PARTITION, "not JSON")
    place = letter["letter"]

    shown = as_json("show", place, kafka=kafka)
    assert shown["headers"] == {"ce_id": "asked"}
    assert "value" not in shown
    assert "terminal" not in run("show", place, kafka=kafka)[1]
    assert base64.b64decode(as_json("show", place, "--bytes", kafka=kafka)["value"]) == SECRET

    assert run("redrive", place, kafka=kafka, answer="n\n")[0] == 1
    assert asyncio.run(redriven(kafka, name)) == []
    code, _, text = run("redrive", place, kafka=kafka, answer="y\n")
    assert code == 0
    assert place in text
    [again] = asyncio.run(redriven(kafka, name))
    assert (again.value, again.headers) == (SECRET, (("ce_id", b"asked"),))

    assert mine(kafka, name)["redriven"]
    assert place not in as_json("redrive", "--all", "--topic", TOPIC, "--yes", kafka=kafka)["redriven"]
    assert len(asyncio.run(redriven(kafka, name))) == 1

    fact = mine(kafka, name, Topic.JOBS_EVENTS)["letter"]
    assert run("redrive", fact, "--yes", kafka=kafka)[0] == 2
    assert run("show", f"{TOPIC}/{PARTITION}/999999", kafka=kafka)[0] == 2
    assert run("redrive", kafka=kafka)[0] == 2


def test_without_a_broker(tmp_path: Path) -> None:
    assert run("ls", kafka="127.0.0.1:1")[0] == 5
    done = CliRunner().invoke(app, ["dlq", "ls", "--data", str(tmp_path)], env={"AETHERIS_KAFKA": ""})
    assert done.exit_code == 5
