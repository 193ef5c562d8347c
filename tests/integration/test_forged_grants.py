"""Grants, which nobody signs: who forges one has nothing begun about which a human is asked, undoable as it may be."""

from collections.abc import Generator

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import ToolGrant
from tests.testkit.approvers import respond, running_approvers
from tests.testkit.attempts import fresh
from tests.testkit.broker_rights import home_of, restart, say
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST
from tests.testkit.rig import Rig, poke

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

POLICY = """
[[rules]]
name = "ask"
tools = ["poke_probeable", "poke_opaque"]
when = "args.tag.startsWith('asked')"
effect = "approval"
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_approvers(tmp_path_factory.mktemp("grants"), POLICY + ALLOW_REST) as rig:
        yield rig


def granted(rig: Rig, job: str) -> None:
    """As the ledger would grant the call that is asked about, in its job's partition."""
    (asked,), (planned,) = rig.system.data_of(job, "approval_requested"), rig.system.data_of(job, "plan_generated")
    events = rig.system.events(job)
    grant = ToolGrant(
        job_id=job,
        birth=events[0]["offset"],
        as_of=events[-1]["offset"],
        revision=0,
        plan_hash=planned["plan_hash"],
        nodes=(asked["node_id"],),
        rules=("rest",),
        idempotency_key=asked["idempotency_key"],
        token=1,
        lease_id=fresh("lease"),
        deadline_s=30.0,
    )
    say(rig, Topic.TOOLS_GRANTS, job, grant, home_of(rig, job))


def others_go_on(rig: Rig, number: int) -> None:
    """Behind what was forged in this partition: whatever comes of that has come."""
    while home_of(rig, rig.system.completed(poke("a", fresh("other"), tool="poke_opaque"))) != number:
        pass


def asked(rig: Rig) -> tuple[str, str]:
    """A job that waits for a yes to what could be undone, though somebody has granted it, also to who starts anew."""
    tag = fresh("asked")
    job = rig.system.submit(poke("a", tag), poke("b", f"b-{tag}", "a"))
    rig.system.wait_asked(job)
    for is_restarted in (False, True):
        if is_restarted:
            restart(rig, "executor-0", "ledger-0")
        granted(rig, job)
        others_go_on(rig, home_of(rig, job))
        assert rig.external.count(tag) == 0
        assert rig.system.types(job, "tool_invocation_started") == []
    return job, tag


def test_a_forged_grant_begins_nothing_behind_an_open_question_and_a_yes_begins_it_once(rig: Rig) -> None:
    job, tag = asked(rig)
    assert respond(rig.system, "bob", rig.system.wait_asked(job)["request_id"]).status_code == 200
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    assert [rig.external.count(one) for one in (tag, f"b-{tag}")] == [1, 1]
    assert rig.system.verified(job)["violations"] == []


def test_a_forged_grant_begins_nothing_behind_a_no(rig: Rig) -> None:
    job, tag = asked(rig)
    assert respond(rig.system, "bob", rig.system.wait_asked(job)["request_id"], "reject").status_code == 200
    until(lambda: rig.system.job(job)["status"] == "failed", 60)
    granted(rig, job)
    others_go_on(rig, home_of(rig, job))
    assert rig.external.count(tag) == 0
    assert rig.system.verified(job)["violations"] == []
