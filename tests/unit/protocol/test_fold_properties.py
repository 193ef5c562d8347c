"""Any interleaving, any repeat: what no history may do to the fold."""

import copy
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, KeyStatus, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision, Outcome, RejectReason, Via
from aetheris.protocol.messages.events import Event
from tests.testkit.histories import JOB, about, created, finished, graph, planned, started

NODES = ("a", "b")
ARGS: tuple[dict[str, Any], ...] = ({}, {"x": 1})
NONCES = ("n1", "n2", "n3", "n4", "n5")

nodes = st.sampled_from(NODES)
args = st.sampled_from(ARGS)
nonces = st.sampled_from(NONCES)


def _plan(revision: int, value: int) -> Event:
    return planned(graph({"id": "a", "args": {"v": value}}, {"id": "b"}, act={"irreversible": value == 2}), revision)


def _on_key(kind: type[Any], **fields: Any) -> st.SearchStrategy[Event]:
    return st.builds(lambda node, arg, **more: about(kind, node, args=arg, **more), nodes, args, **fields)


events: st.SearchStrategy[Event] = st.one_of(
    st.builds(_plan, st.integers(0, 2), st.integers(0, 2)),
    st.builds(
        lambda node, invocation_id, token, attempt, arg, revision: started(
            node, invocation_id, token=token, attempt=attempt, args=arg, revision=revision
        ),
        nodes,
        nonces,
        st.integers(1, 3),
        st.integers(0, 1),
        args,
        st.integers(0, 1),
    ),
    st.builds(
        lambda node, invocation_id, outcome, via, result, arg: finished(
            node, invocation_id, outcome.value, via=via.value, result=result, args=arg
        ),
        nodes,
        nonces,
        st.sampled_from(Outcome),
        st.sampled_from(Via),
        st.integers(0, 1),
        args,
    ),
    _on_key(
        ev.InvocationReopened,
        invocation_id=nonces,
        next_token=st.just(0),
        by=st.sampled_from(["policy", "human", "probe"]),
    ),
    _on_key(ev.InvocationParked, invocation_id=nonces, reason=st.just("r")),
    _on_key(ev.InvocationRejected, reason=st.sampled_from(RejectReason)),
    _on_key(ev.PolicyAllowed, args_hash=st.just("h"), tool_version=st.sampled_from(["1", "2"]), rule=st.just("r")),
    _on_key(
        ev.ApprovalDecided,
        args_hash=st.just("h"),
        tool_version=st.just("1"),
        rule=st.just("r"),
        decision=st.sampled_from(Decision),
        approver=st.just("eve"),
    ),
    st.just(ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0)),
    st.sampled_from([ev.JobCompleted(job_id=JOB), ev.JobCancelled(job_id=JOB, by="ann")]),
    st.just(ev.JobWaiting(job_id=JOB, wait_type="approval", node_id="a")),
    st.just(ev.WaitCompleted(job_id=JOB, wait_type="approval", node_id="a")),
    st.just(created()),
)
histories = st.lists(events, max_size=40).map(lambda rest: [_plan(0, 0), *rest])


def _fold(history: list[Event], job: JobState | None = None) -> JobState:
    job = job or create_job(created(), 0)
    for event in history:
        apply(job, event, 1)
    return job


@given(histories)
def test_all_folds_of_a_prefix_agree(history: list[Event]) -> None:
    whole = _fold(history)
    half = len(history) // 2
    resumed = _fold(history[half:], copy.deepcopy(_fold(history[:half])))
    assert whole == resumed


@given(histories, st.integers())
@settings(max_examples=300)
def test_repeats_of_what_counted_change_nothing(history: list[Event], seed: int) -> None:
    """A writer that crashed and says it again, at any later place."""
    rng = random.Random(seed)  # noqa: S311 - a seeded test
    once, again = create_job(created(), 0), create_job(created(), 0)
    counted: list[Event] = []
    for event in history:
        apply(again, event, 1)
        if apply(once, event, 1) or isinstance(event, ev.ToolInvocationStarted):
            counted.append(event)  # a start that is void is none later: nobody runs it
        for repeat in rng.choices(counted, k=rng.randint(0, 2)) if counted else ():
            assert not apply(again, repeat, 1)
    assert once == again


@given(histories)
@settings(max_examples=300)
def test_a_void_event_leaves_the_state_as_it_was(history: list[Event]) -> None:
    job = create_job(created(), 0)
    for event in history:
        before = copy.deepcopy(job)
        if not apply(job, event, 0):
            before.keys, before.node_keys = _known(before), _nodes(before)
            after = copy.deepcopy(job)
            after.keys, after.node_keys = _known(after), _nodes(after)
            after.void_starts = before.void_starts  # that it was void is remembered
            assert after == before


def _known(job: JobState) -> Any:
    """Keys that something is known of: a bare registration decides nothing."""
    return {key: state for key, state in job.keys.items() if state != type(state)(state.node_id)}


def _nodes(job: JobState) -> Any:
    return {
        node: [key for key in keys if key in _known(job)]
        for node, keys in job.node_keys.items()
        if keys and set(keys) & set(_known(job))
    }


@given(histories)
@settings(max_examples=500)
def test_at_most_one_try_may_act_but_for_recorded_reopens(history: list[Event]) -> None:
    """What `live` holds is bounded by reopens, settled is final, the external key waits for proof."""
    job = create_job(created(), 0)
    reopens: dict[str, int] = {}
    for event in history:
        settled = {key: copy.deepcopy(state) for key, state in job.keys.items() if state.status is KeyStatus.SETTLED}
        external = {key: (state.external_attempt, bool(state.unresolved)) for key, state in job.keys.items()}
        effective = apply(job, event, 0)
        if effective and isinstance(event, ev.InvocationReopened):
            reopens[event.idempotency_key] = reopens.get(event.idempotency_key, 0) + 1
        for key, before in settled.items():
            now = job.keys[key]
            assert (now.outcome, now.sure, now.result, now.settled_by) == (
                before.outcome,
                before.sure,
                before.result,
                before.settled_by,
            )
        for key, state in job.keys.items():
            assert len(state.unresolved) <= 1 + reopens.get(key, 0)
            if key in external and state.external_attempt > external[key][0]:
                assert not state.unresolved
            if state.outcome is not None and state.sure:
                assert state.unresolved <= {state.settled_by}
    for keys in job.node_keys.values():
        busy = [
            key
            for key in keys
            if (s := job.keys[key]).invocations and not (s.status is KeyStatus.SETTLED and s.sure and s.reason)
        ]
        assert len(busy) <= 1
