"""Dead letters on the whole system: listed, shown, redriven by the API and `aetheris dlq`, and every way to refuse."""

import base64
import json
from collections.abc import Generator
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from tests.testkit.approvers import running_approvers
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_ALL
from tests.testkit.rig import Rig, poke
from tests.testkit.system import System
from tests.testkit.tokens import entry_of, headers_of, write_tokens

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

COMMANDS = Topic.JOBS_COMMANDS
SECRET = b"\xffnot for the terminal"
OPERATES = (Role.OPERATE, Role.READ_PAYLOADS)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_approvers(tmp_path_factory.mktemp("dead"), ALLOW_ALL) as rig:
        write_tokens(
            rig.system.data,
            {"ann": "default", "bob": "default"},
            entry_of("operator", roles=OPERATES),
            entry_of("neighbour", "other", roles=OPERATES),
            entry_of("robot", roles=OPERATES, kind=PrincipalKind.AGENT),
            entry_of("reader", roles=[Role.READ, Role.READ_PAYLOADS]),
        )
        yield rig


def say(system: System, *argv: str, answer: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(app, ["dlq", *argv, "--data", str(system.data)], input=answer)
    return done.exit_code, done.stdout


def listed(system: System, topic: str) -> list[dict[str, Any]]:
    answer = system.api.get("/dead-letters", params={"topic": topic}, headers=headers_of("operator"))
    return answer.raise_for_status().json()["dead_letters"]


def command_of(system: System, job_id: str) -> Record:
    return next(one for one in system.records(COMMANDS) if one.key == job_id.encode())


def put_aside(system: System, record: Record) -> str:
    """As a planner of an earlier version would have done it; the letter's place."""
    at = str(record.partition), str(record.offset)
    dlq_id = derived("dlq", record.topic, *at)
    own = (("dlq_id", dlq_id.encode()), ("dlq_reason", b"an earlier version"), ("dlq_offset", at[1].encode()))
    name = dead_letters(record.topic)
    system.write([(Draft(name, record.key or b"", record.value, own + record.headers, record.partition),)])
    letter = next(one for one in system.records(name) if one.header("dlq_id") == dlq_id.encode())
    return f"{record.topic}/{record.partition}/{letter.offset}"


def redrive(system: System, letter: str, who: str) -> tuple[int, dict[str, Any]]:
    path = f"/dead-letters/{letter}/redrive"
    answer = system.api.post(path, json={"reason": "upgraded"}, headers=headers_of(who))
    return answer.status_code, answer.json()


def test_what_a_planner_puts_aside_is_listed_with_its_bytes_and_is_not_redriven_unread(system: System) -> None:
    key = fresh("garbage")
    headers = (("ce_id", b"x"), ("ce_type", b"io.aetheris.cancel.v1"))
    system.write([(Draft(COMMANDS, key.encode(), SECRET, headers, 0),)])
    mine = lambda: [one for one in listed(system, COMMANDS) if one["type"] == "io.aetheris.cancel.v1"]  # noqa: E731
    until(lambda: bool(mine()), 60)
    (letter,) = mine()
    place = f"{letter['topic']}/{letter['partition']}/{letter['offset']}"
    assert (letter["redrive"], letter["redriven_at"]) == ("again", None)

    shown = system.api.get(f"/dead-letters/{place}", headers=headers_of("ann")).json()
    assert base64.b64decode(shown["value"]) == SECRET
    assert base64.b64decode(shown["key"]) == key.encode()
    code, text = say(system, "show", place)
    assert (code, "terminal" in text) == (0, False)
    for who in ("operator", "neighbour"):  # nobody can tell whose it is
        assert system.api.get(f"/dead-letters/{place}", headers=headers_of(who)).status_code == 403
    status, refused = redrive(system, place, "ann")
    assert (status, refused["error"]["code"]) == (409, "not_decodable")
    assert len([one for one in system.records(COMMANDS) if one.key == key.encode()]) == 1


def test_a_command_that_is_read_again_is_taken_once(rig: Rig) -> None:
    system, tag = rig.system, fresh("redriven")
    job = system.completed(poke("pay", tag))
    letter = put_aside(system, command_of(system, job))
    for who in ("neighbour", "robot", "reader"):
        assert redrive(system, letter, who)[0] == 403, who
    answers = [redrive(system, letter, who) for who in ("operator", "operator", "ann")]
    assert {(status, one["redriven_by"]) for status, one in answers} == {(200, "operator")}
    copies = [one for one in system.records(COMMANDS) if one.key == job.encode()]
    assert len({(one.value, one.headers) for one in copies}) == 1
    assert len(copies) == 2

    later = system.completed(poke("pay", fresh("later")))  # the partition goes on
    assert system.job(later)["status"] == "completed"
    assert system.types(job, "job_created") == ["job_created"]
    assert rig.external.count(tag) == 1
    told = system.api.get("/audit", headers=headers_of("ann")).json()["records"]
    asked = [one for one in told if one.get("route", "").endswith("/redrive") and one["status"] < 300]
    said = [(one["subject"], one["status"]) for one in asked]
    assert said == [(letter, 200)] * 3


def test_after_the_gateway_died_it_is_still_known_as_redriven(system: System) -> None:
    job = system.completed(poke("pay", fresh("killed")))
    letter = put_aside(system, command_of(system, job))
    first = redrive(system, letter, "operator")[1]
    system.kill("gateway-0")
    system.wait_ready(60)
    assert redrive(system, letter, "operator") == (200, first)
    assert len([one for one in system.records(COMMANDS) if one.key == job.encode()]) == 2


def test_by_the_command_line(system: System) -> None:
    job = system.completed(poke("pay", fresh("by-command")))
    letter = put_aside(system, command_of(system, job))
    code, text = say(system, "ls", "--topic", COMMANDS, "--json")
    assert code == 0, text
    assert letter.split("/")[2] in {str(one["offset"]) for one in json.loads(text)["dead_letters"]}
    assert say(system, "show", letter, "--bytes")[0] == 0
    assert say(system, "redrive", letter, "--reason", "upgraded", answer="n\n")[0] == 1
    assert len([one for one in system.records(COMMANDS) if one.key == job.encode()]) == 1
    code, text = say(system, "redrive", "--all", "--reason", "upgraded", "--yes", "--json")
    told = json.loads(text)
    assert letter in [f"{one['topic']}/{one['partition']}/{one['offset']}" for one in told["redriven"]]
    assert (code, len(told["refused"])) == (1, 1)  # what a planner here put aside hides no other
    assert say(system, "redrive", f"{COMMANDS}/0/999999", "--reason", "r", "--yes")[0] != 0
    assert say(system, "redrive", "--reason", "r")[0] == 2


def test_what_is_said_again_by_itself_is_refused_by_name(system: System) -> None:
    job = system.completed(poke("pay", fresh("asked")))
    record = next(one for one in system.records(Topic.TOOLS_REQUESTS) if one.key == job.encode())
    status, refused = redrive(system, put_aside(system, record), "ann")
    assert (status, refused["error"]["code"]) == (409, "not_redrivable")
    assert Topic.TOOLS_REQUESTS in refused["error"]["message"]
