"""The ledger on a call in doubt: what is repeated, what is parked, and what the effect store says."""

import json
from typing import Any

import pytest

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.fold.state import MOST_UNCALLED, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Via
from aetheris.protocol.plan.graph import JobOptions, OnInDoubt
from tests.testkit.histories import JOB, about, created, finished, graph, key_of, started
from tests.testkit.ledgers import (
    TTL_S,
    Surroundings,
    effect,
    limits,
    one,
    reported,
)
from tests.testkit.tries import doubt_word, end_word, try_of


def test_a_proof_of_no_effect_is_retried_after_a_recorded_pause() -> None:
    surroundings = Surroundings(one("opaque", retry={"max_attempts": 3, "backoff_s": 4.0}))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"), finished("a", "n1", "retryable_failure"))
    assert ledger.written() == ["retry_scheduled"]
    assert ledger.grants == []
    again = surroundings.ledger()
    again.sleep(3.9)
    assert again.grants == []
    again.sleep(0.2)
    (grant,) = again.grants
    assert grant.token == 2
    assert again.written() == ["retry_scheduled"]


def test_what_was_scheduled_for_one_try_shortens_no_later_pause() -> None:
    """Also where it is its writer's own record, appended again."""
    ledger = Surroundings(one("opaque", retry={"backoff_s": 4.0, "max_attempts": 3})).ledger()
    ledger.add(started("a", "n1"), finished("a", "n1", "retryable_failure"))
    ledger.sleep(4.1)
    (replayed,) = (event for event in ledger.surroundings.log if isinstance(event, ev.RetryScheduled))
    again = finished("a", "n2", "retryable_failure")
    ledger.add(started("a", "n2", token=2, attempt=1), again, replayed)
    ledger.sleep(7.8)
    assert [grant.token for grant in ledger.grants] == [2]
    ledger.sleep(0.4)
    assert [grant.token for grant in ledger.grants] == [2, 3]


def test_a_pause_written_by_a_wrong_clock_is_no_longer_than_the_plan_says() -> None:
    surroundings = Surroundings(one("opaque", retry={"backoff_s": 4.0}), clock_off_s=86_400.0)
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"), finished("a", "n1", "retryable_failure"))
    surroundings.clock_off_s = 0.0
    again = surroundings.ledger()
    again.sleep(4.1)
    assert len(again.grants) == 1


def test_attempts_are_capped_and_the_end_names_the_cause() -> None:
    ledger = Surroundings(one("opaque", retry={"max_attempts": 1})).ledger()
    failure = finished("a", "n1", "retryable_failure").model_copy(update={"error": "NotExecuted: refused"})
    ledger.add(started("a", "n1"), failure)
    assert ledger.state().outcome is Settled.FAILED
    assert ledger.state().sure
    assert ledger.state().reason == "NotExecuted: refused"
    assert ledger.state().via is Via.LEDGER


def test_an_executor_that_stops_before_the_call_uses_up_no_attempt() -> None:
    ledger = Surroundings(one("opaque", retry={"max_attempts": 2, "backoff_s": 1.0})).ledger()
    tries = [f"n{number}" for number in range(1, MOST_UNCALLED + 3)]
    for token, name in enumerate(tries, start=1):
        stopped = finished("a", name, "retryable_failure").model_copy(update={"uncalled": True, "error": "stopped"})
        ledger.add(started("a", name, token=token, attempt=token - 1), stopped)
        assert (ledger.state().outcome is None) == (token <= MOST_UNCALLED + 1), f"try {token}"
        ledger.sleep(1.1)
    assert len(ledger.grants) == MOST_UNCALLED + 1
    assert ledger.state().outcome is Settled.FAILED, "an executor that always stops is no reason to go on for ever"
    assert ledger.state().invocation_count == MOST_UNCALLED + 2


def test_a_reopened_key_of_a_stopping_job_is_settled() -> None:
    ledger = Surroundings(one("opaque", retry={"backoff_s": 100.0})).ledger()
    ledger.add(started("a", "n1"), finished("a", "n1", "retryable_failure"))
    ledger.add(ev.JobStopping(job_id=JOB, by="ann", reason="enough", up_to_revision=0))
    assert ledger.state().outcome is Settled.FAILED
    assert ledger.state().sure
    assert ledger.grants == []


def test_a_held_lease_is_left_alone() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.request("a")
    ledger.add(started("a", "n1"))
    ledger.sleep(100)
    assert ledger.written() == []


def test_every_lease_gets_a_full_ttl_after_a_restart() -> None:
    surroundings = Surroundings(one("opaque"))
    surroundings.ledger().add(started("a", "n1"))
    again = surroundings.ledger()
    again.sleep(TTL_S - 0.1)
    assert again.written() == []
    again.sleep(0.2)
    assert again.written() == ["invocation_in_doubt", "invocation_parked"]


def test_a_missing_lease_is_no_evidence_after_redis_lost_data() -> None:
    surroundings = Surroundings(one("opaque"))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"))
    surroundings.lost_s = surroundings.now_s + 4
    ledger.sleep(4 + TTL_S + 3 - 0.1)
    assert ledger.written() == []
    ledger.sleep(0.2)
    assert ledger.state().status is KeyStatus.PARKED


@pytest.mark.parametrize("effect_class", ["pure", "idempotent"])
def test_what_may_be_sent_again_is_reopened_and_granted_with_the_next_token(effect_class: str) -> None:
    ledger = Surroundings(one(effect_class)).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    assert ledger.written() == ["invocation_in_doubt", "invocation_reopened"]
    (grant,) = ledger.grants
    assert grant.token == 2
    ledger.add(started("a", "n2", token=2))
    assert ledger.state().current_invocation == try_of("n2")
    assert ledger.state().unresolved == {try_of("n1"), try_of("n2")}


def test_in_doubt_from_the_executor_waits_for_no_lease() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.request("a")
    ledger.add(started("a", "n1"), about(ev.InvocationInDoubt, "a", invocation_id="n1", error_class="TimeoutError"))
    assert ledger.written() == ["invocation_reopened", "retry_scheduled"]
    ledger.sleep(0.5)
    assert [grant.token for grant in ledger.grants] == [1, 2]


def test_what_fails_again_and_again_is_repeated_at_the_plans_pace_also_after_a_restart() -> None:
    """Ten requests in a moment help nobody."""
    plan = one("idempotent", retry={"max_attempts": 10, "backoff_s": 4, "backoff_factor": 3, "max_backoff_s": 20})
    surroundings = Surroundings(plan)
    ledger = surroundings.ledger()
    ledger.request("a")
    for token, pause_s in ((1, 4), (2, 12), (3, 20), (4, 20)):
        invocation_id = f"n{token}"
        ledger.add(started("a", invocation_id, token=token), reported("a", invocation_id, returned=token % 2 == 0))
        before = len(ledger.grants)
        ledger.sleep(pause_s / 2 - 0.1)
        assert len(ledger.grants) == before
        if token == 2:
            ledger = surroundings.ledger()
            before = 0
        ledger.sleep(pause_s)
        assert [grant.token for grant in ledger.grants[before:]][:1] == [token + 1]


def test_a_worker_that_ended_or_lost_its_lease_holds_nothing_up() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    assert "retry_scheduled" not in ledger.written()
    assert ledger.grants


def test_an_opaque_call_is_parked_or_failed_as_configured() -> None:
    parked = Surroundings(one("opaque")).ledger()
    parked.add(started("a", "n1"))
    parked.lease_lapses()
    assert parked.state().status is KeyStatus.PARKED
    failed = Surroundings(one("opaque"), limits=limits(on_in_doubt="fail")).ledger()
    failed.add(started("a", "n1"))
    failed.lease_lapses()
    assert failed.state().outcome is Settled.FAILED
    assert not failed.state().sure
    assert failed.state().via is Via.LEDGER
    assert failed.state().reason == "failed, not sure: nobody can tell whether an opaque call took effect"


@pytest.mark.parametrize("setting", ["park", "fail"])
@pytest.mark.parametrize(
    ("job", "tool", "becomes"),
    [
        ("fail", "park", KeyStatus.SETTLED),
        ("park", "fail", KeyStatus.PARKED),
        ("fail", None, KeyStatus.SETTLED),
        ("park", None, KeyStatus.PARKED),
        (None, "fail", KeyStatus.SETTLED),
        (None, "park", KeyStatus.PARKED),
    ],
)
def test_the_jobs_word_goes_before_the_tools_and_that_before_the_setting(
    setting: str, job: OnInDoubt | None, tool: str | None, becomes: KeyStatus
) -> None:
    pin = {"on_in_doubt": tool} if tool is not None else {}
    surroundings = Surroundings(graph({"id": "a"}, act=pin), limits=limits(on_in_doubt=setting))
    surroundings.log[0] = created(JobOptions(on_in_doubt=job))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    assert ledger.state().status is becomes


@pytest.mark.parametrize("effect_class", ["opaque", "idempotent", "probeable", "pure"])
def test_an_effect_in_the_store_is_caught_up_under_its_own_nonce_whatever_the_class(effect_class: str) -> None:
    ledger = Surroundings(one(effect_class)).ledger()
    ledger.add(started("a", "n1"))
    ledger.surroundings.effects[key_of("a")] = {
        try_of("n1"): effect("a", "n1", {"id": 7}),
        try_of("zombie"): effect("a", "zombie", 1),
    }
    ledger.lease_lapses()
    assert ledger.written() == ["tool_invocation_finished", "command_committed", "state_changed"]
    state = ledger.state()
    assert (state.outcome, state.settled_by, state.via, state.result) == (
        Settled.SUCCESS,
        try_of("n1"),
        Via.CATCH_UP,
        {"id": 7},
    )
    assert (ledger.asks, ledger.grants) == ([], [])
    assert [record.status for record in ledger.records] == ["success"]


def test_an_effect_of_a_nonce_that_never_started_or_of_another_key_settles_nothing() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.surroundings.effects[key_of("a")] = {
        try_of("zombie"): effect("a", "zombie", 1),
        try_of("n1"): effect("a", "zombie", 1),
    }
    ledger.lease_lapses()
    assert ledger.state().status is KeyStatus.PARKED


def _changed(part: str, **fields: Any) -> bytes:
    """An effect that the store has changed."""
    value = json.loads(effect("a", "n1", {"id": 7}))
    value[part] |= fields
    return json.dumps(value).encode()


STORED = {
    "no JSON": b"\xff",
    "no effect": b"{}",
    "another result": _changed("finished", result={"id": 8}),
    "no hash": _changed("finished", output_hash=None),
    "another node": _changed("finished", node_id="b"),
    "another job": _changed("finished", job_id="job-2"),
    "another key": _changed("finished", idempotency_key="k"),
    "no word": _changed("finished", word=None),
    "another word of the try": _changed("finished", word=doubt_word("n1", returned=True)),
    "another try's word": _changed("finished", word=end_word("n2", "success", "executor")),
    "a failure": _changed("finished", outcome="permanent_failure"),
    "another writer": _changed("finished", via="human", by="ann"),
    "a huge external id": _changed("finished", external_id="x" * 950_000),
    "a long external id": _changed("finished", external_id="x" * 2_000),
    "a lone surrogate": _changed("finished", external_id="\ud800"),
    "a deep result": effect("a", "n1", json.loads("[" * 100 + "]" * 100)),
    "a large result": effect("a", "n1", "x" * 70_000),
    "a reference to something else": _changed("finished", result=None, result_ref={"sha256": "0" * 64, "size": 1}),
    "a result and a reference": _changed("finished", result_ref={"sha256": digest({"id": 7}), "size": 1}),
    "committed of another node": _changed("committed", node_id="b"),
    "committed of another command": _changed("committed", command_id="b"),
    "committed of other arguments": _changed("committed", input_hash="0" * 64),
    "committed of another result": _changed("committed", output_hash="0" * 64),
    "committed of another kind": _changed("committed", kind="llm"),
    "changes of another node": _changed("changed", node_id="b"),
    "changes of another job": _changed("changed", job_id="job-2"),
    "huge changes": _changed("changed", changes=[{"resource_type": "x" * 600_000, "resource_id": "", "operation": ""}]),
}


@pytest.mark.parametrize("value", STORED.values(), ids=STORED.keys())
def test_the_effect_store_is_believed_only_what_the_try_itself_would_have_appended(value: bytes) -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.surroundings.effects[key_of("a")] = {try_of("n1"): value}
    ledger.lease_lapses()
    ledger.sleep(20 * TTL_S)
    assert ledger.written() == ["invocation_in_doubt", "invocation_parked"]


def test_a_job_that_cant_be_judged_stands_still_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings = Surroundings(one("opaque"))
    surroundings.log += [event.model_copy(update={"job_id": "job-2"}) for event in surroundings.log]
    surroundings.ids += ["", ""]
    surroundings.raises = False
    ledger = surroundings.ledger()
    from aetheris.ledger.core import judgement as core

    judge = core.__dict__["adjudicate"]

    def broken(job: Any, *args: Any, **fields: Any) -> Any:
        if job.state.job_id == "job-2":
            raise RecursionError("a payload")
        return judge(job, *args, **fields)

    monkeypatch.setattr(core, "adjudicate", broken)
    ledger.request("a", job_id="job-2", birth=2, offset=0)
    ledger.request("a", offset=1)
    assert [grant.job_id for grant in ledger.grants] == [JOB]
    assert [(one.job_id, type(one.error)) for one in ledger.core.unjudged.take()] == [("job-2", RecursionError)]
    ledger.request("a", job_id="job-2", birth=2, offset=2)
    assert ledger.core.unjudged.take() == []


def test_a_late_effect_of_an_earlier_live_nonce_is_found_before_the_next_grant() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    ledger.surroundings.effects[key_of("a")] = {try_of("n1"): effect("a", "n1", 1)}
    ledger.sleep(TTL_S)
    assert len(ledger.grants) == 1
    assert ledger.state().settled_by == try_of("n1")


def test_without_redis_the_ladder_goes_on_after_a_while() -> None:
    surroundings = Surroundings(one("idempotent"))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"))
    surroundings.redis_answers, surroundings.lost_s = False, surroundings.now_s
    ledger.sleep(TTL_S + 3 + 3 * TTL_S - 0.1)
    assert ledger.written() == []
    ledger.sleep(TTL_S)
    assert ledger.written() == ["invocation_in_doubt", "invocation_reopened"]


def test_reopens_are_capped() -> None:
    ledger = Surroundings(one("idempotent"), limits=limits(max_tries=2)).ledger()
    for token, invocation_id in enumerate(("n1", "n2"), start=1):
        ledger.add(started("a", invocation_id, token=token))
        ledger.lease_lapses()
    assert ledger.state().status is KeyStatus.PARKED
    pure = Surroundings(one("pure"), limits=limits(max_tries=1)).ledger()
    pure.add(started("a", "n1"))
    pure.lease_lapses()
    assert pure.state().outcome is Settled.FAILED
