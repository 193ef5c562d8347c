"""What the proofs say of compensations: which are founded, in which order, and what an end may claim."""

import pytest

from aetheris.proofs import Audit
from tests.testkit.proof_histories import Log, node, tool
from tests.testkit.standalone import verified as verify

UNDO = {"tool": "refund", "args": {}}
TOOLS = {"refund": tool("idempotent")}


def failed() -> Log:
    """Two steps that are done, a third that failed, and the stop."""
    log = Log(
        node("a", compensate_with=UNDO),
        node("b", "refund", "a", compensate_with=UNDO),
        node("c", "refund", "b"),
        tools=TOOLS,
    )
    log.step("n1", "a")
    log.step("n2", "b")
    log.start("n3", "c")
    log.permanent("n3", "executor", "c")
    log.done("c", "permanent_failure")
    log.add("job_stopping", by="planner", reason="r", up_to_revision=0)
    return log


def undo(log: Log, name: str, revision: int = 1) -> None:
    log.step(f"u-{name}", f"{name}.undo", revision=revision)
    said(log, name)


def said(log: Log, name: str) -> None:
    log.add("step_compensated", node_id=f"{name}.undo", compensates=name)
    log.done(name, "compensated")


def planned(log: Log, *names: str) -> Log:
    log.revise(1, *(node(f"{name}.undo", compensates=name) for name in names))
    return log


def rules(log: Log) -> set[str]:
    return {broken.rule for broken in verify(log.records).violations}


def test_a_job_that_is_undone_in_reverse_order_breaks_nothing() -> None:
    log = planned(failed(), "b", "a")
    undo(log, "b")
    undo(log, "a")
    log.add("job_failed", error="e", compensated=["b", "a"])
    report = verify(log.records)
    assert (rules(log), report.ledger.ok) == (set(), True)
    auditor = Audit()
    for record in log.records:
        auditor.add(record)
        auditor.report()
    assert auditor.report() == report


def test_the_first_committed_is_the_last_undone() -> None:
    log = planned(failed(), "b", "a")
    undo(log, "a")
    undo(log, "b")
    assert rules(log) == {"compensation_order"}


def test_what_nothing_has_undone_is_not_compensated() -> None:
    log = planned(failed(), "b")
    said(log, "b")
    assert rules(log) == {"unfounded_compensation"}
    log = failed()
    said(log, "a")
    assert rules(log) == {"unfounded_compensation"}


def test_a_node_is_compensated_once() -> None:
    log = planned(failed(), "b")
    undo(log, "b")
    log.done("b", "compensated")
    assert rules(log) == {"node_finished_twice"}


@pytest.mark.parametrize("named", [None, [], ["a"], ["a", "b"]])
def test_an_end_claims_what_was_undone(named: list[str] | None) -> None:
    log = planned(failed(), "b")
    undo(log, "b")
    log.add("job_failed", error="e", compensated=named)
    assert rules(log) == {"compensated_differs"}


def test_a_plan_that_undoes_what_never_succeeded_starts_nothing() -> None:
    log = planned(failed(), "b", "c")
    log.start("u1", "b.undo", revision=1)
    log.finish("u1", name="b.undo")
    assert rules(log) == {"success_without_valid_start"}


def test_what_took_effect_in_part_has_undone_nothing() -> None:
    log = planned(failed(), "b")
    log.start("u1", "b.undo", revision=1)
    log.finish("u1", "compensatable_failure", "b.undo")
    log.done("b.undo", "compensatable_failure")
    said(log, "b")
    assert rules(log) == {"unfounded_compensation"}
