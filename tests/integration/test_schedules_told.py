"""What starts jobs, told by a real scheduler to a real gateway: when next, what came of it, and its file's faults."""

import json
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client

from aetheris.cli import token_files
from aetheris.cli.embedded.ports import free_port
from aetheris.protocol.base.principals import Role
from tests.integration.test_scheduler_system import plan, scheduler
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig
from tests.testkit.tokens import entry_of, headers_of

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400)]

PATIENCE_S = 120.0
OFTEN = '[[schedules]]\nname = "{}"\ncron = "* * * * *"\nplan = "plan.json"\n'
NEVER_FILLED = '[[schedules]]\nname = "{}"\ncron = "* * * * *"\nplan = "other.json"\n'
HOOK = '[[webhooks]]\nname = "{}"\nsecret = "key"\nplan = "plan.json"\n'


@pytest.fixture(scope="module", autouse=True)
def _people(rig: Rig) -> None:
    with token_files.changed(rig.system.data / "tokens.toml") as entries:
        entries.append(entry_of("reader", roles=[Role.READ]))
        entries.append(entry_of("submitter", roles=[Role.SUBMIT]))
        entries.append(entry_of("eve", "another"))
    until(lambda: rig.system.api.get("/caller", headers=headers_of("eve")).status_code == 200, PATIENCE_S)


def shown(rig: Rig, who: str = "reader") -> list[Any]:
    answer = rig.system.api.get("/schedules", headers=headers_of(who))
    assert answer.status_code == 200, answer.text
    return answer.json()["schedulers"]


def start_of(rig: Rig, name: str) -> dict[str, Any]:
    """An entry of this name, as it is shown; empty before it is."""
    found = [start for one in shown(rig) for start in one["starts"] if start["name"] == name]
    return found[0] if found else {}


def test_when_it_is_due_next_and_what_came_of_the_last_is_shown(rig: Rig, tmp_path: Path) -> None:
    often, bad, hook = fresh("often"), fresh("bad"), fresh("hook")
    (tmp_path / "plan.json").write_text(plan("/due"))
    (tmp_path / "other.json").write_text(plan("/nowhere"))
    (tmp_path / "key").write_text("a key that signs deliveries")
    starts = OFTEN.format(often) + NEVER_FILLED.format(bad) + HOOK.format(hook)
    with scheduler(rig, tmp_path, starts, AETHERIS_HTTP_PORT=str(free_port())):
        until(lambda: (start_of(rig, often).get("last") or {}).get("status") == "completed", PATIENCE_S)
        found = start_of(rig, often)
        assert found["next_at"] > found["last"]["at"]
        assert found["last"]["job_id"] in {one["job_id"] for one in rig.system.api.get("/jobs").json()["jobs"]}
        until(lambda: (start_of(rig, bad).get("refused") or {}).get("code") == "occasion", PATIENCE_S)
        assert start_of(rig, bad).get("last") is None
        assert start_of(rig, hook)["kind"] == "webhook"
        (told,) = [one for one in shown(rig) if one["scheduler"] == "scheduler-0"]
        assert (told["by"], told["is_heard"]) == ("scheduler", True)
        assert [one for one in shown(rig, "eve") if one["by"] == "scheduler"] == [], "another tenant sees none of it"
        with redis_client.Redis.from_url(rig.system.state().redis) as client:
            client.flushall()
        until(lambda: bool(start_of(rig, often).get("last")), PATIENCE_S)


def test_a_file_that_can_not_be_used_is_told_with_its_line(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan("/due"))
    with scheduler(rig, tmp_path, '[[schedules]]\nname = "x"\ncron = "often"\nplan = "plan.json"\n', "scheduler-9"):
        until(lambda: any(one["scheduler"] == "scheduler-9" for one in shown(rig)), PATIENCE_S)
    (told,) = [one for one in shown(rig) if one["scheduler"] == "scheduler-9"]
    assert "starts.toml:3" in told["fault"]
    assert "cron: five fields" in told["fault"]
    assert told["starts"] == []


def test_who_lies_tells_of_nobody_elses_schedulers_or_jobs(rig: Rig) -> None:
    other = rig.system.submit({"id": "a", "tool": "poke_pure", "args": {"tag": fresh("theirs")}})
    last = {"job_id": other, "at": "2026-03-01T00:00:00Z", "occasion": "mine"}
    entry = {"kind": "schedule", "name": "mine", "when": "always", "last": last}
    as_who = headers_of("submitter")
    said = rig.system.api.post("/schedules", json={"scheduler": "scheduler-0", "starts": [entry]}, headers=as_who)
    assert said.status_code == 200, said.text
    mine = [one for one in shown(rig) if one["by"] == "submitter"]
    assert [one["starts"][0]["last"].get("status") for one in mine] == [None], "it is no job of the liar's"
    many = {"scheduler": "s", "starts": [{**entry, "last": None}] * 201}
    wrong = ({"scheduler": "a b"}, {"scheduler": "s", "fault": "x" * 3_000}, {"scheduler": "s", "more": 1}, many)
    for body in wrong:
        assert rig.system.api.post("/schedules", json=body, headers=as_who).status_code == 400, json.dumps(body)[:80]
    for name in range(20):
        said = rig.system.api.post("/schedules", json={"scheduler": f"s-{name}"}, headers=as_who)
    assert said.json()["error"]["code"] == "too_many_schedulers"
    assert len([one for one in shown(rig) if one["by"] == "submitter"]) == 8
    refused = rig.system.api.post("/schedules", json={"scheduler": "s"}, headers=headers_of("reader"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_role")
