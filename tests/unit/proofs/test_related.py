"""Jobs that have begun each other, held against each other: whatever one may say that the other does not is named."""

from collections.abc import Callable
from typing import Any

import pytest

from aetheris.proofs import RawRecord
from aetheris.proofs.related import children_of, related_violations
from aetheris.testing import MemorySystem
from tests.testkit import standalone
from tests.testkit.evidence import TRUSTED
from tests.testkit.memory_jobs import Body, Change, link_of, sealed_jobs
from tests.unit.testing.test_child_jobs import awaits, catches, leaves, pay, refuses, repay, rounds, ship, shop, stops


def ran(plan: Any) -> MemorySystem:
    system = MemorySystem(awaits, rounds, leaves, catches, stops, shop, ship, pay, repay, refuses)
    system.run(plan)
    return system


def found(system: MemorySystem, changes: dict[int, Change] | None = None, left_out: int | None = None) -> set[str]:
    """The rules that are broken between a system's jobs; `changes`, `left_out`: by the place of the job."""
    ids = [one.job_id for one in system.jobs]
    by_id = {ids[at]: change for at, change in (changes or {}).items()}
    jobs = [one for at, one in enumerate(sealed_jobs(system, by_id).values()) if at != left_out]
    return between(jobs, each_holds=changes is None)


def between(jobs: list[list[RawRecord]], *, each_holds: bool = False) -> set[str]:
    """The same of these jobs' records; the script, which shares no code, names the same of the same job and event."""
    links = [link_of(records) for records in jobs]
    for one in links if each_holds else ():
        assert one.report.ok, one.report.violations
    wrong = [(job_id, broken.to_json()) for job_id, broken in related_violations(links)]
    assert standalone.related(jobs, TRUSTED) == {(job, one["rule"], one["event_id"]) for job, one in wrong}
    return {one["rule"] for _, one in wrong}


@pytest.mark.parametrize(
    "plan",
    [
        shop.plan(orders=["a", "b"]),
        awaits.plan(left=2),
        leaves.plan(waits=False),
        catches.plan(),
        stops.plan(fails=True),
        stops.plan(fails=False),
    ],
)
def test_jobs_that_began_each_other_say_the_same(plan: Any) -> None:
    system = ran(plan)
    assert found(system) == set()
    links = {one.job_id: link_of(sealed_jobs(system)[one.job_id]) for one in system.jobs}
    begun = [child for link in links.values() for child in children_of(link)]
    assert set(begun) <= links.keys()
    assert begun


def test_a_job_that_nobody_here_has_begun_is_named() -> None:
    system = ran(awaits.plan(left=0))
    other = ran(awaits.plan(left=1))
    jobs = [*sealed_jobs(system).values(), *sealed_jobs(other).values()]
    assert between([jobs[0], jobs[-1]]) == {"child_other"}


def test_one_without_a_seal_is_named() -> None:
    system = ran(shop.plan(orders=[]))
    parent, child = list(sealed_jobs(system).values())
    assert between([parent, child[:-1]]) == {"child_not_sealed"}


PARENT, CHILD = 0, 1


def _of(kind: str, change: Callable[[Body], None]) -> Change:
    def changed(is_kind: str, body: Body) -> None:
        if is_kind == kind:
            change(body)

    return changed


def _told(**said: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        if str(body.get("correlation_key", "")).startswith("aetheris.ended."):
            body["payload"] |= said

    return change


def _waited(**said: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        if isinstance(body.get("payload"), dict):
            body["payload"] |= said

    return change


def _born(**said: Any) -> Change:
    return _of("job_created", lambda body: body.update(said))


def _begun(**said: Any) -> Change:
    return _of("job_created", lambda body: body["begun"].update(said))


def _call_names_another(body: Body) -> None:
    if body.get("result") is not None and str(body.get("node_id", "")).startswith("jobs.start"):
        body["result"] = "else"


TAMPERINGS: dict[str, tuple[int, Change, str]] = {
    "the parent says that it failed": (PARENT, _of("signal_received", _told(status="failed")), "child_end"),
    "the parent says another result": (PARENT, _of("signal_received", _told(result="paid more")), "child_end"),
    "the parent says that it goes on": (PARENT, _of("signal_received", _told(continued_as="x")), "child_end"),
    "the parent's code was told otherwise": (PARENT, _of("wait_completed", _waited(result="more")), "child_end"),
    "the child returned something else": (
        CHILD,
        _of("job_completed", lambda body: body["result"].update(workflow="less")),
        "child_end",
    ),
    "the child says that nobody waits for it": (CHILD, _begun(awaited_by=None), "child_unfounded"),
    "the child says that another waits for it": (
        CHILD,
        _begun(awaited_by={"job_id": "else", "as_of": 1}),
        "child_differs",
    ),
    "the child is another node's": (CHILD, _begun(node_id="jobs.start.00.1"), "child_unfounded"),
    "the child is by another key": (CHILD, _begun(idempotency_key="0" * 64), "child_unfounded"),
    "the child takes its place": (CHILD, _begun(replaces=True), "child_unfounded"),
    "the child is deeper": (CHILD, _begun(depth=3), "child_differs"),
    "the child says no number of how deep it is": (CHILD, _begun(depth="x"), "child_differs"),
    "the child is another tenant's": (CHILD, _born(tenant="other"), "child_differs"),
    "the child is of somebody else": (CHILD, _born(submitted_by="mallory"), "child_differs"),
    "the child has another agent": (CHILD, _born(agent="mallory"), "child_differs"),
    "the child has other options": (CHILD, _born(options={"on_in_doubt": "fail"}), "child_differs"),
    "the child may call more": (
        CHILD,
        _of("job_created", lambda body: body["plan"]["tools"].update(more=body["plan"]["tools"]["pay"])),
        "child_differs",
    ),
    "the child has other arguments": (
        CHILD,
        _of("job_created", lambda body: body["plan"]["nodes"][0]["args"].update(order="mine")),
        "child_unfounded",
    ),
    "the call names another job": (PARENT, _of("tool_invocation_finished", _call_names_another), "child_unfounded"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_what_one_says_and_the_other_does_not_is_named(name: str) -> None:
    job, change, rule = TAMPERINGS[name]
    assert rule in found(ran(shop.plan(orders=["a"])), {job: change})


def test_a_successor_is_that_of_the_job_that_it_replaces() -> None:
    system = ran(awaits.plan(left=2))
    assert found(system, {2: _begun(awaited_by=None)}) >= {"child_differs"}
    assert found(system, {2: _begun(depth=2)}) >= {"child_differs"}
    assert found(system, {1: _of("job_completed", lambda body: body.update(result={"workflow": 1}))}) == set()
    failed = _of("job_completed", lambda body: body.pop("result", None))
    assert found(system, {3: failed}) >= {"child_end"}
    assert found(system, left_out=2) == set(), "whoever waits is told how the one behind it has ended, too"


def test_a_child_without_its_parent_is_another_s() -> None:
    assert found(ran(shop.plan(orders=[])), left_out=PARENT) == {"child_other"}
