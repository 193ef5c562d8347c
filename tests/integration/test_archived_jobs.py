"""What can be asked about a job can be asked when Kafka has let go of it: each route and each command. Real parts.

Every one is tried before its records are gone and afterwards, and must say the same.
"""

import asyncio
import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis as redis_client
from typer.testing import CliRunner

from aetheris.cli import judgement
from aetheris.cli.app import PLACES, app
from aetheris.gateway.core.access import ROUTES
from aetheris.proofs import bundle
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.admin import delete_below
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ASK_IRREVERSIBLE, ruled_by
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.system import System

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(500)]


_ANEW = re.compile(r'"(as_of|command_id)": ?[^,}]*|"leaves": \d+,\s*"root": "\w+"|"bytes": \d+')
"""What is another each time that something is asked; the log of seals grows by answers of submissions."""


@dataclass(frozen=True)
class ArchivedRig(Rig):
    """A job that has completed with an approval, and one that has failed; both are archived."""

    done: str
    failed: str
    request: str
    execution: str
    effect: str
    """What the external system calls what the first one did."""
    folder: Path

    def path(self, job_id: str) -> Path:
        """Its bundle."""
        [path] = (self.system.data / "blobs" / "archive").glob(f"*/*/{job_id}.*.zip")
        return path

    @property
    def kept(self) -> Path:
        """A bundle of it that somebody has."""
        path = self.folder / "kept.zip"
        if not path.exists():
            path.write_bytes(self.path(self.done).read_bytes())
        return path

    @property
    def shown(self) -> tuple[str, ...]:
        """What of the call is disclosed."""
        return "--external-id", self.effect, "--disclose", "tool,result"

    def let_go(self) -> None:
        """Kafka deletes all that it has of jobs."""
        ends = self.system.ends(str(Topic.JOBS_EVENTS))
        asyncio.run(delete_below(self.system.state().kafka, {place: end for place, end in ends.items() if end}))

    def ask(self, route: str) -> httpx.Response:
        """A request of that route about the job."""
        method, path = route.split(" ")
        known = {"job_id": self.done, "execution_id": self.execution, "request_id": self.request}
        body, about, query = REQUESTS[route]
        job = self.failed if about == "failed" else self.done
        url = re.sub(r"\{(\w+)\}", lambda named: {**known, "job_id": job, "seq": "3"}[named[1]], path)
        data = json.loads(json.dumps(body).replace("REQUEST", self.request).replace("JOB", job)) if body else None
        params = {name: value.replace("JOB", job).replace("EFFECT", self.effect) for name, value in query.items()}
        headers = self.system.approver if about == "approver" else None
        return self.system.api.request(method, url.removeprefix("/api"), json=data, params=params, headers=headers)

    def say(self, *argv: str) -> tuple[int, str]:
        """What a command answers, and ends with."""
        done = CliRunner().invoke(app, [*argv, "--data", str(self.system.data)])
        return done.exit_code, _ANEW.sub("", done.output)


Asked = tuple[Any, str, Mapping[str, str]]
READ: Asked = (None, "done", {})
REASON: Asked = ({"reason": "late"}, "done", {})
VERDICT = {"verdict": "happened", "evidence": "seen"}

REQUESTS: Mapping[str, Asked] = {
    "GET /api/jobs/{job_id}": READ,
    "GET /api/jobs/{job_id}/events": READ,
    "GET /api/jobs/{job_id}/events/{seq}/record": READ,
    "GET /api/jobs/{job_id}/contracts": READ,
    "GET /api/jobs/{job_id}/replay": READ,
    "GET /api/jobs/{job_id}/effects": READ,
    "GET /api/jobs/{job_id}/ledger": READ,
    "GET /api/jobs/{job_id}/trace": READ,
    "GET /api/effects": (None, "done", {"job_id": "JOB"}),
    "GET /api/jobs/{job_id}/leases": READ,
    "GET /api/jobs/{job_id}/verify": READ,
    "GET /api/jobs/{job_id}/inclusion": READ,
    "GET /api/jobs/{job_id}/interim-seals": READ,
    "GET /api/jobs/{job_id}/openings": READ,
    "GET /api/jobs/{job_id}/call-proof": (None, "done", {"external_id": "EFFECT", "disclose": "result"}),
    "GET /api/jobs/{job_id}/stream": READ,
    "GET /api/jobs/{job_id}/evidence": READ,
    "GET /api/ecs/status/{request_id}": READ,
    "POST /api/ecs/respond": ({"request_id": "REQUEST", "action": "approve"}, "approver", {}),
    "POST /api/ecs/continue": ({"request_id": "REQUEST"}, "done", {}),
    "POST /api/jobs/{job_id}/cancel": REASON,
    "POST /api/jobs/{job_id}/pause": REASON,
    "POST /api/jobs/{job_id}/resume": REASON,
    "POST /api/jobs/{job_id}/signal": ({"correlation_key": "k", "payload": 1}, "done", {}),
    "POST /api/jobs/{job_id}/reconcile": READ,
    "POST /api/sessions/{job_id}/calls": ({"body": "b", "tool": "t", "args": {}}, "done", {}),
    "POST /api/sessions/{job_id}/complete": ({"body": "b", "result": 1}, "done", {}),
    "POST /api/jobs/{job_id}/contracts/{execution_id}/cancel": REASON,
    "POST /api/jobs/{job_id}/contracts/{execution_id}/resolve": (VERDICT, "approver", {}),
    "POST /api/jobs/{job_id}/continue": (None, "failed", {}),
    "POST /api/jobs/{job_id}/undo": ({}, "approver", {}),
}
"""Every route that names a job, or a request of one."""

_OTHERS = (
    "seals|tools|freezes|policies|models|limits|audit|workers|approvals|undo|subjects|rules|caller|search|"
    "health|stalled|dead-letters|schedules|budgets|quotas|leases"
)
OF_NO_JOB = frozenset(
    route for route in ROUTES if re.search(rf" /(livez|readyz|api/(jobs$|sessions$|{_OTHERS}))", route)
)

BEGINS_A_JOB = frozenset({"POST /api/jobs/{job_id}/continue", "POST /api/jobs/{job_id}/undo"})
"""Asked once: afterwards."""

COMMANDS: Mapping[str, Callable[[ArchivedRig], tuple[str, ...]]] = {
    "job": lambda rig: (rig.done, "--json"),
    "events": lambda rig: (rig.done, "--json"),
    "result": lambda rig: (rig.done,),
    "contracts": lambda rig: (rig.done, "--json"),
    "replay": lambda rig: (rig.done, "--json"),
    "effects": lambda rig: (rig.done, "--json"),
    "ledger": lambda rig: (rig.done, "--json"),
    "trace": lambda rig: (rig.done, "--json"),
    "why": lambda rig: (rig.done, "--json"),
    "verify": lambda rig: (rig.done, "--json"),
    "export": lambda rig: (rig.done, "--stream", "--out", "-"),
    "amendments": lambda rig: (str(rig.kept), "--json"),
    "receipt": lambda rig: (rig.done, *rig.shown, "--out", str(rig.folder / "call.json"), "--json"),
    "seals": lambda _rig: ("audit", "--json"),
    "approvals": lambda rig: (rig.request, "--json"),
    "approve": lambda rig: (rig.request,),
    "reject": lambda rig: (rig.done,),
    "cancel": lambda rig: (rig.done,),
    "pause": lambda rig: (rig.done,),
    "resume": lambda rig: (rig.done,),
    "signal": lambda rig: (rig.done, "k"),
    "resolve": lambda rig: (rig.done, "--node", "two", "--not-executed", "--evidence", "seen"),
    "reconcile": lambda rig: (rig.done, "--json"),
    "openings": lambda rig: (rig.done,),
}
"""Every command that takes an ID, but for those that begin a job, and for what lies in no log."""

BY_THE_ROUTE = frozenset({"continue", "undo"})
OF_NO_LOG = frozenset(
    {
        *("init", "up", "down", "doctor", "check", "config", "submit", "run", "jobs", "logs", "passkey", "freeze"),
        *(
            "unfreeze",
            "freezes",
            "tools",
            "models",
            "worker",
            "workers",
            "health",
            "stalled",
            "schedules",
            "leases",
            "budgets",
            "quotas",
            "limits",
            "audit",
            "policy",
            "token",
        ),
        *(
            "subscribe",
            "mcp",
            "witness",
            "root",
            "key",
            "dlq",
            "archive",
            "erase",
            "enrol",
            "hold",
            "release",
            "rules",
            "upgrade",
        ),
        *("console", "backup", "restore", "sql", "upgrade", "topics"),
    }
)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ArchivedRig]:
    folder = tmp_path_factory.mktemp("archived")
    env = {"AETHERIS_ARCHIVE_AFTER_DAYS": "0", "AETHERIS_LISTED_FOR_S": "1", **ruled_by(folder, ASK_IRREVERSIBLE)}
    with running_rig(folder, env) as started:
        system = started.system
        done = system.submit(poke("one", fresh("a")), poke("two", fresh("a"), "one", tool="poke_irreversible"))
        request = system.wait_asked(done)["request_id"]
        body = {"request_id": request, "action": "approve"}
        assert system.api.post("/ecs/respond", json=body, headers=system.approver).status_code == 200
        failed = system.submit(
            poke("one", fresh("b")), {"id": "two", "tool": "poke_refused", "args": {}, "depends_on": ["one"]}
        )
        system.wait_ended([done, failed])
        assert (system.job(done)["status"], system.job(failed)["status"]) == ("completed", "failed")
        steps = {step["node_id"]: step["execution_id"] for step in system.job(done)["steps"]}
        rig = ArchivedRig(system, started.external, done, failed, request, steps["two"], _effect(system, done), folder)
        for job_id in (done, failed):
            system.wait_sealed(job_id)
            until(lambda job_id=job_id: _is_over(system, job_id) and _is_archived(system, job_id), 60)
        yield rig


def _effect(system: System, job_id: str) -> str:
    return system.api.get(f"/jobs/{job_id}/effects").json()["effects"][0]["external_id"]


def _is_archived(system: System, job_id: str) -> bool:
    return bool(list((system.data / "blobs" / "archive").glob(f"*/*/{job_id}.*.zip")))


def _is_over(system: System, job_id: str) -> bool:
    with redis_client.Redis.from_url(system.state().redis) as client:
        return client.exists(f"aetheris:gateway:{{lists}}:job:{job_id}") == 0


def test_every_route_and_command_is_known_here() -> None:
    """One that is new says here what it makes of an archived job."""
    assert {*REQUESTS, *OF_NO_JOB} == {*ROUTES}
    assert {*COMMANDS, *BY_THE_ROUTE, *OF_NO_LOG} == {*PLACES}


def test_what_is_asked_of_an_archived_job_is_answered_as_before(rig: ArchivedRig, tmp_path: Path) -> None:
    routes = [route for route in REQUESTS if route not in BEGINS_A_JOB]
    answers = {route: _told(rig.ask(route)) for route in routes}
    said = {name: rig.say(name, *argv(rig)) for name, argv in COMMANDS.items()}
    for route in routes:
        assert answers[route][0] in (200, 202, 400, 409), (route, answers[route])
    from_log = rig.say("verify", rig.done, "--from-log", "--json")
    assert (from_log[0], json.loads(from_log[1])["ok"]) == (0, True), from_log
    rig.let_go()
    for route in routes:
        assert _told(rig.ask(route)) == answers[route], route
    for name, argv in COMMANDS.items():
        assert rig.say(name, *argv(rig)) == said[name], name
    assert rig.say("verify", rig.done, "--from-log", "--json") == from_log
    exported = tmp_path / "again.zip"
    assert rig.say("export", rig.done, "--out", str(exported))[0] == 0
    assert bundle.judge(exported.read_bytes(), judgement.trusted_keys(None, rig.system.data))["ok"]
    _goes_on(rig)
    _is_undone(rig)
    _is_named_where_it_is_missing(rig)


def _told(answer: httpx.Response) -> tuple[int, str | None]:
    """What an answer says; of a bundle, and a proof in a log that grows, that there is one."""
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    return answer.status_code, _ANEW.sub("", answer.text) if is_json else None


def _goes_on(rig: ArchivedRig) -> None:
    """Planner and gateway both read the failed job in the archive, and nothing of it is done again."""
    answer = rig.ask("POST /api/jobs/{job_id}/continue")
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["job_id"]
    rig.system.wait_ended([job_id])
    rig.system.wait_sealed(job_id)
    assert rig.system.verified(job_id)["continued"][0]["job_id"] == rig.failed


def _is_undone(rig: ArchivedRig) -> None:
    answer = rig.ask("POST /api/jobs/{job_id}/undo")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "nothing_to_undo"), answer.text


def _is_named_where_it_is_missing(rig: ArchivedRig) -> None:
    path = rig.path(rig.done)
    whole = path.read_bytes()
    for harm, code in ((None, "archive_missing"), (whole[:-1] + b"x", "archive_corrupt")):
        path.unlink(missing_ok=True)
        if harm is not None:
            path.write_bytes(harm)
        for route in ("GET /api/jobs/{job_id}", "GET /api/jobs/{job_id}/events", "GET /api/jobs/{job_id}/verify"):
            answer = rig.ask(route)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, code), (route, answer.text)
        for argv in (("verify", rig.done, "--from-log"), ("seals", "audit")):
            assert (rig.say(*argv)[0], code in rig.say(*argv)[1]) == (1, True)
    path.write_bytes(whole)
    assert rig.system.verified(rig.done)["ok"]
