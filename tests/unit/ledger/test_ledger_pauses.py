"""A paused job: nothing is granted; what is under way, in doubt, asked or waits comes to its end all the same."""

from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Respond, Signal
from aetheris.protocol.planning.approvals import request_id
from aetheris.protocol.planning.policy import parse
from tests.testkit.histories import JOB, TENANT, about, finished, graph, key_of, started
from tests.testkit.ledgers import TTL_S, Surroundings, effect, one
from tests.testkit.principals import said_by
from tests.testkit.tries import try_of

PAUSED = ev.JobPaused(job_id=JOB, number=1, by="bob")
RESUMED = ev.JobResumed(job_id=JOB, number=1, by="bob")
ASKED = graph({"id": "a", "irreversible": True}, {"id": "w", "kind": "wait", "tool": None, "wait": {"key": "go"}})
TIMED = graph({"id": "w", "kind": "timer", "tool": None, "wait": {"for_s": 10}})
LONG_S = 100 * TTL_S


def test_a_request_waits_without_a_round_until_the_job_is_resumed() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.add(PAUSED)
    ledger.request("a")
    ledger.sleep(LONG_S)
    assert ledger.grants == []
    assert ledger.core.next_due() is None
    assert ledger.core.open_request() == 0
    ledger.add(RESUMED)
    assert [grant.nodes for grant in ledger.grants] == [("a",)]


def test_what_was_granted_before_is_granted_again_behind_the_end() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.request("a")
    ledger.add(PAUSED, started("a", "n1"))  # void: it came behind the pause
    ledger.sleep(LONG_S)
    assert len(ledger.grants) == 1
    ledger.add(RESUMED)
    assert len(ledger.grants) == 2


def test_doubts_are_settled_and_reopened_calls_wait() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.add(started("a", "n1"), PAUSED)
    ledger.lease_lapses()
    ledger.sleep(LONG_S)
    assert ledger.state().status is KeyStatus.REOPENED
    assert ledger.grants == []
    ledger.add(RESUMED)
    assert [grant.token for grant in ledger.grants] == [2]


def test_an_effect_that_is_known_settles_a_call() -> None:
    surroundings = Surroundings(one("idempotent"))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"), PAUSED)
    surroundings.effects[key_of("a")] = {try_of("n1"): effect("a", "n1", {"v": 1})}
    ledger.lease_lapses()
    assert ledger.state().outcome is Settled.SUCCESS


def test_the_time_of_another_try_goes_on_counting() -> None:
    retry = {"max_attempts": 3, "backoff_s": 60, "max_backoff_s": 60}
    ledger = Surroundings(one("opaque", retry=retry)).ledger()
    ledger.add(started("a", "n1"), finished("a", "n1", "retryable_failure"), PAUSED)
    ledger.sleep(1)
    ledger.add(RESUMED)
    assert ledger.grants == []
    ledger.sleep(61)
    assert len(ledger.grants) == 1


def test_an_approval_may_be_given_and_nothing_starts_of_it() -> None:
    ledger = Surroundings(ASKED, parse('[[rules]]\nname = "ask"\ntools = ["*"]\neffect = "approval"')).ledger()
    ledger.request("a")
    ledger.add(PAUSED)
    yes = Respond(
        job_id=JOB,
        **said_by("ben"),
        tenant=TENANT,
        as_of=-1,
        request_id=request_id(JOB, "a", key_of("a")),
        action="approve",
    )
    ledger.core.hear(yes, "cmd-1", 7)
    ledger.settle()
    assert ledger.state().decision is not None
    ledger.sleep(LONG_S)
    assert ledger.grants == []
    ledger.add(RESUMED)
    assert len(ledger.grants) == 1


def test_a_wait_that_had_begun_ends_by_its_signal_and_by_its_time() -> None:
    ledger = Surroundings(ASKED).ledger()
    ledger.request("w")
    ledger.add(PAUSED)
    ledger.core.hear(Signal(job_id=JOB, by="ben", tenant=TENANT, as_of=-1, correlation_key="go", payload=1), "c", 7)
    ledger.settle()
    assert ledger.written()[-1] == "wait_completed"
    timed = Surroundings(TIMED).ledger()
    timed.request("w")
    timed.add(PAUSED)
    timed.sleep(11)
    assert timed.written()[-1] == "wait_completed"


def test_a_stop_ends_what_a_pause_held() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    again = about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="policy")
    ledger.add(started("a", "n1"), PAUSED, again)
    ledger.add(ev.JobStopping(job_id=JOB, by="planner", reason="node b failed", up_to_revision=0))
    assert ledger.state().status is KeyStatus.SETTLED
