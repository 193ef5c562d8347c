"""A policy is activated on the whole system: behind its answer it decides in every partition, whoever dies."""

import hashlib
import json
import os
import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from aetheris.cli import token_files
from aetheris.cli.app import app
from aetheris.cli.embedded.plan import Plan
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import PolicyActivation, PolicyAnswer
from aetheris.protocol.messages.events import PolicyAllowed
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST, ASK_IRREVERSIBLE
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.services import asked

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PARTITIONS = 2
ROGUE = "/tool_executor/rogue"
DENY = '[[rules]]\nname = "no"\ntools = ["poke_probeable"]\neffect = "deny"\n' + ALLOW_REST


@dataclass(frozen=True)
class PolicyRig(Rig):
    """Somebody administers it."""

    def activate(self, policy: str, who: dict[str, str] | None = None) -> httpx.Response:
        body = {"policy": policy, "reason": "a test"}
        return self.system.api.post("/policies", json=body, headers=who or self.system.approver, timeout=60)

    def shown(self) -> dict[str, Any]:
        return self.system.api.get("/policies", headers=self.system.approver).json()

    def submitted(self) -> list[tuple[str, str]]:
        """Jobs in every partition, each with its tag."""
        found: list[tuple[str, str]] = []
        while len({partition_of(job, PARTITIONS) for job, _ in found}) < PARTITIONS:
            tag = fresh("policy")
            found.append((self.system.submit(poke("a", tag)), tag))
        return found


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[PolicyRig]:
    with running_rig(tmp_path_factory.mktemp("policies"), {"AETHERIS_PARTITIONS": str(PARTITIONS)}) as rig:
        yield PolicyRig(rig.system, rig.external)


def denied(rig: PolicyRig, number: int) -> None:
    jobs = rig.submitted()
    rig.system.wait_ended([job for job, _ in jobs])
    for job, tag in jobs:
        (rejected,) = rig.system.events(job, "invocation_rejected")
        assert (rejected["data"]["activation"], rig.external.count(tag)) == (number, 0)


def test_it_decides_in_every_partition_though_the_ledger_is_killed_before_it_answers(rig: PolicyRig) -> None:
    before = rig.submitted()
    rig.system.wait_ended([job for job, _ in before])
    assert [rig.external.count(tag) for _, tag in before] == [1] * len(before)
    assert rig.shown() == {"active": None, "history": []}
    ledger = rig.system.pid("ledger-0")
    os.kill(ledger, signal.SIGSTOP)
    with ThreadPoolExecutor() as people:
        answering = people.submit(rig.activate, DENY)
        until(lambda: (rig.shown()["active"] or {}).get("answered") == 0, 20)
        os.kill(ledger, signal.SIGKILL)
        answer = answering.result()
    until(lambda: rig.shown()["active"]["answered"] == PARTITIONS, 60)
    assert answer.status_code in (200, 202), answer.text
    again = rig.activate(DENY)
    assert (again.status_code, again.json()["number"], again.json()["answered"]) == (200, 1, PARTITIONS), again.text
    denied(rig, 1)
    rig.system.kill("ledger-0")
    rig.system.wait_ready()
    denied(rig, 1)


def test_what_is_refused_changes_nothing(rig: PolicyRig) -> None:
    before = rig.shown()
    broken = rig.activate('[[rules]]\nname = "x"\ntools = ["*"]\neffect = "alow"\n')
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "bad_policy")
    assert "line 4" in broken.json()["error"]["message"]
    agent = {"Authorization": f"Bearer {token_files.saved(rig.system.data, token_files.AGENT)}"}
    assert rig.activate(ALLOW_REST, agent).status_code == 403
    assert rig.shown() == before


NESTED = "args.l.exists(x, args.l.exists(y, x == y))"
HOSTILE = {
    "long": ALLOW_REST + "#" * 300_000,
    "deep": ALLOW_REST + "x = " + "[" * 50_000 + "]" * 50_000,
    "dotted": ".".join("a" for _ in range(50_000)) + " = 1\n" + ALLOW_REST,
    "number": ALLOW_REST + "x = " + "9" * 50_000,
    "loops": f"{ALLOW_REST}when = '{NESTED}'\n",
    "condition": f"{ALLOW_REST}when = '{'(' * 900}true{')' * 900}'\n",
    "map": f"{ALLOW_REST}when = 'args.l.map(x, x).size() > 1'\n",
    "nul": ALLOW_REST + "x = '\0'",
    "surrogate": ALLOW_REST + "# \ud800",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_that_is_posted_as_a_policy_ends_a_ledger(rig: PolicyRig, name: str) -> None:
    before = rig.shown()
    body = json.dumps({"policy": HOSTILE[name], "reason": "a test"}).encode()
    for content in (body, body.replace(b"policy", b"\xff\xfe")):
        headers = {**rig.system.approver, "Content-Type": "application/json"}
        refused = rig.system.api.post("/policies", content=content, headers=headers, timeout=60)
        assert refused.status_code in (400, 413), refused.text
        assert refused.json()["error"]["message"]
    assert rig.shown() == before
    ((job, tag), *_) = rig.submitted()
    rig.system.wait_ended([job])
    assert rig.external.count(tag) in (0, 1)  # as the policy says that decides


def test_whom_the_policy_names_ends_workers_and_freezes_and_releases_tools_and_nobody_else(rig: PolicyRig) -> None:
    words, who = ("worker_end", "tool_release", "unfreeze"), rig.system.approver
    (name, *_) = (one["worker_id"] for one in rig.system.api.get("/workers", headers=who).json()["workers"])
    scope = {"tool": "poke_probeable", "reason": "a test"}
    said = {f"/workers/{name}/end": {"evidence": "a test", "incarnation": "nobody"}, "/freezes/end": scope}
    said |= {"/tools/poke_probeable/release": {"reason": "mended"}}

    def say(path: str) -> httpx.Response:
        return rig.system.api.post(path, json=said[path], headers=who, timeout=60)

    assert rig.system.api.post("/freezes", json=scope, headers=who, timeout=60).status_code == 200
    others = "".join(f'{word} = {{by = ["somebody-else"]}}\n' for word in words)
    assert rig.activate(f"{ALLOW_REST}[operate]\n{others}").status_code == 200
    for path in said:
        refused = say(path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_named"), refused.text
        assert "others are named to" in refused.json()["error"]["message"]
    anybody = "".join(f'{word} = {{by = ["*"], kinds = ["person"]}}\n' for word in words)
    assert rig.activate(f"{ALLOW_REST}[operate]\n{anybody}").status_code == 200
    assert [say(path).status_code for path in said] == [409, 200, 200]


def test_an_activation_is_the_gateways_and_an_answer_the_ledgers(rig: PolicyRig) -> None:
    """By who may write to the topic: the next number, and answers of every partition to a true one."""
    before = rig.shown()
    number = (before["active"] or {"number": 0})["number"] + 1
    policy = f"# {fresh('forged')}\n{ALLOW_REST}"
    policy_hash = hashlib.sha256(policy.encode()).hexdigest()
    forged = PolicyActivation(number=number, policy=policy, policy_hash=policy_hash, by="eve", at="now")
    rig.system.forge(Topic.POLICIES, forged.key, forged, ROGUE)
    rig.system.say_as(Party.LEDGER, Topic.POLICIES, forged.key, forged)
    logs = [rig.system.data / "logs" / f"{service}-0.log" for service in ("gateway", "ledger")]
    until(lambda: all(log.read_text().count('"policy_activation"') >= 2 for log in logs), 60)
    assert rig.shown() == before
    with rig.system.asleep("ledger-0"), ThreadPoolExecutor() as people:
        answering = people.submit(rig.activate, DENY + "# again\n")
        until(lambda: (rig.shown()["active"] or {}).get("number") == number, 20)
        for partition in range(PARTITIONS):
            answer = PolicyAnswer(number=number, partition=partition)
            rig.system.forge(Topic.POLICIES, answer.key, answer, ROGUE)
        until(lambda: '"policy_answer"' in logs[0].read_text(), 60)
        shown = rig.shown()["active"]
        assert (shown["answered"], shown["by"] != "eve") == (0, True)
        os.kill(rig.system.pid("ledger-0"), signal.SIGCONT)
        answered = answering.result()
    assert (answered.status_code, answered.json()["answered"]) == (200, PARTITIONS), answered.text
    denied(rig, number)


def test_a_run_that_was_granted_before_makes_no_call_behind_the_answer_that_the_policy_denies(rig: PolicyRig) -> None:
    assert rig.activate(f"# {fresh('before')}\n{ALLOW_REST}").status_code == 200
    tags = [fresh("run") for _ in range(4)]
    held = [rig.external.hold(tag) for tag in tags]
    jobs = [
        rig.system.submit(poke("a", tag, tool="poke_idempotent", hold=tag), poke("b", f"{tag}-b", "a")) for tag in tags
    ]
    for tag in tags:
        rig.external.wait_for(1, tag)
    answer = rig.activate(f"# {fresh('behind')}\n{DENY}")
    assert (answer.status_code, answer.json()["answered"]) == (200, PARTITIONS), answer.text
    for file in held:
        file.unlink()
    rig.system.wait_ended(jobs)
    for tag, job in zip(tags, jobs, strict=True):
        (rejected,) = rig.system.events(job, "invocation_rejected")
        said = rejected["data"]["node_id"], rejected["data"]["activation"]
        assert (said, rig.external.count(f"{tag}-b")) == (("b", answer.json()["number"]), 0)


def test_of_two_at_once_each_that_is_told_so_decides(rig: PolicyRig, tmp_path: Path) -> None:
    number = (rig.shown()["active"] or {"number": 0})["number"]
    texts = [f"# {fresh('at-once')}\n{ALLOW_REST}" for _ in range(2)]
    with ThreadPoolExecutor(2) as people:
        answers = list(people.map(rig.activate, texts))
    codes = sorted(answer.status_code for answer in answers)
    assert codes in ([200, 409], [200, 200]), [answer.text for answer in answers]
    assert rig.shown()["active"]["number"] in (number + 1, number + 2)
    file = tmp_path / "policy.toml"
    file.write_text(DENY)
    local = ["--data", str(rig.system.data), "--as", token_files.APPROVER]
    told = CliRunner().invoke(app, ["policy", "activate", str(file), *local])
    assert (told.exit_code, "2 of 2 partitions" in told.stdout) == (0, True), told.output
    shown = CliRunner().invoke(app, ["policy", "show", *local])
    assert "poke_probeable" in shown.stdout
    denied(rig, rig.shown()["active"]["number"])


def test_a_job_that_names_an_activation_which_is_nowhere_is_held_and_told_of(rig: PolicyRig) -> None:
    """Whoever said so with the ledger's key: what that lets through is not granted by who does not know the policy."""
    assert rig.activate(ASK_IRREVERSIBLE).status_code == 200
    tag = fresh("nowhere")
    job = rig.system.submit(poke("a", tag, tool="poke_irreversible"))
    asked_for = rig.system.wait_asked(job)["request_id"]
    (request,) = rig.system.data_of(job, "approval_requested")
    about = ("job_id", "node_id", "idempotency_key", "rule", "args_hash", "tool_version")
    named = {"policy_hash": "0" * 64, "activation": 9_999}
    rig.system.append_as(Party.LEDGER, PolicyAllowed.model_validate({name: request[name] for name in about} | named))
    ledger = next(part for part in Plan.load(rig.system.data).parts if part.name == "ledger-0")
    until(lambda: "9999" in str(asked(int(ledger.target), "/readyz")[1]), 60)
    log = (rig.system.data / "logs" / "ledger-0.log").read_text()
    assert "jobs are held: their decisions name an activation that the topic of policies does not have" in log
    yes = {"request_id": asked_for, "action": "approve"}
    assert rig.system.api.post("/ecs/respond", json=yes, headers=rig.system.approver).status_code == 200
    rig.system.completed(poke("c", fresh("after"), tool="poke_pure"))
    assert (rig.external.count(tag), rig.system.types(job, "tool_invocation_started")) == (0, [])
