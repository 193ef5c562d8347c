"""Every key has its trace, found by its first 16 bytes, with what the tool's own instrumentation saw of the call."""

from collections.abc import Generator

import pytest

from aetheris.protocol.base.keys import job_key
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import TOOLS, TracedRig, poke, running_traced_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

JOBS, NODES = 20, ("a", "b")
OWN = ("GET", "POST")
"""What httpx' instrumentation calls its spans."""
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[TracedRig]:
    env = {"AETHERIS_TOOLS": f"{TOOLS},tests.testkit.instrumented_http"}
    with running_traced_rig(tmp_path_factory.mktemp("traced"), env) as rig:
        yield rig


def keys(rig: TracedRig, job: str) -> set[str]:
    """Of all its calls."""
    return {one["idempotency_key"] for one in rig.system.data_of(job, "tool_invocation_started")}


def orphans(rig: TracedRig, trace_id: str) -> list[str]:
    """The spans of a trace whose parent is not there."""
    spans = rig.collector.of_trace(trace_id)
    there = {span.span_id for span in spans}
    return [span.name for span in spans if span.parent_id and span.parent_id not in there]


def test_each_of_forty_keys_has_its_trace_and_in_it_the_tools_own_request(rig: TracedRig) -> None:
    tag = fresh("traced")
    jobs = [
        rig.system.submit(poke("a", f"{tag}-{n}"), poke("b", f"{tag}-{n}b", "a", tool="look_up")) for n in range(JOBS)
    ]
    rig.system.wait_ended(jobs, PATIENCE_S)
    found = {key: job for job in jobs for key in keys(rig, job)}
    assert len(found) == JOBS * len(NODES)
    for key, job in found.items():
        until(lambda key=key: {"request", "audit"} < _names(rig, key[:32]) & {"request", "audit", *OWN}, PATIENCE_S)
        until(lambda key=key: not orphans(rig, key[:32]), PATIENCE_S)
        spans = rig.collector.of_trace(key[:32])
        call = next(span for span in spans if span.name.startswith("execute_tool "))
        [own] = [span for span in spans if span.name == ("GET" if call.name.endswith("look_up") else "POST")]
        assert (own.parent_id, own.service) == (call.span_id, "aetheris-tool_executor")
        until(lambda job=job, key=key: key[:32] in _linked(rig, job), PATIENCE_S)


def test_a_tool_of_a_job_that_is_not_traced_records_nothing_and_its_trouble_has_no_orphans(rig: TracedRig) -> None:
    untraced = rig.system.completed(poke("a", fresh("untraced")), options={"trace": False})
    troubled = rig.system.submit(poke("a", fresh("troubled"), tool="poke_lost"), options={"trace": False})
    rig.system.wait_status(troubled, "waiting", PATIENCE_S)
    [quiet], [loud] = keys(rig, untraced), keys(rig, troubled)
    until(lambda: {"execute_tool poke_lost", "judge"} <= _names(rig, loud[:32]), PATIENCE_S)
    assert orphans(rig, loud[:32]) == []
    assert "POST" not in _names(rig, loud[:32])
    assert rig.collector.of_trace(quiet[:32]) == []


def _names(rig: TracedRig, trace_id: str) -> set[str]:
    return {span.name for span in rig.collector.of_trace(trace_id)}


def _linked(rig: TracedRig, job: str) -> set[str]:
    """The traces that spans of a job's own trace link to."""
    return {link for span in rig.collector.of_trace(job_key(job)[:32]) for link in span.links}
