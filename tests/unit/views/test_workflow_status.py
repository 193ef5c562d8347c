"""What a job with a workflow is said to be doing."""

from aetheris.protocol.messages import events as ev
from aetheris.views.standing import job_status
from tests.testkit.body_histories import FLOW, PARENT, body, call, fold_bodies, pair
from tests.testkit.histories import about


def test_code_that_only_waits_makes_its_job_wait_and_a_call_under_way_does_not() -> None:
    waits = call("b1", node=f"{PARENT}.s", kind="wait", tool="act", wait={"key": "paid"})
    waits = waits.model_copy(update={"entry": {name: one for name, one in waits.entry.items() if name != "tool"}})
    begun = about(ev.JobWaiting, f"{PARENT}.s", tool="wait", wait_type="signal", correlation_key="paid")
    assert job_status(fold_bodies(FLOW, body("b1"))) == "running"
    assert job_status(fold_bodies(FLOW, body("b1"), waits, begun)) == "waiting"
    assert job_status(fold_bodies(FLOW, body("b1"), waits, begun, *pair({"n": 1}))) == "running"
