"""A tool that fails whoever calls it: its calls wait, one is tried in between, and nothing else waits for that."""

from typing import Any

import pytest

from aetheris.ledger.core.limits import QuarantineLimits
from aetheris.ledger.core.quarantine import TenantTool
from aetheris.protocol.base.keys import external_key, idempotency_key
from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Via
from aetheris.protocol.messages.events import Event
from tests.testkit.histories import TENANT, about, created, finished, graph, planned, started
from tests.testkit.ledgers import TTL_S, Ledger, Surroundings, limits

AFTER, FIRST_S, LONGEST_S, TIMEOUT_S = 4, 10.0, 30.0, 3.0
QUARANTINE = QuarantineLimits(after=AFTER, jobs=2, first_s=FIRST_S, longest_s=LONGEST_S)
PIN = {"effect_class": "pure", "timeout_s": TIMEOUT_S}
PLAN = graph({"id": "a"}, {"id": "b"}, {"id": "c", "tool": "other"}, act=PIN, other=PIN)
FAILED = "retryable_failure"


def of(job: str, event: Event) -> Any:
    """The event of another job."""
    if not isinstance(event, ev.KeyEvent):
        return event.model_copy(update={"job_id": job})
    tool = "other" if event.node_id == "c" else "act"
    key = idempotency_key(job, event.node_id, tool, None)
    own: dict[str, Any] = {"job_id": job, "idempotency_key": key}
    if isinstance(event, ev.ToolInvocationStarted):
        own["external_key"] = external_key(job, event.node_id, event.attempt_id)
    return event.model_copy(update=own)


class JobsOfOnePlan:
    """A ledger with jobs of one plan, and what becomes of their calls."""

    def __init__(self, surroundings: Surroundings, creations: dict[str, int] | None = None) -> None:
        self.surroundings = surroundings
        self.creations = creations if creations is not None else {}
        self.ledger: Ledger = surroundings.ledger()
        self._tries = 0

    def born(self, *jobs: str, tenant: str = TENANT) -> None:
        for job in jobs:
            self.creations[job] = len(self.surroundings.log)
            creation = created().model_copy(update={"tenant": tenant})
            self.ledger.add(of(job, creation), of(job, planned(self.surroundings.plan)))

    def ask(self, *jobs: str, node: str = "a") -> None:
        for job in jobs:
            self.ledger.request(*node, offset=1000 + self._tries, job_id=job, birth=self.creations[job])
            self._tries += 1

    def began(self, job: str, node: str = "a") -> str:
        self._tries += 1
        invocation_id = f"n{self._tries}"
        state = self.ledger.core.jobs[job].state.keys.get(idempotency_key(job, node, "act", None))
        token, attempt = (state.fencing_token, state.external_attempt - 1) if state is not None else (1, 0)
        self.ledger.add(of(job, started(node, invocation_id, token=token, attempt=attempt)))
        return invocation_id

    def ended(self, job: str, invocation_id: str, outcome: str = FAILED, node: str = "a", **reported: Any) -> None:
        self.ledger.add(of(job, finished(node, invocation_id, outcome).model_copy(update=reported)))

    def fails(self, *jobs: str) -> None:
        for job in jobs:
            self.born(job)
            self.ended(job, self.began(job))

    def granted(self, *jobs: str) -> list[str]:
        """Which of these jobs have a grant."""
        having = {grant.job_id for grant in self.ledger.grants}
        return [job for job in jobs if job in having]

    def release(self, below: int, tenant: str = TENANT, tool: str = "act") -> bool:
        held = self.ledger.core.tool_released(TenantTool(tenant, tool), below, self.surroundings.now())
        self.ledger.settle()
        return held

    def words(self) -> list[str]:
        words, self.ledger.core.quarantine.changes = self.ledger.core.quarantine.changes, []
        return [action.what for action in words]


@pytest.fixture
def jobs() -> JobsOfOnePlan:
    return JobsOfOnePlan(Surroundings(PLAN, limits=limits(quarantine=QUARANTINE)))


@pytest.fixture
def down(jobs: JobsOfOnePlan) -> JobsOfOnePlan:
    """Whose tool has failed often enough; three calls of it wait."""
    jobs.fails("f1", "f2", "f3", "f4")
    jobs.born("w1", "w2", "w3")
    jobs.ask("w1", "w2", "w3")
    return jobs


WAITING = ("w1", "w2", "w3")


def test_calls_of_a_tool_that_fails_everywhere_wait_and_others_go_on(down: JobsOfOnePlan) -> None:
    assert down.words() == ["begun"]
    assert down.granted(*WAITING) == []
    assert down.surroundings.held == set(), "they hold no lease"
    assert down.ledger.core.open_request() is not None, "a restart reads their requests again"
    down.ask("w1", node="c")
    assert [(grant.job_id, grant.nodes) for grant in down.ledger.grants] == [("w1", ("c",))]
    down.ledger.sleep(FIRST_S - 0.1)
    assert down.granted("w2", "w3") == []


def test_nothing_is_looked_at_before_its_time(down: JobsOfOnePlan) -> None:
    over_s = down.surroundings.now_s + FIRST_S
    down.ledger.sleep(2)  # the pauses of those that failed
    assert down.ledger.core.next_due() == pytest.approx(over_s)


def test_after_the_pause_one_call_is_let_through_and_its_success_lets_all_go(down: JobsOfOnePlan) -> None:
    down.ledger.sleep(FIRST_S)
    assert down.granted(*WAITING) == ["w1"]
    down.ended("w1", down.began("w1"), "success")
    assert down.granted(*WAITING) == list(WAITING)
    assert down.words() == ["begun", "trying", "ended"]


def test_each_failure_of_a_trial_prolongs_the_pause_up_to_the_longest(down: JobsOfOnePlan) -> None:
    invocation: list[str] = []
    for pause_s in (FIRST_S, 2 * FIRST_S, LONGEST_S, LONGEST_S):
        down.ledger.sleep(pause_s - 0.1)
        assert len(down.ledger.grants) == len(invocation)
        down.ledger.sleep(0.1)
        invocation.append(down.ledger.grants[-1].job_id)
        assert len(down.ledger.grants) == len(invocation)
        down.ended(invocation[-1], down.began(invocation[-1]))
    assert set(invocation) >= set(WAITING), "nobody is tried alone for ever"


def test_a_trial_of_which_nothing_is_heard_is_followed_by_another(down: JobsOfOnePlan) -> None:
    down.ledger.sleep(FIRST_S)
    down.ledger.sleep(FIRST_S + TIMEOUT_S - 0.1)
    assert len(down.ledger.grants) == 1
    down.ledger.sleep(0.1)
    assert len(down.ledger.grants) == 2


def test_what_began_before_says_nothing_of_the_trial(jobs: JobsOfOnePlan) -> None:
    jobs.born("slow1", "slow2")
    slow = [(job, jobs.began(job)) for job in ("slow1", "slow2")]
    jobs.fails("f1", "f2", "f3", "f4")
    for job, invocation_id in slow:
        jobs.ended(job, invocation_id)
    jobs.born("w1")
    jobs.ask("w1")
    jobs.ledger.sleep(FIRST_S)
    assert jobs.granted("w1") == ["w1"]
    assert jobs.words() == ["begun", "trying"]


def test_a_success_in_between_begins_the_count_anew(jobs: JobsOfOnePlan) -> None:
    jobs.fails("f1", "f2", "f3")
    jobs.born("s")
    jobs.ended("s", jobs.began("s"), "success")
    jobs.fails("f4", "f5", "f6")
    jobs.born("w1")
    jobs.ask("w1")
    assert jobs.granted("w1") == ["w1"]


def test_one_job_alone_stops_nobody(jobs: JobsOfOnePlan) -> None:
    jobs.surroundings.plan = graph({"id": "a", "retry": {"max_attempts": 50}}, act=PIN)
    jobs.born("f1", "w1")
    for _ in range(2 * AFTER):
        jobs.ended("f1", jobs.began("f1"))
    assert jobs.ledger.core.jobs["f1"].state.keys[idempotency_key("f1", "a", "act", None)].invocation_count == 2 * AFTER
    jobs.ask("w1")
    assert jobs.granted("w1") == ["w1"]
    jobs.fails("f2")
    jobs.born("w2")
    jobs.ask("w2")
    assert jobs.granted("w2") == [], "with a second job it is no longer alone"


def test_what_fails_for_one_tenant_stops_no_other(down: JobsOfOnePlan) -> None:
    down.born("theirs", tenant="other")
    down.ask("theirs")
    assert down.granted("theirs") == ["theirs"]


@pytest.mark.parametrize(
    ("outcome", "body"),
    [
        ("permanent_failure", {"error": "HTTP 404"}),
        ("permanent_failure", {"error": "invalid_args: /n: required"}),
        (FAILED, {"error": "NotExecuted: tool version missing"}),
        (FAILED, {"via": Via.PROBE}),
        ("permanent_failure", {"via": Via.LEDGER, "error": "policy: no"}),
        ("permanent_failure", {"via": Via.HUMAN, "by": "ann"}),
    ],
)
def test_what_says_nothing_of_the_tool_does_not_count(jobs: JobsOfOnePlan, outcome: str, body: dict[str, Any]) -> None:
    for number in range(3 * AFTER):
        jobs.born(f"f{number}")
        jobs.ended(f"f{number}", jobs.began(f"f{number}"), outcome, **body)
    jobs.born("w1")
    jobs.ask("w1")
    assert jobs.granted("w1") == ["w1"]


def test_what_says_nothing_of_the_tool_is_no_success_either(jobs: JobsOfOnePlan) -> None:
    jobs.fails("f1", "f2", "f3")
    jobs.born("refused")
    jobs.ended("refused", jobs.began("refused"), "permanent_failure", error="HTTP 404")
    jobs.fails("f4")
    assert jobs.words() == ["begun"]


def test_what_has_no_tool_is_not_held() -> None:
    plan = graph({"id": "a", "kind": "time", "tool": None})
    jobs = JobsOfOnePlan(Surroundings(plan, limits=limits(quarantine=QUARANTINE)))
    jobs.fails(*(f"f{number}" for number in range(AFTER)))
    assert jobs.words() == []


@pytest.mark.parametrize(
    ("error_class", "counts"),
    [
        ("UnclearResponse", True),
        ("TimeoutError", True),
        ("lease_expired", False),
        ("worker_ended", False),
        ("BlobsUnreachable", False),
        ("ReportRefused", False),
    ],
)
def test_a_doubt_counts_where_the_try_itself_says_what_went_wrong(error_class: str, counts: bool) -> None:
    plan = graph({"id": "a"}, act={"effect_class": "opaque"})
    jobs = JobsOfOnePlan(Surroundings(plan, limits=limits(quarantine=QUARANTINE)))
    for number in range(AFTER):
        jobs.born(f"f{number}")
        doubt = about(ev.InvocationInDoubt, "a", invocation_id=jobs.began(f"f{number}"), error_class=error_class)
        jobs.ledger.add(of(f"f{number}", doubt), of(f"f{number}", doubt))
    assert jobs.words() == (["begun"] if counts else [])


def test_a_try_counts_once_however_often_it_is_said(jobs: JobsOfOnePlan) -> None:
    for job in ("f1", "f2"):
        jobs.born(job)
        invocation_id = jobs.began(job)
        for _ in range(AFTER):
            jobs.ended(job, invocation_id)
    assert jobs.words() == []


def test_further_tries_wait_too_and_their_time_goes_on_counting(jobs: JobsOfOnePlan) -> None:
    jobs.fails("f1", "f2", "f3", "f4")
    state = jobs.ledger.core.jobs["f1"].state.keys[idempotency_key("f1", "a", "act", None)]
    assert state.status is KeyStatus.REOPENED
    jobs.ledger.sleep(FIRST_S - 0.1)
    assert jobs.ledger.grants == []
    jobs.ledger.sleep(0.1)
    assert len(jobs.ledger.grants) == 1


def test_a_run_ends_before_a_call_that_has_to_wait(down: JobsOfOnePlan) -> None:
    down.born("r")
    down.ledger.request("c", "a", "b", offset=7, job_id="r", birth=down.creations["r"])
    assert [grant.nodes for grant in down.ledger.grants] == [("c",)]
    assert len(down.ledger.grants[0].rules) == 1
    down.ledger.sleep(FIRST_S)
    down.ledger.request("a", "b", offset=8, job_id="r", birth=down.creations["r"])
    assert all(len(grant.nodes) == 1 for grant in down.ledger.grants), "a trial is one call"


def test_a_job_that_is_cancelled_waits_no_longer(down: JobsOfOnePlan) -> None:
    stop = ev.JobStopping(job_id="w1", by="ann", reason="enough", up_to_revision=0)
    down.ledger.add(stop, of("f1", stop))
    assert set(down.ledger.core.jobs["w1"].pending) == set()
    ended = down.ledger.core.jobs["f1"].state.keys[idempotency_key("f1", "a", "act", None)]
    assert ended.status is KeyStatus.SETTLED
    down.ledger.sleep(FIRST_S)
    assert len(down.ledger.grants) == 1
    assert down.granted("w1") == []


def test_a_clock_that_goes_back_lets_nobody_wait_longer(down: JobsOfOnePlan) -> None:
    down.surroundings.now_s -= 900.0
    down.born("w4")
    down.ask("w4")
    down.ledger.sleep(FIRST_S)
    assert down.granted("w4") == ["w4"]


def test_a_wall_clock_decides_nothing(down: JobsOfOnePlan) -> None:
    down.surroundings.clock_off_s = 1e6
    down.ledger.sleep(FIRST_S - 0.1)
    assert down.ledger.grants == []
    down.ledger.sleep(0.1)
    assert len(down.ledger.grants) == 1


def test_a_restart_from_any_prefix_forgets_it_and_counts_from_there(down: JobsOfOnePlan) -> None:
    for length in range(2, len(down.surroundings.log) + 1):
        surroundings = Surroundings(PLAN, limits=down.surroundings.limits)
        surroundings.log, surroundings.ids = down.surroundings.log[:length], [""] * length
        again = JobsOfOnePlan(surroundings, down.creations)
        assert again.words() == []
        again.born("new")
        again.ask("new")
        assert again.granted("new") == ["new"]
        again.fails("g1", "g2", "g3", "g4")
        assert again.words() == ["begun"]


def test_zero_switches_it_off() -> None:
    off = limits(quarantine=QuarantineLimits(0, 1, FIRST_S, LONGEST_S))
    jobs = JobsOfOnePlan(Surroundings(PLAN, limits=off))
    jobs.fails(*(f"f{number}" for number in range(50)))
    jobs.born("w1")
    jobs.ask("w1")
    assert jobs.granted("w1") == ["w1"]
    assert jobs.words() == []


def test_a_grant_that_was_held_is_given_again_as_soon_as_any_other(down: JobsOfOnePlan) -> None:
    down.ledger.sleep(FIRST_S)
    down.ended("w1", down.began("w1"), "success")
    before = len(down.ledger.grants)
    down.ledger.sleep(TTL_S)
    assert len(down.ledger.grants) == before + 6, "w2, w3 and those that failed: nobody took them up"


def test_a_released_tool_waits_no_longer_and_old_failures_are_forgotten(jobs: JobsOfOnePlan) -> None:
    jobs.fails(*(f"f{number}" for number in range(AFTER)))
    jobs.born("w1", "w2")
    jobs.ask("w1", "w2")
    assert not jobs.granted("w1", "w2")
    old = len(jobs.surroundings.log)
    assert jobs.release(old)
    assert jobs.granted("w1", "w2") == ["w1", "w2"]
    assert jobs.words()[-1] == "released"
    jobs.fails(*(f"g{number}" for number in range(AFTER - 1)))
    jobs.born("w3")
    jobs.ask("w3")
    assert jobs.granted("w3") == ["w3"], "it counts anew"
    jobs.fails("g9")
    jobs.born("w4")
    jobs.ask("w4")
    assert not jobs.granted("w4"), "what fails afterwards counts"


def test_failures_from_before_a_release_say_nothing_to_who_folds_them_after_it(jobs: JobsOfOnePlan) -> None:
    """A ledger that is behind hears of the release first."""
    assert not jobs.release(len(jobs.surroundings.log) + 200)
    jobs.fails(*(f"f{number}" for number in range(2 * AFTER)))
    jobs.born("w")
    jobs.ask("w")
    assert jobs.granted("w") == ["w"]
    assert jobs.words() == []


def test_a_release_is_one_tenants_and_one_tools(jobs: JobsOfOnePlan) -> None:
    jobs.fails(*(f"f{number}" for number in range(AFTER)))
    jobs.born("w")
    jobs.ask("w")
    assert not jobs.release(len(jobs.surroundings.log), tenant="another")
    assert not jobs.release(len(jobs.surroundings.log), tool="other")
    assert not jobs.granted("w")
