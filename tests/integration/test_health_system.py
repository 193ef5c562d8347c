"""How the system stands, on the whole system: who is there, what waits, and which jobs stand still, and why."""

from collections.abc import Generator

import pytest

from aetheris.protocol.base.principals import Role
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic, dead_letters
from tests.testkit.approvers import running_approvers
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ASK_IRREVERSIBLE
from tests.testkit.rig import Rig, poke
from tests.testkit.system import System
from tests.testkit.tokens import entry_of, headers_of, write_tokens

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_approvers(tmp_path_factory.mktemp("health"), ASK_IRREVERSIBLE) as rig:
        write_tokens(
            rig.system.data,
            {"ann": "default", "bob": "default", "eve": "another"},
            entry_of("reader", roles=[Role.READ]),
            entry_of("operator", roles=[Role.OPERATE]),
        )
        yield rig


def test_who_is_there_what_waits_and_what_executors_serve(system: System) -> None:
    system.wait_ended([system.submit(poke("a", fresh("health")))])

    def is_whole() -> bool:
        found = system.api.get("/health", headers=headers_of("operator")).json()
        services = {one["service"]: one for one in found["services"]}
        waits = {(one["service"], one["topic"]): one["records"] for one in found["backlogs"]}
        asked = waits.get(("ledger", Topic.TOOLS_REQUESTS)), waits.get(("tool_executor", Topic.TOOLS_GRANTS))
        return asked == (0, 0) and all(one["unknown"] is None and one["processes"] for one in services.values())

    until(is_whole, 60)
    found = system.api.get("/health", headers=headers_of("operator")).json()
    assert {one["service"] for one in found["services"]} >= {"planner", "ledger", "tool_executor", "prober", "verifier"}
    assert {process["version"] for one in found["services"] for process in one["processes"]} != {None}
    lines = {(one["service"], one["topic"]): one for one in found["backlogs"]}
    assert lines["ledger", Topic.TOOLS_REQUESTS]["records"] == 0
    assert lines["tool_executor", Topic.TOOLS_GRANTS]["records"] == 0
    (executor,) = found["executors"]
    assert executor["is_live"]
    assert any(one.startswith("poke_probeable@") for one in executor["serves"])
    assert found["dead_letters"] == []


def test_what_a_sleeping_service_has_not_read_is_counted_and_dead_letters_are(system: System) -> None:
    waiting = (Draft(str(Topic.VERIFICATIONS), b"job-of-nobody", b"not read", (), 0),)
    dead = (Draft(dead_letters(Topic.TOOLS_GRANTS), b"k", b"x", (("dlq_reason", b"a test"),), 0),)
    with system.asleep("prober-0"):
        system.write([waiting, dead])

        def is_told() -> bool:
            found = system.api.get("/health", headers=headers_of("operator"), timeout=60).json()
            lines = {(one["service"], one["topic"]): one["records"] for one in found["backlogs"]}
            return lines.get(("prober", Topic.VERIFICATIONS)) == 1 and bool(found["dead_letters"])

        until(is_told, 60)
        found = system.api.get("/health", headers=headers_of("operator"), timeout=60).json()
        assert found["dead_letters"] == [{"topic": dead_letters(Topic.TOOLS_GRANTS), "records": 1}]


def test_a_job_that_waits_for_a_person_is_told_to_its_own_tenant_alone(system: System) -> None:
    job = system.submit(poke("pay", fresh("stalled"), tool="poke_irreversible"))
    system.wait_asked(job)
    for who in ("bob", "reader"):
        found = system.api.get("/stalled", headers=headers_of(who)).json()
        (told,) = [one for one in found["jobs"] if one["job_id"] == job]
        assert "pay" in told["why"]
        assert (told["in_doubt"], told["parked"]) == (0, 0)
    assert system.api.get("/stalled", headers=headers_of("eve")).json() == {"jobs": [], "is_whole": True}


def test_who_may_not_is_refused(system: System) -> None:
    for route, who in (("/health", "reader"), ("/stalled", "operator")):
        refused = system.api.get(route, headers=headers_of(who))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_role")
