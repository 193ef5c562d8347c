"""What a job with a workflow is said to be doing."""

from aetheris.protocol.messages import events as ev
from aetheris.views.standing import job_status, job_view
from tests.testkit.body_histories import FLOW, PARENT, body, call, fold_bodies, pair, parked
from tests.testkit.histories import about


def test_code_that_only_waits_makes_its_job_wait_and_a_call_under_way_does_not() -> None:
    waits = call("b1", node=f"{PARENT}.s", kind="wait", tool="act", wait={"key": "paid"})
    waits = waits.model_copy(update={"entry": {name: one for name, one in waits.entry.items() if name != "tool"}})
    begun = about(ev.JobWaiting, f"{PARENT}.s", tool="wait", wait_type="signal", correlation_key="paid")
    assert job_status(fold_bodies(FLOW, body("b1"))) == "running"
    assert job_status(fold_bodies(FLOW, body("b1"), waits, begun)) == "waiting"
    assert job_status(fold_bodies(FLOW, body("b1"), waits, begun, *pair({"n": 1}))) == "running"


def test_code_that_has_parted_from_what_is_recorded_is_named_with_the_calls_and_both_hashes() -> None:
    code = {
        name: {"ref": "m:f", "version": "1", "hash": hash_ * 64}
        for name, hash_ in (("recorded_code", "a"), ("code", "b"))
    }
    for evidence, words in (
        ({"unasked": ["act.1"], "held": ["act.2"]}, "asks for act.2, and has not asked for act.1, which is recorded"),
        ({"unasked": ["act.1"], "held": []}, "asks for its end, and has not asked for act.1"),
        ({"unasked": [], "held": [], "changed": "act.1"}, "asks for act.1 with other arguments"),
        ({"unasked": [f"act.{n}" for n in range(9)], "held": []}, "act.4 and 4 more, which is recorded"),
    ):
        parked_so = parked("b1").model_copy(update={"evidence": (evidence | code,)})
        why = job_view(fold_bodies(FLOW, body("b1"), parked_so), "")["why"]
        assert words in why
        assert "a" * 64 in why
        assert "b" * 64 in why
        assert "accept_code" in why


def test_evidence_that_is_no_bodys_is_passed_over() -> None:
    for evidence in ((), ("looked",), ({"by": "ann"},), ({"unasked": 7, "held": {}, "code": "x"},)):
        parked_so = parked("b1").model_copy(update={"evidence": evidence})
        assert "parked" in job_view(fold_bodies(FLOW, body("b1"), parked_so), "")["why"]
