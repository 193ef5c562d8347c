"""A failed job is gone on from in a new one, and nothing that it did is done again (docs/continue.md)."""

import base64
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli import token_files
from aetheris.proofs import bundle, seals
from aetheris.proofs.bundle_zip import ENVELOPE, pack
from aetheris.proofs.evidence import dumps
from aetheris.protocol.base.ids import job_id_of
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import Submit
from aetheris.verifier.keys import load_private_key
from tests.testkit.attempts import fresh
from tests.testkit.bundles import opinions
from tests.testkit.evidence import signer
from tests.testkit.external_server import ExternalServer, until
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.system import REPOSITORY, System
from tests.testkit.tokens import entry_of, headers_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


EVE = "eve"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    folder = tmp_path_factory.mktemp("continue")
    token_files.ensure_tokens(folder / "data")
    with token_files.changed(folder / "data" / "tokens.toml") as entries:
        entries.append(entry_of(EVE, "umbrella"))
    with running_rig(folder) as rig:
        yield rig


REFUSED = {"id": "b", "tool": "poke_refused", "args": {}, "depends_on": ["a"]}


def go_on(system: System, job: str, *nodes: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """(the status, the answer) of a continuation; None of nodes: with the job's own plan."""
    body = {"plan": {"nodes": list(nodes)}} if nodes else {}
    answer = system.api.post(f"/jobs/{job}/continue", json=body)
    return answer.status_code, answer.json()


def failed(system: System, *nodes: dict[str, Any], **options: str) -> str:
    """A job that has failed, and is sealed."""
    job = system.submit(*nodes, options=options)
    system.wait_status(job, "failed", 60)
    system.wait_sealed(job)
    return job


def payments(tag: str, *, third: str, hold: str = "") -> list[dict[str, Any]]:
    """Three payments, one after the other; the third fails with poke_refused."""
    plan = [poke("p1", f"{tag}-1"), poke("p2", f"{tag}-2", "p1")]
    last = poke("p3", f"{tag}-3", "p2", tool=third)
    if third == "poke_refused":
        return [*plan, last | {"args": {}}]
    return [*plan, last | {"args": {"tag": f"{tag}-3", "hold": hold}}]


def test_three_payments_of_which_the_third_failed_are_three_payments(
    system: System, external: ExternalServer, tmp_path: Path
) -> None:
    """The first two are not made again, whatever is killed; and all of it is proven, or what is forged is named."""
    tag, hold = fresh("pay"), fresh("hold")
    held = external.hold(hold)
    job = failed(system, *payments(tag, third="poke_refused"))
    status, taken = go_on(system, job, *payments(tag, third="poke_probeable", hold=hold))
    assert status == 202, taken
    second = taken["job_id"]
    until(lambda: external.count(f"{tag}-3") == 1, 60)
    with system.all_killed():
        held.unlink()
    system.wait_ended([second], 120)
    assert system.job(second)["status"] == "completed"
    system.wait_sealed(second)
    assert [external.count(f"{tag}-{number}") for number in (1, 2, 3)] == [1, 1, 1]
    assert [one["job_id"] for one in system.verified(second)["continued"]] == [job]
    answer = system.api.get(f"/jobs/{second}/evidence")
    assert answer.status_code == 200, answer.text
    for report in opinions(system, answer.content, tmp_path):
        assert report["ok"], report["violations"]
        assert [one["job_id"] for one in report["continued"]] == [job]
    command = [sys.executable, "-m", "aetheris.cli", "verify", second, "--from-log", "--json", "--data"]
    done = subprocess.run(
        [*command, str(system.data)], capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False
    )
    assert (done.returncode, [one["job_id"] for one in json.loads(done.stdout)["continued"]]) == (0, [job])
    other = failed(system, *payments(fresh("other"), third="poke_refused"))
    for forge, rule in FORGERIES.items():
        given = {"stranger": system.api.get(f"/jobs/{other}/evidence").content}
        trojan = resigned(system, answer.content, lambda body, forge=forge, given=given: forge(body, given))
        for report in opinions(system, trojan, tmp_path):
            assert rule in {one["rule"] for one in report["violations"]}
            assert not report["ok"]


def statement_of(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return json.loads(base64.b64decode(json.loads(archive.read(ENVELOPE))["payload"]))


def resigned(system: System, data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """As the operator would forge it, who holds the key that signs bundles."""
    body = statement_of(data)
    change(body["predicate"])
    payload = dumps(body)
    key = load_private_key(system.data / "keys" / "seal.pem")
    signature = dict(signer(key)(seals.pae(bundle.PAYLOAD_TYPE, payload)))
    return pack(bundle.envelope(payload, [signature]))


def without(body: dict[str, Any], _given: dict[str, bytes]) -> None:
    del body["continued"]


def swapped(body: dict[str, Any], given: dict[str, bytes]) -> None:
    stranger = statement_of(given["stranger"])["predicate"]
    body["continued"][0] |= {name: stranger[name] for name in ("records", "blobs", "inclusion")}


def unpaid(body: dict[str, Any], _given: dict[str, bytes]) -> None:
    """The earlier job never made its first payment."""
    one = body["continued"][0]
    one["records"] = [record for record in one["records"] if b'"node_id":"p1"' not in base64.b64decode(record["value"])]


FORGERIES = {without: "continued_missing", swapped: "other_job", unpaid: "adopted_unsettled"}


def test_a_submission_that_is_forged_on_the_topic_runs_nothing(system: System, external: ExternalServer) -> None:
    """Whoever goes round the gateway: its planner reads the job that is continued itself."""
    tag = fresh("forged")
    job = failed(system, poke("a", tag), REFUSED)
    status, taken = go_on(system, job, poke("b", tag, tool="poke_pure"))
    assert status == 202
    system.wait_ended([taken["job_id"]])
    (created,) = system.data_of(taken["job_id"], "job_created")
    reported = created["continues"]
    adopted = [reported["adopted"][0] | {"result_hash": "0" * 64}]
    for number, forged in enumerate(
        (reported | {"adopted": adopted}, reported | {"adopted": []}, reported | {"job_id": "none"})
    ):
        command = Submit.model_validate(
            {
                "job_id": fresh(f"forged-{number}"),
                "by": created["submitted_by"],
                "tenant": created["tenant"],
                "request_hash": "q",
                "plan": created["plan"] | {"nodes": [poke("c", tag, tool="poke_pure")]},
                "continues": forged,
            }
        )
        system.say_as(Party.GATEWAY, Topic.JOBS_COMMANDS, command.job_id, command)
        until(lambda command=command: system.job(command.job_id).get("status") == "failed", 60)
        shown = system.job(command.job_id)
        assert shown["error"].startswith("continues: "), shown
        assert [one["state"] for one in shown["steps"]] == ["pending"]
    assert external.count(tag) == 1


def test_a_continuation_that_never_began_stands_in_nobodys_way(system: System, external: ExternalServer) -> None:
    """Whoever wrote it to the topic, under the very id that the next one would have."""
    tag = fresh("dead")
    job = failed(system, poke("a", tag), REFUSED)
    (created,) = system.data_of(job, "job_created")
    taken = job_id_of(created["tenant"], f"continues {job}")
    body = {name: created[name] for name in ("tenant", "request_hash")} | {"by": "eve", "job_id": taken}
    (planned,) = system.data_of(job, "plan_generated")
    seal = dict.fromkeys(("root", "outcome_hash", "key_id"), "0") | {"event_count": 1}
    forged = body | {"plan": planned["task_graph"], "continues": {"job_id": job, "seal": seal}}
    system.say_as(Party.GATEWAY, Topic.JOBS_COMMANDS, taken, Submit.model_validate(forged))
    until(lambda: system.job(taken).get("status") == "failed", 60)
    left = poke("z", fresh("left"))
    (status, second), (again, same) = go_on(system, job, left), go_on(system, job, left)
    assert (status, again, second["job_id"]) == (202, 202, same["job_id"])
    assert second["job_id"] != taken
    system.wait_ended([second["job_id"]])
    assert system.job(second["job_id"])["status"] == "completed"
    assert external.count(tag) == 1
    system.verified(second["job_id"])
    status, error = go_on(system, job, poke("y", fresh("other")))
    assert (status, error["error"]["details"]["job_id"]) == (409, second["job_id"])


def test_another_tenants_job_is_none_also_when_its_seal_is_named(system: System) -> None:
    job = failed(system, poke("a", "x", tool="poke_pure"), REFUSED)
    sealed = system.wait_sealed(job)
    named = {"job_id": job, "seal": {name: sealed[name] for name in ("event_count", "root", "outcome_hash", "key_id")}}
    for body in ({}, {"plan": {"nodes": [poke("z", "x", tool="poke_pure")]}}, {"continues": named}):
        answer = system.api.post(f"/jobs/{job}/continue", json=body, headers=headers_of(EVE))
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_job")
    assert system.api.post(f"/jobs/{job}/continue", json={"continues": named}).status_code == 400


def test_who_continues_a_job_submits_it_and_approves_none_of_its_calls(
    system: System, external: ExternalServer
) -> None:
    tag = fresh("gate")
    job = failed(system, poke("a", tag, tool="poke_pure"), REFUSED)
    status, taken = go_on(system, job, poke("z", tag, tool="poke_irreversible"))
    assert status == 202
    asked = system.wait_asked(taken["job_id"])
    body = {"request_id": asked["request_id"], "action": "approve"}
    assert system.api.post("/ecs/respond", json=body).status_code == 403
    assert external.count(tag) == 0
    assert system.api.post("/ecs/respond", json=body, headers=system.approver).status_code == 200
    system.wait_ended([taken["job_id"]])
    assert external.count(tag) == 1
    system.verified(taken["job_id"])


def test_what_is_left_runs_on_what_was_done_and_nothing_is_done_again(system: System, external: ExternalServer) -> None:
    tag, later = fresh("first"), fresh("later")
    first, last = poke("a", tag), poke("c", {"$ref": "a#/poked"}, "b", tool="poke_idempotent")
    job = failed(system, first, REFUSED, last)
    status, error = go_on(system, job, poke("a", "other"), poke("b", later))
    assert (status, error["error"]["code"], error["error"]["details"]["nodes"]) == (409, "step_changed", ["a"])
    plan = [first, poke("b", later, "a"), last]
    (status, taken), (again, same) = go_on(system, job, *plan), go_on(system, job, *plan)
    assert (status, again, taken["job_id"], taken["continues"]) == (202, 202, same["job_id"], job)
    system.wait_ended([taken["job_id"]])
    shown = system.job(taken["job_id"])
    assert (shown["status"], shown["continues"]) == ("completed", {"job_id": job, "adopted": ["a"]})
    assert [(one["node_id"], one["state"]) for one in shown["steps"]] == [("b", "completed"), ("c", "completed")]
    assert (external.count(later), external.count(tag)) == (1, 2), "of a once, and what c did with its result"
    made = [one["key"] for one in external.effects(tag=tag)]
    assert made == [f"aetheris:{job}:a:0", f"aetheris:{taken['job_id']}:c:0"]
    system.verified(taken["job_id"])
    status, error = go_on(system, job, first, poke("b", fresh("third")))
    assert (status, error["error"]["code"]) == (409, "continued")
    assert error["error"]["details"]["job_id"] == taken["job_id"]


def test_a_continuation_that_fails_is_continued_itself(system: System, external: ExternalServer) -> None:
    tag = fresh("chain")
    job = failed(system, poke("a", tag), REFUSED)
    command = [sys.executable, "-m", "aetheris.cli", "continue", job, "--json", "--data", str(system.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False)
    assert done.returncode == 0, done.stderr
    second = json.loads(done.stdout)["job_id"]
    system.wait_status(second, "failed", 60)
    until(lambda: go_on(system, second, poke("z", tag, tool="poke_pure"))[0] == 202, 60)
    status, taken = go_on(system, second, poke("z", tag, tool="poke_pure"))
    assert status == 202
    system.wait_ended([taken["job_id"]])
    assert system.job(taken["job_id"])["continues"] == {"job_id": second, "adopted": ["a"]}
    assert external.count(tag) == 1


def test_what_nobody_is_sure_of_is_not_gone_on_from(system: System, external: ExternalServer) -> None:
    tag = fresh("lost")
    job = failed(system, poke("a", tag, tool="poke_lost"), on_in_doubt="fail")
    status, error = go_on(system, job)
    assert (status, error["error"]["code"], error["error"]["details"]["nodes"]) == (409, "unsure", ["a"])
    assert external.count(tag) == 1
    assert go_on(system, "no-such-job")[0] == 404
    body = {"settle": {"a": {"verdict": "happened", "evidence": "it is there", "result": {}}}}
    plan = {"plan": {"nodes": [poke("z", tag, tool="poke_pure")]}}
    assert system.api.post(f"/jobs/{job}/continue", json=body | plan).status_code == 403, "he submitted it"
    answer = system.api.post(f"/jobs/{job}/continue", json=body | plan, headers=system.approver)
    assert answer.status_code == 202, answer.text
    system.wait_ended([answer.json()["job_id"]])
    report = system.verified(answer.json()["job_id"])
    assert [(one["node_id"], one["verdict"], one["by"]) for one in report["settled_by_hand"]] == [
        ("a", "happened", token_files.APPROVER)
    ]
    assert external.count(tag) == 1
