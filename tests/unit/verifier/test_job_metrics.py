"""What the log says of jobs is counted once, and timed by its own times."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aetheris.proofs.records import Fact, fact_of
from aetheris.verifier.core.job_metrics import JobMeasures, JobMetrics, JobTimes

WORKER: dict[str, Any] = {"worker_id": "executor-0", "incarnation": "i1"}


class FollowedJob:
    """A job's facts, each so many seconds after its creation."""

    def __init__(self) -> None:
        self.measures = JobMeasures()
        self.metrics = JobMetrics(self.measures)
        self.times = JobTimes()

    def say(self, at_s: float, kind: str, *, is_news: bool = True, **body: Any) -> None:
        self.metrics.take(self.times, "acme", fact(at_s, kind, **body), is_news=is_news)

    def start(self, at_s: float, invocation: str = "one", **more: Any) -> None:
        self.say(at_s, "tool_invocation_started", **call(invocation), tool_name="pay", **WORKER, **more)

    def finish(self, at_s: float, invocation: str = "one", **more: Any) -> None:
        said: dict[str, Any] = {"outcome": "success", "via": "executor", **more}
        self.say(at_s, "tool_invocation_finished", **call(invocation), **said)


def fact(at_s: float, kind: str, **body: Any) -> Fact:
    minutes, seconds = divmod(at_s, 60)
    return fact_of(0, 0, "e", kind, body, f"2026-01-01T00:{int(minutes):02}:{seconds:09.6f}Z")


def call(invocation: str = "one") -> dict[str, Any]:
    return {"idempotency_key": "k", "node_id": "a", "invocation_id": invocation}


def of(series: Any) -> dict[tuple[str, ...], int]:
    return {tuple(labels.values()): count for labels, count in series.series()}


def timed(histogram: Any) -> tuple[int, float]:
    return sum(histogram.counts), round(histogram.total, 6)


def test_a_job_that_goes_well_is_counted_and_timed() -> None:
    log = FollowedJob()
    log.say(0, "job_created")
    log.start(1)
    log.finish(1.25, usage={"model": "m", "input_tokens": 10, "output_tokens": 3, "cost_usd": 0.5})
    log.say(1.25, "command_committed", **call())
    log.say(1.5, "node_finished", node_id="a", result_type="success")
    log.say(2, "job_completed")
    log.say(5, "job_sealed")
    found = log.measures
    assert (of(found.created), of(found.ended)) == ({("acme",): 1}, {("completed", "acme"): 1})
    assert (of(found.steps), of(found.calls)) == ({("success", "acme"): 1}, {("success", "pay"): 1})
    assert (of(found.effects), of(found.seals), of(found.prevented)) == ({("pay",): 1}, {(): 1}, {})
    assert of(found.tokens) == {("input", "m", "acme"): 10, ("output", "m", "acme"): 3}
    assert of(found.microdollars) == {("m", "acme"): 500_000}
    [(labels, step_s)] = found.step_s.series()
    assert (labels, timed(step_s)) == ({"tool": "pay"}, (1, 0.25))
    assert (timed(found.job_s), timed(found.seal_s)) == ((1, 2.0), (1, 3.0))
    assert (timed(found.doubt_s), timed(found.recovery_s)) == ((0, 0.0), (0, 0.0))


def test_a_worker_that_dies_is_doubted_and_what_recovers_from_it_is_timed() -> None:
    log = FollowedJob()
    log.start(0)
    log.say(10, "worker_ended", **WORKER)
    log.say(11, "invocation_in_doubt", **call(), error_class="WorkerEnded")
    log.say(12, "invocation_reopened", **call(), by="probe")
    log.start(13, "two")
    log.finish(14, "two")
    assert timed(log.measures.doubt_s) == (1, 1.0)
    assert timed(log.measures.recovery_s) == (1, 3.0), "since the log knew that it had ended"
    assert of(log.measures.prevented) == {}


@pytest.mark.parametrize("via", ["probe", "catch_up", "human"])
def test_what_is_found_to_have_taken_effect_is_a_duplicate_prevented(via: str) -> None:
    log = FollowedJob()
    log.start(0)
    log.say(5, "invocation_in_doubt", **call(), error_class="LeaseLapsed")
    log.finish(9, via=via)
    log.finish(9, via=via)
    assert of(log.measures.prevented) == {(via,): 1}
    assert timed(log.measures.doubt_s) == (1, 4.0)
    assert [*log.measures.step_s.series()] == [], "nobody knows how long it took"


def test_a_second_start_and_an_equal_call_are_duplicates_prevented() -> None:
    log = FollowedJob()
    log.start(0)
    log.start(0)  # the same record once more
    log.start(1, "rival")
    log.finish(2, "rival")
    log.finish(3)
    log.say(4, "invocation_rejected", idempotency_key="other", node_id="b", reason="duplicate_of")
    assert of(log.measures.prevented) == {("race",): 1, ("equal_call",): 1}
    assert of(log.measures.calls) == {("success", "pay"): 1}, "a try that lost reports nothing"


def test_a_retry_is_no_duplicate() -> None:
    log = FollowedJob()
    log.start(0)
    log.finish(1, outcome="retryable_failure")
    log.start(2, "two")
    log.finish(3, "two")
    assert of(log.measures.prevented) == {}
    assert of(log.measures.calls) == {("retryable_failure", "pay"): 1, ("success", "pay"): 1}


def test_who_waits_for_a_person_is_known_and_for_how_long_it_was() -> None:
    log = FollowedJob()
    log.say(0, "approval_requested", idempotency_key="k", node_id="a")
    log.say(0, "approval_requested", idempotency_key="l", node_id="b")
    assert log.metrics.asked == 2
    log.say(90, "approval_decided", idempotency_key="k", node_id="a", decision="approve")
    assert (log.metrics.asked, timed(log.measures.approval_s)) == (1, (1, 90.0))
    log.start(91)
    log.say(92, "invocation_in_doubt", **call(), error_class="x")
    log.say(93, "invocation_parked", **call(), reason="opaque")
    log.say(93, "invocation_parked", **call(), reason="opaque")
    assert log.metrics.parked == 1
    log.finish(95, via="human")
    assert (log.metrics.parked, timed(log.measures.doubt_s)) == (0, (1, 3.0))
    log.say(96, "job_cancelled")
    assert log.metrics.asked == 0, "nobody waits in a job that is over"
    log.say(97, "job_sealed")
    assert (log.metrics.asked, log.metrics.parked) == (0, 0)


def test_what_was_read_before_is_followed_and_not_counted_again() -> None:
    log = FollowedJob()
    log.say(0, "job_created", is_news=False)
    log.say(0, "approval_requested", is_news=False, idempotency_key="k", node_id="a")
    log.say(60, "approval_decided", idempotency_key="k", node_id="a")
    assert of(log.measures.created) == {}
    assert timed(log.measures.approval_s) == (1, 60.0)


LIES: Mapping[str, Callable[[FollowedJob], None]] = {
    "no time": lambda log: log.metrics.take(
        log.times, "acme", fact_of(0, 0, "e", "job_completed", {}, "soon"), is_news=True
    ),
    "a time of nowhere": lambda log: log.metrics.take(
        log.times, "acme", fact_of(0, 0, "e", "job_completed", {}, "2026-01-01T00:00:00"), is_news=True
    ),
    "tokens below zero": lambda log: log.metrics._spent({"input_tokens": -5, "cost_usd": -1}, "acme"),
    "tokens beyond belief": lambda log: log.metrics._spent({"input_tokens": 10**30, "cost_usd": 1e300}, "acme"),
    "no numbers": lambda log: log.metrics._spent({"model": [], "input_tokens": "7", "cost_usd": float("nan")}, "acme"),
    "a doubt of nothing": lambda log: log.say(1, "invocation_in_doubt", **call(), error_class="x"),
    "a parking of nothing": lambda log: log.say(1, "invocation_parked", **call()),
    "an end before its creation": lambda log: (log.say(9, "job_created"), log.say(1, "job_completed"))[0],
}


@pytest.mark.parametrize("lie", LIES)
def test_what_lies_breaks_nothing_and_is_never_below_zero(lie: str) -> None:
    log = FollowedJob()
    LIES[lie](log)
    assert of(log.measures.tokens) == of(log.measures.microdollars) == {}
    assert log.measures.job_s.total >= 0
    assert log.metrics.parked == 0


def test_a_try_is_pictured_from_its_start_to_what_settled_it() -> None:
    log = FollowedJob()
    log.start(1)
    end = fact(4, "tool_invocation_finished", **call(), outcome="success", via="probe")
    log.finish(4, via="probe")
    span = log.times.span(end)
    assert span is not None
    made, started_s, ended_s = span
    assert (made.tool, made.node, ended_s - started_s) == ("pay", "a", 3)
    early = fact(0.5, "tool_invocation_finished", **call(), outcome="success", via="probe")
    assert log.times.span(early) == (made, started_s, started_s)


@pytest.mark.parametrize(
    "stranger",
    [
        fact(4, "tool_invocation_finished", **call("another"), outcome="success"),
        fact(4, "tool_invocation_finished", **call() | {"idempotency_key": "other"}, outcome="success"),
        fact_of(0, 0, "e", "tool_invocation_finished", call(), "yesterday"),
    ],
)
def test_an_end_of_no_known_try_is_no_picture(stranger: Fact) -> None:
    log = FollowedJob()
    log.start(1)
    assert log.times.span(stranger) is None
