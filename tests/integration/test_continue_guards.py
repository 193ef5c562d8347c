"""What an earlier job did is not done again by the one that continues it, whoever asks for it (docs/continue.md)."""

from collections.abc import Generator

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import Respond
from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer, until
from tests.testkit.principals import said_by
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.system import System

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("guards")) as rig:
        yield rig


def approve(system: System, job: str) -> None:
    body = {"request_id": system.wait_asked(job)["request_id"], "action": "approve"}
    answer = system.api.post("/ecs/respond", json=body, headers=system.approver)
    assert answer.status_code == 200, answer.text


def continued(system: System, job: str, *nodes: object) -> str:
    """The job that continues one that has failed, with these steps."""
    system.wait_status(job, "failed", 60)
    system.wait_sealed(job)
    answer = system.api.post(f"/jobs/{job}/continue", json={"plan": {"nodes": list(nodes)}})
    assert answer.status_code == 202, answer.text
    return answer.json()["job_id"]


def test_an_edit_cannot_make_of_a_call_what_the_earlier_job_did(system: System, external: ExternalServer) -> None:
    """Neither over HTTP nor past the gateway; another edit goes its way."""
    done, wanted, other = fresh("done"), fresh("wanted"), fresh("other")
    refused = {"id": "b", "tool": "poke_refused", "args": {}, "depends_on": ["a"]}
    job = system.submit(poke("a", done, tool="poke_irreversible"), refused)
    approve(system, job)
    second = continued(system, job, poke("z", wanted, tool="poke_irreversible"))
    request = system.wait_asked(second)["request_id"]
    edit = {"request_id": request, "action": "edit", "data": {"tag": done}}
    answer = system.api.post("/ecs/respond", json=edit, headers=system.approver)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "duplicate_of"), answer.text
    assert answer.json()["error"]["details"] == {"duplicate_of": "a", "job_id": job}
    body = {
        "job_id": second,
        **said_by("approver"),
        "tenant": system.data_of(job, "job_created")[0]["tenant"],
        "as_of": -1,
    }
    system.say_as(Party.GATEWAY, Topic.JOBS_COMMANDS, second, Respond.model_validate(body | edit))
    lines = system.data / "logs" / "ledger-0.log"
    until(lambda: "which the job continues, did just that" in lines.read_text(), 30)
    assert system.wait_asked(second)["request_id"] == request
    edit |= {"data": {"tag": other}}
    answer = system.api.post("/ecs/respond", json=edit, headers=system.approver)
    assert answer.status_code == 200, answer.text
    no = {"request_id": answer.json()["next_request_id"], "action": "reject"}
    assert system.api.post("/ecs/respond", json=no, headers=system.approver).status_code == 200
    system.wait_ended([second])
    system.wait_sealed(second)
    assert [external.count(tag) for tag in (done, wanted, other)] == [1, 0, 0]
    assert system.api.get(f"/jobs/{second}/verify").json()["violations"] == []
