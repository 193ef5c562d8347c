"""Sessions on the whole system: counted outside, killed, taken over, and every job's proof holds."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from aetheris.sdk.client import Client, Conflict
from aetheris.sdk.client.blocking_runs import SessionRun
from aetheris.sdk.workflows import OutcomeUnknown, ToolFailed, WorkflowDiverged, WorkflowSuperseded
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ASK_IRREVERSIBLE, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.session_client import TOOLS

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

WAIT = {"prefer": "wait=30"}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    folder = tmp_path_factory.mktemp("sessions")
    env = {"AETHERIS_WORKFLOW_IDLE_S": "2"}
    with running_rig(folder, env | ruled_by(folder, ASK_IRREVERSIBLE)) as rig:
        yield rig


@pytest.fixture
def client(rig: Rig) -> Generator[Client]:
    with Client(address(rig), token(rig)) as client:
        yield client


def address(rig: Rig) -> str:
    return str(rig.system.api.base_url).removesuffix("/").removesuffix("/api")


def token(rig: Rig) -> str:
    return rig.system.api.headers["authorization"].removeprefix("Bearer ")


def attach(client: Client, run_id: str, **more: Any) -> SessionRun:
    return client.run(run_id, tools=TOOLS, **more).__enter__()


def program(rig: Rig, run_id: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> "subprocess.Popen[str]":
    """A process of a client's own."""
    argv = [sys.executable, "-m", "tests.testkit.session_client", run_id, json.dumps(calls)]
    env = {**os.environ, "AETHERIS_URL": address(rig), "AETHERIS_TOKEN": token(rig)}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)


def test_a_run_over_plain_http_calls_and_completes_and_its_proof_holds(rig: Rig) -> None:
    tag = fresh("http")

    def post(path: str, **body: Any) -> dict[str, Any]:
        response = rig.system.api.post(f"/sessions{path}", json=body, headers=WAIT, timeout=60)
        assert response.status_code == 200, response.text
        return response.json()

    began = post("", run_id=tag, tools=list(TOOLS))
    job, body = began["job_id"], began["body"]
    once = {"body": body, "tool": "poke_idempotent", "args": {"tag": f"{tag}-1"}}
    first = post(f"/{job}/calls", **once)
    assert (first["status"], first["earlier"]) == ("success", False)
    assert post(f"/{job}/calls", **once) == {**first, "earlier": True}
    assert post(f"/{job}/calls", **once, occurrence=2)["node_id"] != first["node_id"]
    assert post(f"/{job}/calls", body=body, tool="poke_refused", args={})["status"] == "failed"
    assert post(f"/{job}/complete", body=body, result={"done": 1})["status"] == "completed"
    assert rig.external.count(f"{tag}-1") == 2
    rig.system.verified(job)
    assert rig.system.job(job)["result"]["session"] == {"done": 1}
    again = post("", run_id=tag, tools=list(TOOLS))
    assert (again["status"], again["result"]) == ("completed", {"done": 1})
    assert post(f"/{job}/calls", **{**once, "body": again["body"]}) == {**first, "earlier": True}


def test_a_client_killed_between_call_and_answer_runs_again_with_the_same_result_and_one_effect(
    rig: Rig, client: Client
) -> None:
    tag = fresh("killed")
    calls = [("poke_idempotent", {"tag": f"{tag}-1"}), ("patient_probeable", {"tag": f"{tag}-2", "hold": tag})]
    held = rig.external.hold(tag)
    with program(rig, tag, calls) as killed:
        rig.external.wait_for(1, f"{tag}-2")
        killed.send_signal(signal.SIGKILL)
        said = killed.communicate()[0].splitlines()
    assert len(said) == 1, "it heard of the first call, and not of the second"
    held.unlink()
    with program(rig, tag, [*calls, ("poke_probeable", {"tag": f"{tag}-3"})]) as again:
        heard = again.communicate(timeout=60)[0].splitlines()
    assert again.returncode == 0
    assert heard[0] == said[0]
    assert [rig.external.count(f"{tag}-{number}") for number in (1, 2, 3)] == [1, 1, 1]
    run = attach(client, tag)
    assert (run.status, run.result) == ("completed", "done")
    rig.system.verified(run.job_id)


@pytest.mark.parametrize("part", ["gateway-0", "ledger-0", "executor-0", "planner-0"])
def test_whichever_service_is_killed_in_a_call_there_is_one_effect(rig: Rig, client: Client, part: str) -> None:
    tag = fresh("service")
    run = attach(client, tag)
    run.call("poke_idempotent", tag=f"{tag}-1")
    held = rig.external.hold(tag)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(run.call, "patient_probeable", tag=f"{tag}-2", hold=tag)
        rig.external.wait_for(1, f"{tag}-2")
        rig.system.kill(part)
        held.unlink()
        assert second.result(60)
    run.call("poke_probeable", tag=f"{tag}-3")
    run.complete("done")
    assert [rig.external.count(f"{tag}-{number}") for number in (1, 2, 3)] == [1, 1, 1]
    rig.system.verified(run.job_id)


def test_of_two_processes_on_one_run_the_first_is_superseded_within_a_call(rig: Rig, client: Client) -> None:
    tag = fresh("two")
    one = attach(client, tag)
    one.call("poke_idempotent", tag=f"{tag}-1")
    two = attach(client, tag)
    with pytest.raises(WorkflowSuperseded):
        one.call("poke_idempotent", tag=f"{tag}-2")
    with pytest.raises(WorkflowSuperseded):
        one.complete("one")
    with pytest.raises(WorkflowDiverged, match="has not asked for"):
        two.call("poke_idempotent", tag=f"{tag}-2")
    two.call("poke_idempotent", tag=f"{tag}-1")
    two.call("poke_idempotent", tag=f"{tag}-2")
    two.complete()
    assert [rig.external.count(f"{tag}-{number}") for number in (1, 2)] == [1, 1]
    rig.system.verified(two.job_id)


def test_a_models_equal_call_is_made_once_and_once_more_only_by_its_name(rig: Rig, client: Client) -> None:
    tag = fresh("model")
    first = attach(client, tag).model_call("poke_idempotent", {"tag": tag})
    run = attach(client, tag)
    again = run.model_call("poke_idempotent", {"tag": tag})
    assert (again.node_id, again.result, again.earlier) == (first.node_id, first.result, True)
    assert rig.external.count(tag) == 1
    assert run.model_call("poke_idempotent", {"tag": f"{tag}-new"}).status == "success", "it need not repeat itself"
    repeated = run.model_call("poke_idempotent", {"tag": tag}, repeat_of=first.node_id)
    assert repeated.status == "success"
    assert rig.external.count(tag) == 2
    run.complete()
    rig.system.verified(run.job_id)


def test_processes_beside_each_other_make_a_models_call_once_though_the_gateway_dies(rig: Rig, client: Client) -> None:
    tag = fresh("beside")
    runs = [attach(client, tag), attach(client, tag, beside=True)]
    held, args = rig.external.hold(tag), {"tag": f"{tag}-1", "hold": tag}
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(run.model_call, "patient_probeable", args) for run in runs]
        rig.external.wait_for(1, f"{tag}-1")
        rig.system.kill("gateway-0")
        held.unlink()
        said = [one.result(60) for one in asked]
    assert {(one.node_id, one.status) for one in said} == {(said[0].node_id, "success")}
    assert rig.external.count(f"{tag}-1") == 1
    with pytest.raises(Conflict, match="by_model"):
        runs[1].call("poke_idempotent", tag=f"{tag}-2")
    runs[0].call("poke_idempotent", tag=f"{tag}-2")
    runs[0].complete("done")
    rig.system.verified(runs[0].job_id)


def test_what_fails_surely_and_what_nobody_knows_are_told_apart(rig: Rig, client: Client) -> None:
    run = attach(client, fresh("fails"))
    with pytest.raises(ToolFailed):
        run.call("poke_refused")
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(run.call, "poke_lost", tag=fresh("lost"))
        rig.system.wait_status(run.job_id, "waiting")
        node = _parked(rig, run.job_id)
        assert rig.system.resolve(run.job_id, node, "not_executed").status_code == 200
        with pytest.raises((ToolFailed, OutcomeUnknown)):
            lost.result(60)
    run.complete()


def test_an_irreversible_call_waits_for_a_human(rig: Rig, client: Client) -> None:
    tag = fresh("asks")
    run = attach(client, tag)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(run.call, "poke_irreversible", tag=tag)
        request = rig.system.wait_asked(run.job_id)
        assert rig.external.count(tag) == 0
        answer = {"request_id": request["request_id"], "action": "approve"}
        assert rig.system.api.post("/ecs/respond", json=answer, headers=rig.system.approver).status_code == 200
        asked.result(60)
    run.complete()
    assert rig.external.count(tag) == 1


def test_silence_ends_a_run_and_what_is_asked_then_is_refused(rig: Rig, client: Client) -> None:
    tag = fresh("idle")
    run = attach(client, tag, idle_timeout_s=1)
    rig.system.wait_status(run.job_id, "failed")
    answer = _asks(run.job_id, rig.system.api, tag)
    assert answer.json()["error"]["code"] in ("session_over", "superseded")
    assert rig.external.count(tag) == 0


def test_nobody_else_asks_anything_of_a_run(rig: Rig, client: Client) -> None:
    tag = fresh("theirs")
    run = attach(client, tag)
    with httpx.Client(base_url=str(rig.system.api.base_url), headers=rig.system.approver) as other:
        assert _asks(run.job_id, other, tag).status_code in (403, 404)
        call = {"call": {"body": "x", "tool": "poke_idempotent", "args": {"tag": tag}}}
        assert rig.system.signal(run.job_id, "session.1", call, rig.system.approver).status_code in (400, 403)
    answer = rig.system.signal(run.job_id, "session.1", call)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_key")
    run.complete()
    assert rig.external.count(tag) == 0


def _asks(job: str, by: httpx.Client, tag: str) -> httpx.Response:
    body = {"body": "x", "tool": "poke_idempotent", "args": {"tag": tag}}
    return by.post(f"/sessions/{job}/calls", json=body)


def _parked(rig: Rig, job: str) -> str:
    found: list[str] = []

    def parked() -> bool:
        steps = rig.system.job(job).get("steps", [])
        lost = [one for one in steps if one.get("tool") == "poke_lost" and one.get("effect") == "possible"]
        found[:] = [one["node_id"] for one in lost if one["state"] == "waiting"]
        return bool(found)

    until(parked, 30)
    return found[0]
