"""The ledger's core: who is granted, what becomes of a call in doubt, and what it never concludes."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from aetheris.ledger.core.decisions import Ask, Confirm, Decision, Emit, Facts, Grant, Line, Now, View
from aetheris.ledger.core.limits import Limits, QuarantineLimits
from aetheris.ledger.core.memory import Terms, WorkerLife
from aetheris.ledger.core.partition import Partition
from aetheris.ledger.core.policy import Policy, PolicyEffect, Rule, parse
from aetheris.ledger.policy_file import load
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.keys import external_key
from aetheris.protocol.fold.state import JobState, KeyState, Settled, St
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    ContentRecord,
    Ended,
    LedgerRecord,
    RegistryEntry,
    Resolve,
    ToolGrant,
    ToolRequest,
    Verification,
)
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import JobOptions, OnInDoubt
from tests.testkit.histories import JOB, TENANT, about, created, finished, fold, graph, key_of, planned, started

TTL_S = 5.0
SETTLES_S = 20.0
START = datetime(2030, 1, 1, tzinfo=UTC)
ALLOW_ALL = '[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"'
EffectKind = str


def limits(**changes: Any) -> Limits:
    base: dict[str, Any] = {
        "lease_ttl_s": TTL_S,
        "end_wait_s": 2 * TTL_S,
        "probe_wait_s": 30.0,
        "probe_backoff_s": 1.0,
        "probe_tries": 3,
        "max_tries": 4,
        "on_in_doubt": "park",
        "runs": True,
        "quarantine": QuarantineLimits(0, 1, 1.0, 1.0),
    }
    return Limits(**(base | changes))


def one(effect_class: EffectKind, **node: Any) -> dict[str, Any]:
    return graph({"id": "a"} | node, act={"effect_class": effect_class, "settles_within_s": SETTLES_S, "timeout_s": 3})


@dataclass
class World:
    """A log, an effect store and leases that outlive the ledgers on them."""

    plan: dict[str, Any]
    policy: Policy = field(default_factory=lambda: load(None))
    limits: Limits = field(default_factory=limits)
    log: list[Event] = field(default_factory=list[Event])
    ids: list[str] = field(default_factory=list[str])
    times: dict[int, float] = field(default_factory=dict[int, float])
    """Offset → when it was appended, in seconds since 1970."""
    ended: dict[WorkerLife, Ended] = field(default_factory=dict[WorkerLife, Ended])
    tools: dict[str, RegistryEntry] = field(default_factory=dict[str, RegistryEntry])
    effects: dict[str, dict[str, bytes]] = field(default_factory=dict[str, dict[str, bytes]])
    held: set[str] = field(default_factory=set[str])
    redis_answers: bool = True
    raises: bool = True
    """Whether what the core could not judge is raised here, or stands in its list."""
    lost_s: float | None = None
    now_s: float = 1000.0
    clock_off_s: float = 0.0

    def __post_init__(self) -> None:
        self.log = [created(), planned(self.plan)]
        self.ids = ["", ""]

    def now(self) -> Now:
        return Now(self.now_s, START + timedelta(seconds=self.now_s + self.clock_off_s))

    def ledger(self) -> "Ledger":
        return Ledger(self)

    def facts(self) -> Facts:
        if not self.redis_answers:
            return Facts(None, None, self.lost_s)
        return Facts(self.effects, dict.fromkeys(self.held, True), self.lost_s)


class Ledger:
    """A process: folds the world's log, carries decisions out until nothing more follows from them."""

    def __init__(self, world: World) -> None:
        self.world = world
        fresh = count()
        tools = world.tools
        ids = (lambda: f"id-{id(self)}-{next(fresh)}", lambda: 1.0)
        terms = Terms(world.policy, world.limits, *ids, lambda name, _version: tools.get(name))
        self.core = Partition(terms, world.ended)
        self.read = 0
        self.grants: list[ToolGrant] = []
        self.asks: list[Verification] = []
        self.records: list[LedgerRecord] = []
        self.lines: list[ContentRecord] = []
        self._fold()
        self.core.restored(world.now())
        self.settle()

    def _fold(self) -> None:
        for event in self.world.log[self.read :]:
            at_s = self.world.times.setdefault(self.read, self.world.now().wall.timestamp())
            self.core.evolve(event, self.read, self.world.now(), at_s)
            self.read += 1

    def settle(self) -> None:
        """Rounds, until one decides nothing that the log would have to carry."""
        for _ in range(20):
            self._fold()
            self.core.look(self.world.now())
            decided = self.core.decide(self.world.facts(), self.world.now())
            for failure in self.core.unjudged.take() if self.world.raises else ():
                raise failure.error
            if not [self._carry_out(decision) for decision in decided]:
                return
        raise AssertionError("the ledger never comes to rest")

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Emit():
                self.world.log += [written.event for written in decision.events]
                self.world.ids += [written.id for written in decision.events]
            case Grant():
                self.grants.append(decision.message)
                self.world.held.add(decision.message.idempotency_key)
            case Ask() | Confirm():
                self.asks.append(decision.message)
            case View():
                self.records.append(decision.record)
            case Line():
                self.lines.append(decision.record)

    def add(self, *events: Event) -> None:
        for event in events:
            self.world.log.append(event)
            self.world.ids.append("")
        self.settle()

    def request(self, *nodes: str, offset: int = 0, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "job_id": JOB,
            "birth": 0,
            "as_of": len(self.world.log) - 1,
            "revision": 0,
            "plan_hash": digest(self.world.plan),
            "nodes": nodes,
        }
        self.core.request(ToolRequest(**(fields | changes)), offset)
        self.settle()

    def sleep(self, seconds: float) -> None:
        """Let time pass, with a round at every due time on the way."""
        end_s = self.world.now_s + seconds
        for _ in range(1000):
            due_s = self.core.next_due()
            if due_s is None or due_s > end_s:
                break
            self.world.now_s = max(self.world.now_s, due_s)
            self.settle()
        self.world.now_s = end_s
        self.settle()

    def lease_lapses(self) -> None:
        self.world.held.clear()
        self.sleep(TTL_S + 0.1)

    def answer(self, said: str, **fields: Any) -> None:
        asked = self.asks[-1]
        probed = ev.InvocationProbed(
            job_id=JOB,
            node_id=asked.node_id,
            idempotency_key=asked.idempotency_key,
            invocation_id=asked.invocation_id,
            external_key=asked.external_key,
            ask=asked.ask,
            answer=ev.Answer(said),
            **fields,
        )
        self.add(probed)

    def resolve(self, verdict: str, node: str = "a", **fields: Any) -> None:
        command = Resolve.model_validate(
            {
                "job_id": JOB,
                "by": "bob",
                "tenant": TENANT,
                "execution_id": execution_id(JOB, node, key_of(node)),
                "verdict": verdict,
                "evidence": "seen in the bank's books",
                "as_of": -1,
            }
            | fields
        )
        self.core.hear(command, "cmd-1", 7)
        self.settle()

    @property
    def job(self) -> JobState:
        return self.core.jobs[JOB].state

    def state(self, node: str = "a") -> KeyState:
        return self.job.keys[key_of(node)]

    def written(self) -> list[str]:
        """The types of what this world's ledgers wrote."""
        return [event.event_type for event, id_ in zip(self.world.log, self.world.ids, strict=True) if id_]


def effect(node: str, nonce: str, result: Any, *, change: bool = True) -> bytes:
    """What an executor leaves in the effect store."""
    done = finished(node, nonce, result=result)
    committed = ev.CommandCommitted(
        job_id=JOB,
        node_id=node,
        command_id=node,
        idempotency_key=done.idempotency_key,
        kind=started(node, nonce).kind,
        input_hash=started(node, nonce).args_hash,
        output_hash=digest(result),
    )
    parts = [f'"finished":{done.model_dump_json()}', f'"committed":{committed.model_dump_json()}']
    if change:
        changed = ev.StateChanged(
            job_id=JOB,
            node_id=node,
            changes=(ev.Change(resource_type="refund", resource_id="r-1", operation="create"),),
        )
        parts.append(f'"changed":{changed.model_dump_json()}')
    return ("{" + ",".join(parts) + "}").encode()


BY_LOCK = Ended(incarnation="i1", how="lock")


def worker_ended(incarnation: str = "i1") -> WorkerLife:
    return ("w", incarnation)


# grants


def test_a_request_becomes_a_grant_from_the_fold() -> None:
    ledger = World(one("idempotent")).ledger()
    ledger.request("a", offset=3)
    (grant,) = ledger.grants
    assert (grant.idempotency_key, grant.token, grant.birth, grant.nodes) == (key_of("a"), 1, 0, ("a",))
    assert grant.as_of == 1
    assert ledger.core.open_request() == 3
    ledger.add(started("a", "n1"))
    assert ledger.core.open_request() is None


def test_a_request_is_held_until_the_fold_has_come_as_far_as_its_writer() -> None:
    world = World(one("idempotent"))
    late = world.log.pop()
    ledger = world.ledger()
    ledger.request("a", offset=3, as_of=1)
    assert ledger.grants == []
    assert ledger.core.waits_for_fold
    ledger.add(late)
    assert len(ledger.grants) == 1


@pytest.mark.parametrize("wrong", [{"birth": 1}, {"revision": 1}, {"plan_hash": "other"}, {"job_id": "job-2"}])
def test_what_does_not_match_the_fold_is_dropped(wrong: dict[str, Any]) -> None:
    ledger = World(one("idempotent")).ledger()
    ledger.request("a", offset=3, **wrong)
    assert ledger.grants == []
    assert ledger.core.open_request() is None


def test_a_settled_or_running_key_needs_no_grant() -> None:
    ledger = World(one("idempotent")).ledger()
    ledger.add(started("a", "n1"))
    ledger.request("a")
    ledger.add(finished("a", "n1"))
    ledger.request("a")
    assert ledger.grants == []
    assert ledger.core.open_request() is None


def test_a_grant_that_nobody_takes_up_is_given_again_ever_more_rarely() -> None:
    ledger = World(one("idempotent")).ledger()
    ledger.request("a")
    ledger.sleep(TTL_S)
    assert len(ledger.grants) == 2
    ledger.sleep(2 * TTL_S)
    assert len(ledger.grants) == 3
    assert {grant.token for grant in ledger.grants} == {1}
    assert len({grant.lease_id for grant in ledger.grants}) == 1


def test_a_restart_reads_the_open_request_again_and_grants() -> None:
    world = World(one("idempotent"))
    world.ledger().request("a", offset=3)
    again = world.ledger()
    again.request("a", offset=3)
    assert len(again.grants) == 1


def test_a_stopping_job_gets_no_grant_and_its_unstarted_keys_stay_as_they_are() -> None:
    ledger = World(one("idempotent")).ledger()
    ledger.request("a", offset=3)
    ledger.add(ev.JobStopping(job_id=JOB, by="ann", reason="enough", up_to_revision=0))
    ledger.sleep(100)
    assert len(ledger.grants) == 1
    assert ledger.core.open_request() is None
    assert ledger.written() == []


def test_a_run_is_cut_before_the_first_node_that_must_be_judged_by_itself() -> None:
    plan = graph(
        {"id": "a"},
        {"id": "b", "depends_on": ["a"]},
        {"id": "c", "depends_on": ["b"], "tool": "pay"},
        act={"effect_class": "pure"},
        pay={"irreversible": True},
    )
    ledger = World(plan).ledger()
    ledger.request("a", "b", "c")
    assert ledger.grants[0].nodes == ("a", "b")


def test_a_grant_names_the_rule_of_each_of_its_nodes() -> None:
    plan = graph({"id": "a"}, {"id": "b", "depends_on": ["a"], "tool": "sms"}, act={}, sms={})
    rules = [Rule(name=f"{tool}-goes", tools=(tool,), effect=PolicyEffect.ALLOW) for tool in ("act", "sms")]
    ledger = World(plan, Policy(rules)).ledger()
    ledger.request("a", "b")
    assert (ledger.grants[0].nodes, ledger.grants[0].rules) == (("a", "b"), ("act-goes", "sms-goes"))
    first = started("a", "n1").model_copy(update={"rule": "act-goes"})
    ledger.add(first, finished("a", "n1", "retryable_failure"))
    ledger.sleep(100)
    assert (ledger.grants[-1].token, ledger.grants[-1].rules) == (2, ("act-goes",))


def test_a_run_is_cut_before_what_the_policy_denies_and_can_be_switched_off() -> None:
    plan = graph({"id": "a"}, {"id": "b", "depends_on": ["a"], "tool": "sms"}, act={}, sms={})
    policy = parse('[[rules]]\nname = "quiet"\ntools = ["sms"]\neffect = "deny"\n' + ALLOW_ALL)
    ledger = World(plan, policy).ledger()
    ledger.request("a", "b")
    assert ledger.grants[0].nodes == ("a",)
    alone = World(one("pure"), limits=limits(runs=False)).ledger()
    alone.request("a", "b")
    assert alone.grants[0].nodes == ("a",)


# policy and approval


def test_a_denied_call_is_rejected_with_the_rule() -> None:
    policy = parse('[[rules]]\nname = "never"\ntools = ["*"]\neffect = "deny"')
    ledger = World(one("pure"), policy).ledger()
    ledger.request("a")
    assert ledger.grants == []
    rejected = ledger.world.log[-1]
    assert isinstance(rejected, ev.InvocationRejected)
    assert (rejected.reason, rejected.detail) == (ev.RejectReason.POLICY, "never")
    assert ledger.state().outcome is Settled.REJECTED
    assert ledger.core.open_request() is None


def test_an_irreversible_call_is_granted_only_behind_the_recorded_word_of_the_policy() -> None:
    ledger = World(graph({"id": "a", "irreversible": True}), parse(ALLOW_ALL)).ledger()
    ledger.request("a")
    assert ledger.written() == ["policy_allowed"]
    allowed_at = len(ledger.world.log) - 1
    (grant,) = ledger.grants
    assert grant.as_of >= allowed_at
    ledger.add(started("a", "n1"))
    assert ledger.state().st is St.STARTED


@pytest.mark.parametrize(
    ("rules", "recorded"),
    [
        (ALLOW_ALL, []),
        (f'[[rules]]\nname = "few"\ntools = ["*"]\nwhen = "node.id == \'a\'"\neffect = "allow"\n{ALLOW_ALL}', ["few"]),
        (f'[[rules]]\nname = "never"\ntools = ["*"]\nwhen = "node.id == \'b\'"\neffect = "deny"\n{ALLOW_ALL}', ["all"]),
    ],
)
def test_what_a_rule_has_looked_at_is_recorded_with_the_rule_that_decides(rules: str, recorded: list[str]) -> None:
    ledger = World(graph({"id": "a"}), parse(rules)).ledger()
    ledger.request("a")
    words = [event for event in ledger.world.log if isinstance(event, ev.PolicyAllowed)]
    assert [word.rule for word in words] == recorded
    assert len(ledger.grants) == 1


def test_an_approval_is_asked_for_once_and_waited_for_in_the_log() -> None:
    world = World(graph({"id": "a", "irreversible": True}))
    ledger = world.ledger()
    ledger.request("a", offset=3)
    assert ledger.written() == ["approval_requested", "job_waiting"]
    assert ledger.core.open_request() is None
    again = world.ledger()
    again.request("a", offset=3)
    assert again.grants == []
    assert again.written() == ["approval_requested", "job_waiting"]


@pytest.mark.parametrize(("decision", "granted"), [("approve", 1), ("reject", 0), ("edit", 0)])
def test_a_humans_answer_is_followed(decision: str, granted: int) -> None:
    ledger = World(graph({"id": "a", "irreversible": True})).ledger()
    ledger.request("a")
    asked = ledger.state().requested
    assert asked is not None
    answer = ev.ApprovalDecided(
        **asked.model_dump(include={"job_id", "node_id", "idempotency_key", "args_hash", "tool_version", "rule"}),
        decision=ev.Decision(decision),
        approver="ann",
    )
    ledger.add(answer)
    assert len(ledger.grants) == granted
    assert (ledger.state().outcome is Settled.REJECTED) is not bool(granted)


def test_the_same_irreversible_call_of_a_job_is_refused_as_a_duplicate() -> None:
    plan = graph({"id": "a", "irreversible": True}, {"id": "b", "irreversible": True})
    ledger = World(plan, parse(ALLOW_ALL)).ledger()
    ledger.request("a")
    ledger.add(started("a", "n1"))
    ledger.request("b")
    assert ledger.written() == ["policy_allowed"]
    ledger.add(finished("a", "n1"))
    ledger.sleep(TTL_S)
    rejected = ledger.world.log[-1]
    assert isinstance(rejected, ev.InvocationRejected)
    assert (rejected.reason, rejected.detail) == (ev.RejectReason.DUPLICATE_OF, "a")


# retries


def test_a_proof_of_no_effect_is_retried_after_a_recorded_pause() -> None:
    world = World(one("opaque", retry={"max_attempts": 3, "backoff_s": 4.0}))
    ledger = world.ledger()
    ledger.add(started("a", "n1"), finished("a", "n1", "retryable_failure"))
    assert ledger.written() == ["retry_scheduled"]
    assert ledger.grants == []
    again = world.ledger()
    again.sleep(3.9)
    assert again.grants == []
    again.sleep(0.2)
    (grant,) = again.grants
    assert grant.token == 2
    assert again.written() == ["retry_scheduled"]


def test_a_pause_written_by_a_wrong_clock_is_no_longer_than_the_plan_says() -> None:
    world = World(one("opaque", retry={"backoff_s": 4.0}), clock_off_s=86_400.0)
    ledger = world.ledger()
    ledger.add(started("a", "n1"), finished("a", "n1", "retryable_failure"))
    world.clock_off_s = 0.0
    again = world.ledger()
    again.sleep(4.1)
    assert len(again.grants) == 1


def test_attempts_are_capped_and_the_end_names_the_cause() -> None:
    ledger = World(one("opaque", retry={"max_attempts": 1})).ledger()
    failure = finished("a", "n1", "retryable_failure").model_copy(update={"error": "NotExecuted: refused"})
    ledger.add(started("a", "n1"), failure)
    assert ledger.state().outcome is Settled.FAILED
    assert ledger.state().sure
    assert ledger.state().reason == "NotExecuted: refused"
    assert ledger.state().via is ev.Via.LEDGER


def test_a_reopened_key_of_a_stopping_job_is_settled() -> None:
    ledger = World(one("opaque", retry={"backoff_s": 100.0})).ledger()
    ledger.add(started("a", "n1"), finished("a", "n1", "retryable_failure"))
    ledger.add(ev.JobStopping(job_id=JOB, by="ann", reason="enough", up_to_revision=0))
    assert ledger.state().outcome is Settled.FAILED
    assert ledger.state().sure
    assert ledger.grants == []


# in doubt


def test_a_held_lease_is_left_alone() -> None:
    ledger = World(one("opaque")).ledger()
    ledger.request("a")
    ledger.add(started("a", "n1"))
    ledger.sleep(100)
    assert ledger.written() == []


def test_every_lease_gets_a_full_ttl_after_a_restart() -> None:
    world = World(one("opaque"))
    world.ledger().add(started("a", "n1"))
    again = world.ledger()
    again.sleep(TTL_S - 0.1)
    assert again.written() == []
    again.sleep(0.2)
    assert again.written() == ["invocation_in_doubt", "invocation_parked"]


def test_a_missing_lease_is_no_evidence_after_redis_lost_data() -> None:
    world = World(one("opaque"))
    ledger = world.ledger()
    ledger.add(started("a", "n1"))
    world.lost_s = world.now_s + 4
    ledger.sleep(4 + TTL_S + 3 - 0.1)
    assert ledger.written() == []
    ledger.sleep(0.2)
    assert ledger.state().st is St.PARKED


@pytest.mark.parametrize("effect_class", ["pure", "idempotent"])
def test_what_may_be_sent_again_is_reopened_and_granted_with_the_next_token(effect_class: str) -> None:
    ledger = World(one(effect_class)).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    assert ledger.written() == ["invocation_in_doubt", "invocation_reopened"]
    (grant,) = ledger.grants
    assert grant.token == 2
    ledger.add(started("a", "n2", token=2))
    assert ledger.state().n == "n2"
    assert ledger.state().live == {"n1", "n2"}


def test_in_doubt_from_the_executor_waits_for_no_lease() -> None:
    ledger = World(one("idempotent")).ledger()
    ledger.request("a")
    ledger.add(started("a", "n1"), about(ev.InvocationInDoubt, "a", invocation_id="n1", error_class="TimeoutError"))
    assert ledger.written() == ["invocation_reopened", "retry_scheduled"]
    ledger.sleep(0.5)
    assert [grant.token for grant in ledger.grants] == [1, 2]


def test_what_fails_again_and_again_is_repeated_at_the_plans_pace_also_after_a_restart() -> None:
    """Ten requests in a moment help nobody."""
    plan = one("idempotent", retry={"max_attempts": 10, "backoff_s": 4, "backoff_factor": 3, "max_backoff_s": 20})
    world = World(plan)
    ledger = world.ledger()
    ledger.request("a")
    for token, pause_s in ((1, 4), (2, 12), (3, 20), (4, 20)):
        nonce = f"n{token}"
        ledger.add(started("a", nonce, token=token), reported("a", nonce, returned=token % 2 == 0))
        before = len(ledger.grants)
        ledger.sleep(pause_s / 2 - 0.1)
        assert len(ledger.grants) == before
        if token == 2:
            ledger = world.ledger()
            before = 0
        ledger.sleep(pause_s)
        assert [grant.token for grant in ledger.grants[before:]][:1] == [token + 1]


def test_a_worker_that_ended_or_lost_its_lease_holds_nothing_up() -> None:
    ledger = World(one("idempotent")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    assert "retry_scheduled" not in ledger.written()
    assert ledger.grants


def test_an_opaque_call_is_parked_or_failed_as_configured() -> None:
    parked = World(one("opaque")).ledger()
    parked.add(started("a", "n1"))
    parked.lease_lapses()
    assert parked.state().st is St.PARKED
    failed = World(one("opaque"), limits=limits(on_in_doubt="fail")).ledger()
    failed.add(started("a", "n1"))
    failed.lease_lapses()
    assert failed.state().outcome is Settled.FAILED
    assert not failed.state().sure
    assert failed.state().via is ev.Via.LEDGER
    assert failed.state().reason == "failed, not sure: nobody can tell whether an opaque call took effect"


@pytest.mark.parametrize("setting", ["park", "fail"])
@pytest.mark.parametrize(
    ("job", "tool", "becomes"),
    [
        ("fail", "park", St.SETTLED),
        ("park", "fail", St.PARKED),
        ("fail", None, St.SETTLED),
        ("park", None, St.PARKED),
        (None, "fail", St.SETTLED),
        (None, "park", St.PARKED),
    ],
)
def test_the_jobs_word_goes_before_the_tools_and_that_before_the_setting(
    setting: str, job: OnInDoubt | None, tool: str | None, becomes: St
) -> None:
    pin = {"on_in_doubt": tool} if tool is not None else {}
    world = World(graph({"id": "a"}, act=pin), limits=limits(on_in_doubt=setting))
    world.log[0] = created(JobOptions(on_in_doubt=job))
    ledger = world.ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    assert ledger.state().st is becomes


@pytest.mark.parametrize("effect_class", ["opaque", "idempotent", "probeable", "pure"])
def test_an_effect_in_the_store_is_caught_up_under_its_own_nonce_whatever_the_class(effect_class: str) -> None:
    ledger = World(one(effect_class)).ledger()
    ledger.add(started("a", "n1"))
    ledger.world.effects[key_of("a")] = {"n1": effect("a", "n1", {"id": 7}), "zombie": effect("a", "zombie", 1)}
    ledger.lease_lapses()
    assert ledger.written() == ["tool_invocation_finished", "command_committed", "state_changed"]
    state = ledger.state()
    assert (state.outcome, state.settled_by, state.via, state.result) == (
        Settled.SUCCESS,
        "n1",
        ev.Via.CATCH_UP,
        {"id": 7},
    )
    assert (ledger.asks, ledger.grants) == ([], [])
    assert [record.status for record in ledger.records] == ["success"]


def test_an_effect_of_a_nonce_that_never_started_or_of_another_key_settles_nothing() -> None:
    ledger = World(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.world.effects[key_of("a")] = {"zombie": effect("a", "zombie", 1), "n1": effect("a", "zombie", 1)}
    ledger.lease_lapses()
    assert ledger.state().st is St.PARKED


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
    ledger = World(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.world.effects[key_of("a")] = {"n1": value}
    ledger.lease_lapses()
    ledger.sleep(20 * TTL_S)
    assert ledger.written() == ["invocation_in_doubt", "invocation_parked"]


def test_a_job_that_cant_be_judged_stands_still_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(one("opaque"))
    world.log += [event.model_copy(update={"job_id": "job-2"}) for event in world.log]
    world.ids += ["", ""]
    world.raises = False
    ledger = world.ledger()
    from aetheris.ledger.core import partition as core

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
    ledger = World(one("idempotent")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    ledger.world.effects[key_of("a")] = {"n1": effect("a", "n1", 1)}
    ledger.sleep(TTL_S)
    assert len(ledger.grants) == 1
    assert ledger.state().settled_by == "n1"


def test_without_redis_the_ladder_goes_on_after_a_while() -> None:
    world = World(one("idempotent"))
    ledger = world.ledger()
    ledger.add(started("a", "n1"))
    world.redis_answers, world.lost_s = False, world.now_s
    ledger.sleep(TTL_S + 3 + 3 * TTL_S - 0.1)
    assert ledger.written() == []
    ledger.sleep(TTL_S)
    assert ledger.written() == ["invocation_in_doubt", "invocation_reopened"]


def test_reopens_are_capped() -> None:
    ledger = World(one("idempotent"), limits=limits(max_tries=2)).ledger()
    for token, nonce in enumerate(("n1", "n2"), start=1):
        ledger.add(started("a", nonce, token=token))
        ledger.lease_lapses()
    assert ledger.state().st is St.PARKED
    pure = World(one("pure"), limits=limits(max_tries=1)).ledger()
    pure.add(started("a", "n1"))
    pure.lease_lapses()
    assert pure.state().outcome is Settled.FAILED


# the end of a worker


def test_the_end_of_a_worker_is_recorded_once_and_ends_the_wait() -> None:
    world = World(one("idempotent"))
    ledger = world.ledger()
    ledger.request("a")
    ledger.add(started("a", "n1"))
    world.ended[worker_ended()] = BY_LOCK
    assert ledger.core.worker_ended(worker_ended())
    ledger.settle()
    assert not ledger.core.worker_ended(worker_ended())
    assert ledger.written() == ["worker_ended", "invocation_reopened"] or ledger.written() == [
        "worker_ended",
        "invocation_in_doubt",
        "invocation_reopened",
    ]


def test_a_started_that_is_folded_after_its_workers_end_was_announced_is_concerned_too() -> None:
    world = World(one("idempotent"), ended={worker_ended(): BY_LOCK})
    ledger = world.ledger()
    ledger.add(started("a", "n1"))
    assert "worker_ended" in ledger.written()
    assert ledger.state().st is St.REOPENED
    restored = World(one("idempotent"))
    restored.log.append(started("a", "n1"))
    restored.ids.append("")
    restored.ended[worker_ended()] = BY_LOCK
    assert "worker_ended" in restored.ledger().written()


# probes


def reported(node: str, nonce: str, *, returned: bool = True) -> Event:
    """The try's own word: it has failed, and how is not known."""
    return about(ev.InvocationInDoubt, node, invocation_id=nonce, error_class="ConnectionResetError", returned=returned)


def test_a_call_whose_own_code_has_raised_is_asked_about_and_goes_on() -> None:
    """Nobody waits for the end of its worker, which lives."""
    ledger = World(one("probeable")).ledger()
    ledger.add(started("a", "n1"), reported("a", "n1"))
    ledger.answer("not_found")
    ledger.sleep(SETTLES_S - 0.1)
    assert (len(ledger.asks), ledger.state().st) == (1, St.STARTED)
    ledger.sleep(0.2)
    assert len(ledger.asks) == 2
    ledger.answer("not_found")
    assert ledger.state().st is St.REOPENED
    (said,) = [event for event in ledger.world.log if isinstance(event, ev.InvocationReopened)]
    assert (said.by, said.evidence[0]["returned"]) == ("probe", "n1")
    assert said.evidence[0]["asked_after_s"] >= SETTLES_S


def test_a_timeout_is_no_return() -> None:
    ledger = World(one("probeable")).ledger()
    ledger.add(started("a", "n1"), reported("a", "n1", returned=False))
    ledger.answer("not_found")
    ledger.sleep(2 * TTL_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().st is St.PARKED


def test_a_return_counts_from_when_it_is_read_and_anew_in_a_new_process() -> None:
    world = World(one("probeable"))
    world.ledger().add(started("a", "n1"), reported("a", "n1"))
    world.now_s += SETTLES_S + 1
    again = world.ledger()
    again.answer("not_found")
    assert again.state().st is St.STARTED
    again.sleep(SETTLES_S + 0.1)
    again.answer("not_found")
    assert again.state().st is St.REOPENED


def test_a_return_that_is_told_after_the_ledger_has_doubted_counts_too() -> None:
    ledger = World(one("probeable")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    ledger.answer("not_found")
    ledger.add(reported("a", "n1"))
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().st is St.REOPENED


def test_a_return_of_another_try_says_nothing_of_this_one() -> None:
    ledger = probing(World(one("probeable")))
    ledger.answer("not_found")
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    ledger.add(started("a", "n2", token=2, incarnation="i2"), reported("a", "n1"), reported("a", "nobody"))
    ledger.lease_lapses()
    ledger.answer("not_found")
    ledger.sleep(2 * TTL_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().st is St.PARKED


def test_an_end_that_follows_a_return_moves_nothing() -> None:
    world = World(one("probeable"))
    ledger = world.ledger()
    ledger.add(started("a", "n1"), reported("a", "n1"))
    ledger.answer("not_found")
    ledger.sleep(SETTLES_S - 0.1)
    world.ended[worker_ended()] = BY_LOCK
    ledger.core.worker_ended(worker_ended())
    ledger.sleep(0.2)
    ledger.answer("not_found")
    assert ledger.state().st is St.REOPENED


@pytest.mark.parametrize("times", [1, 2])
def test_an_opaque_call_waits_for_a_human_whoever_has_returned(times: int) -> None:
    ledger = World(one("opaque")).ledger()
    ledger.add(started("a", "n1"), *[reported("a", "n1")] * times)
    assert ledger.state().st is St.PARKED


def probing(world: World) -> Ledger:
    """A probeable try in doubt whose worker's end is recorded, first question sent."""
    ledger = world.ledger()
    ledger.add(started("a", "n1"))
    world.ended[worker_ended()] = BY_LOCK
    ledger.core.worker_ended(worker_ended())
    ledger.settle()
    return ledger


def test_what_a_probe_finds_settles_the_key() -> None:
    ledger = probing(World(one("probeable")))
    assert ledger.asks[0].external_key == external_key(JOB, "a", 0)
    ledger.answer("found", result={"id": 9}, external_id="ch_9", evidence=({"status": 200},))
    state = ledger.state()
    assert (state.outcome, state.via, state.result, state.external_id) == (
        Settled.SUCCESS,
        ev.Via.PROBE,
        {"id": 9},
        "ch_9",
    )
    assert ledger.written()[-2:] == ["tool_invocation_finished", "command_committed"]


def test_not_found_is_a_proof_only_after_the_end_and_settles_within() -> None:
    ledger = probing(World(one("probeable")))
    ledger.answer("not_found")
    assert ledger.state().st is St.STARTED
    ledger.sleep(SETTLES_S - 0.1)
    assert (len(ledger.asks), ledger.state().st) == (1, St.STARTED)
    ledger.sleep(0.2)
    assert len(ledger.asks) == 2
    ledger.answer("not_found")
    assert ledger.state().st is St.REOPENED
    assert ledger.grants[-1].token == 2


@pytest.mark.parametrize(
    ("stated", "bound_s"), [({}, 3.0), ({"settles_within_s": None}, 3.0), ({"settles_within_s": 7.0}, 7.0)]
)
def test_a_pin_that_states_no_bound_has_its_timeout(stated: dict[str, Any], bound_s: float) -> None:
    plan = graph({"id": "a"}, act={"effect_class": "probeable", "timeout_s": 3.0, **stated})
    ledger = probing(World(plan))
    ledger.answer("not_found")
    ledger.sleep(bound_s - 0.1)
    assert (len(ledger.asks), ledger.state().st) == (1, St.STARTED)
    ledger.sleep(0.2)
    ledger.answer("not_found")
    assert ledger.state().st is St.REOPENED


def test_a_bound_of_nothing_is_the_authors_word() -> None:
    ledger = probing(World(graph({"id": "a"}, act={"effect_class": "probeable", "settles_within_s": 0})))
    ledger.answer("not_found")
    assert ledger.state().st is St.REOPENED


def test_a_reopening_says_how_long_after_the_end_it_was_asked() -> None:
    ledger = probing(World(one("probeable")))
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    (said,) = [event for event in ledger.world.log if isinstance(event, ev.InvocationReopened)]
    assert SETTLES_S <= said.evidence[0]["asked_after_s"] < SETTLES_S + 1


def test_settles_within_starts_anew_in_a_new_process() -> None:
    world = World(one("probeable"))
    probing(world)
    world.now_s += SETTLES_S + 1
    again = world.ledger()
    again.answer("not_found")
    assert again.state().st is St.STARTED
    again.sleep(SETTLES_S + 0.1)
    again.answer("not_found")
    assert again.state().st is St.REOPENED


def test_an_answer_to_another_process_or_an_older_question_proves_nothing() -> None:
    world = World(one("probeable"))
    first = probing(world)
    first.sleep(SETTLES_S + 0.1)
    old, new = first.asks[0], first.asks[-1]
    assert old.ask != new.ask
    first.add(about(ev.InvocationProbed, "a", **_answered(old, "not_found")))
    assert first.state().st is St.STARTED
    second = world.ledger()
    second.add(about(ev.InvocationProbed, "a", **_answered(new, "not_found")))
    assert second.state().st is St.STARTED


def test_found_counts_whoever_asked_and_also_when_it_is_read_only_after_a_restart() -> None:
    world = World(one("probeable"))
    asked = probing(world).asks[0]
    world.log.append(about(ev.InvocationProbed, "a", **_answered(asked, "found")))
    world.ids.append("")
    assert world.ledger().state().outcome is Settled.SUCCESS


def test_what_is_found_late_belongs_to_the_try_in_charge_that_sends_the_same_key() -> None:
    ledger = probing(World(one("probeable")))
    first = ledger.asks[0]
    ledger.answer("not_found")
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().st is St.REOPENED
    ledger.add(started("a", "n2", token=2, incarnation="i2"))
    ledger.add(about(ev.InvocationProbed, "a", **_answered(first, "found")))
    assert ledger.state().settled_by == "n2"
    ledger.add(finished("a", "n2"))
    assert ledger.state().alarms == ()


def test_not_found_without_a_known_end_is_parked_after_a_last_question() -> None:
    ledger = World(one("probeable")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    ledger.answer("not_found")
    ledger.sleep(2 * TTL_S + 0.1)
    assert (len(ledger.asks), ledger.state().st) == (2, St.STARTED)
    ledger.answer("not_found")
    assert ledger.state().st is St.PARKED


def test_an_end_that_becomes_known_while_waiting_leads_to_another_question() -> None:
    world = World(one("probeable"))
    ledger = world.ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    ledger.answer("not_found")
    ledger.sleep(TTL_S)
    world.ended[worker_ended()] = BY_LOCK
    ledger.core.worker_ended(worker_ended())
    ledger.sleep(SETTLES_S + 0.1)
    assert len(ledger.asks) == 2
    ledger.answer("not_found")
    assert ledger.state().st is St.REOPENED


def asleep_and_parked(effect_class: str = "probeable", said: str = "not_found") -> Ledger:
    """In doubt, and its worker is not known to have ended: a human is asked."""
    ledger = World(one(effect_class)).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    while ledger.state().st is St.STARTED:
        ledger.answer(said)
        ledger.sleep(2 * TTL_S + 0.1)
    assert ledger.state().st is St.PARKED
    return ledger


def ends(ledger: Ledger, incarnation: str = "i1") -> None:
    """By its lock or by a person's word, all the same here."""
    ledger.world.ended[worker_ended(incarnation)] = BY_LOCK
    ledger.core.worker_ended(worker_ended(incarnation))
    ledger.settle()


@pytest.mark.parametrize("said", ["not_found", "unknown"])
def test_a_parked_call_is_asked_about_again_once_its_worker_has_ended_and_goes_on(said: str) -> None:
    ledger = asleep_and_parked(said=said)
    asked = len(ledger.asks)
    ends(ledger)
    ledger.sleep(SETTLES_S + 0.1)
    assert len(ledger.asks) > asked
    assert ledger.state().st is St.PARKED
    ledger.answer("not_found")
    assert ledger.written().count("worker_ended") == 1
    assert (ledger.state().st, ledger.written()[-1]) == (St.REOPENED, "invocation_reopened")
    assert len(ledger.grants) == 1


def test_what_is_found_of_a_parked_call_once_its_worker_has_ended_settles_it() -> None:
    ledger = asleep_and_parked()
    ends(ledger)
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("found", result={"id": 9}, external_id="ch_9")
    assert (ledger.state().outcome, ledger.state().via) == (Settled.SUCCESS, ev.Via.PROBE)


@pytest.mark.parametrize("effect_class", ["probeable", "opaque"])
def test_so_does_the_effect_that_it_left_in_the_store(effect_class: str) -> None:
    ledger = asleep_and_parked(effect_class)
    ledger.world.effects[key_of("a")] = {"n1": effect("a", "n1", {"id": 1})}
    ends(ledger)
    assert (ledger.state().outcome, ledger.state().via) == (Settled.SUCCESS, ev.Via.CATCH_UP)


def test_a_parked_call_that_says_that_it_has_returned_is_asked_about_again_too() -> None:
    ledger = asleep_and_parked()
    ledger.add(reported("a", "n1"))
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().st is St.REOPENED


def test_a_restart_between_the_end_and_the_question_asks_it() -> None:
    ledger = asleep_and_parked()
    end = ev.WorkerEnded(job_id=JOB, worker_id="w", incarnation="i1", how="lock")
    for known in (True, False):  # in the job's log already, or in the topic of workers only
        world = World(one("probeable"), ended={worker_ended(): BY_LOCK})
        world.log = [*ledger.world.log, *([end] if known else [])]
        world.ids = [""] * len(world.log)
        again = world.ledger()
        again.sleep(SETTLES_S + 0.1)
        again.answer("not_found")
        assert again.state().st is St.REOPENED


def test_a_parked_call_is_left_to_its_human_by_the_end_of_another_worker_or_of_an_opaque_one() -> None:
    other = asleep_and_parked()
    asked = len(other.asks)
    ends(other, "i2")
    other.sleep(600)
    assert (other.state().st, len(other.asks)) == (St.PARKED, asked)
    opaque = asleep_and_parked("opaque")
    ends(opaque)
    opaque.sleep(600)
    assert (opaque.state().st, opaque.core.next_due()) == (St.PARKED, None)
    assert opaque.written().count("invocation_parked") == 1


def test_when_nobody_can_tell_it_stays_parked_and_is_asked_about_no_more() -> None:
    ledger = asleep_and_parked()
    ends(ledger)
    while (asked := len(ledger.asks)) < 50:
        ledger.answer("unknown")
        ledger.sleep(120)
        if len(ledger.asks) == asked:
            break
    assert (ledger.state().st, ledger.core.next_due()) == (St.PARKED, None)
    assert ledger.written().count("invocation_parked") == 1
    ledger.resolve("not_executed")
    assert ledger.state().outcome is Settled.FAILED


@pytest.mark.parametrize("parked", [True, False])
def test_who_submitted_the_job_gets_no_other_try_by_ending_its_worker(parked: bool) -> None:
    ledger = asleep_and_parked() if parked else World(one("probeable")).ledger()
    if not parked:
        ledger.add(started("a", "n1"))
    own = Ended(incarnation="i1", how="human", by=ledger.job.created.submitted_by, evidence="it is dead")
    ledger.world.ended[worker_ended()] = own
    ledger.core.worker_ended(worker_ended())
    ledger.world.held.clear()
    for _ in range(20):
        ledger.sleep(TTL_S)
        if ledger.asks:
            ledger.answer("not_found")
    assert ledger.written().count("worker_ended") == 1
    assert "invocation_reopened" not in ledger.written()
    assert ledger.state().st is St.PARKED


def test_a_human_who_was_faster_than_the_probe_has_said_it() -> None:
    ledger = asleep_and_parked()
    ends(ledger)
    ledger.sleep(SETTLES_S + 0.1)
    ledger.resolve("retry")
    token = ledger.state().t
    ledger.answer("not_found")
    assert (ledger.state().st, ledger.state().t) == (St.REOPENED, token)


def test_dont_know_is_asked_again_then_parked() -> None:
    ledger = probing(World(one("probeable")))
    ledger.answer("unknown")
    ledger.sleep(1.1)
    ledger.answer("unknown")
    ledger.sleep(31)
    assert len(ledger.asks) >= 3
    assert ledger.state().st is St.STARTED
    ledger.sleep(31)
    assert ledger.state().st is St.PARKED


def _answered(asked: Verification, said: str) -> dict[str, Any]:
    return {
        "invocation_id": asked.invocation_id,
        "external_key": asked.external_key,
        "ask": asked.ask,
        "answer": ev.Answer(said),
    }


# humans


@pytest.fixture
def parked() -> Ledger:
    ledger = World(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    return ledger


@pytest.mark.parametrize(
    ("verdict", "outcome", "grants"),
    [("happened", Settled.SUCCESS, 0), ("not_executed", Settled.FAILED, 0), ("retry", None, 1)],
)
def test_a_human_resolves_what_is_parked(parked: Ledger, verdict: str, outcome: Settled | None, grants: int) -> None:
    parked.resolve(verdict, result={"id": 3})
    assert parked.state().outcome is outcome
    assert len(parked.grants) == grants
    words = [event for event in parked.world.log if event.caused_by == "cmd-1"]
    assert words
    assert "bob" in words[0].model_dump_json()
    assert not parked.state().sure or outcome is None


WHOSE = "who submitted the job may not resolve its calls in doubt: somebody else must"


@pytest.mark.parametrize("verdict", ["happened", "not_executed", "retry"])
@pytest.mark.parametrize("word", [{"by": "ann"}, {"tenant": "other"}])
def test_who_may_not_resolve_says_nothing(parked: Ledger, verdict: str, word: dict[str, str]) -> None:
    log = parked.written()
    parked.resolve(verdict, **word)
    assert parked.written() == log
    assert (parked.state().st, parked.core.open_command()) == (St.PARKED, None)
    (said,) = parked.core.unheard
    assert said.why == ("the job is another tenant's" if "tenant" in word else WHOSE)


@pytest.mark.parametrize(
    ("rule", "may"),
    [
        ("", {"ann": False, "bob": True}),
        ("self_approval = true\n", {"ann": True, "bob": True}),
        ('approvers = ["carol"]\n', {"ann": False, "bob": False, "carol": True}),
        ('self_approval = true\napprovers = ["carol"]\n', {"ann": False, "carol": True}),
    ],
)
def test_the_rule_that_let_a_call_run_says_who_resolves_it(rule: str, may: dict[str, bool]) -> None:
    """Whatever the policy says by then: it is recorded when the call is parked."""
    for who, allowed in may.items():
        world = World(one("opaque"), parse(f"{ALLOW_ALL}\n{rule}"))
        ledger = world.ledger()
        ledger.add(started("a", "n1").model_copy(update={"rule": "all"}))
        ledger.lease_lapses()
        assert ledger.state().st is St.PARKED
        world.policy = parse(ALLOW_ALL)
        again = world.ledger()
        again.resolve("not_executed", by=who)
        assert (again.state().st is St.SETTLED) is allowed, who


def test_a_word_on_what_is_not_parked_is_ignored() -> None:
    ledger = World(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.resolve("not_executed")
    assert ledger.core.open_command() is None
    assert ledger.state().st is St.STARTED


def test_a_word_waits_for_the_fold_of_the_one_who_sent_it_however_long_that_takes() -> None:
    ledger = World(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.world.held.add(key_of("a"))
    ledger.resolve("happened", result=1, as_of=len(ledger.world.log))
    ledger.sleep(100 * TTL_S)
    assert (ledger.core.open_command(), ledger.core.waits_for_fold) == (7, True)
    ledger.add(about(ev.InvocationParked, "a", invocation_id="n1", reason="x"))
    assert ledger.state().outcome is Settled.SUCCESS
    assert ledger.core.open_command() is None


# what is kept


def test_a_sealed_job_is_forgotten_and_frees_the_mark() -> None:
    ledger = World(one("pure")).ledger()
    assert [birth for _, birth in ledger.core.live()] == [0]
    ledger.add(started("a", "n1"), finished("a", "n1"), ev.JobCompleted(job_id=JOB), _seal())
    assert [*ledger.core.live()] == []
    assert ledger.core.jobs == {}
    assert [record.status for record in ledger.records] == ["success"]


def test_a_job_that_needs_an_upgrade_is_left_alone() -> None:
    ledger = World(one("pure")).ledger()
    ledger.add(started("a", "n1"))
    ledger.core.needs_upgrade(JOB, 99)
    ledger.lease_lapses()
    ledger.request("b")
    assert ledger.written() == []
    assert ledger.grants == []


@pytest.mark.parametrize("plan", [one("idempotent"), one("opaque"), one("probeable")])
def test_two_ledgers_that_decide_the_same_write_the_same_ids(plan: dict[str, Any]) -> None:
    def decided() -> Sequence[str]:
        ledger = World(plan).ledger()
        ledger.add(started("a", "n1"))
        ledger.lease_lapses()
        return [id_ for id_ in ledger.world.ids if id_]

    assert decided() == decided()
    assert decided()


def _seal() -> ev.JobSealed:
    hashes = {"root": "r", "execution_hash": "e", "outcome_hash": "o", "sealed_at": "", "signature": "s", "key_id": "k"}
    return ev.JobSealed(job_id=JOB, tenant=TENANT, event_count=1, **hashes)


# everything at once


@dataclass
class Outside:
    """The world that calls change, an executor that may die at any point, and zombies of both."""

    world: World
    random: random.Random
    ledgers: list[Ledger] = field(default_factory=list[Ledger])
    seen: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    landing: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """When each effect lands, and the external key that it carries."""
    late: list[tuple[str, ev.ToolInvocationStarted]] = field(default_factory=list[tuple[str, ev.ToolInvocationStarted]])
    """Incarnations that still live, with a call that they have not made yet."""
    nonces: int = 0

    def landed(self) -> list[str]:
        return [key for at_s, key in self.landing if at_s <= self.world.now_s]

    def ledger(self) -> Ledger:
        """A new process; the ones before it may wake up as zombies."""
        ledger = self.world.ledger()
        self.ledgers.append(ledger)
        return ledger

    def serve(self, ledger: Ledger) -> None:
        """Take up what a ledger has sent."""
        grants, asks = self.seen.get(id(ledger), (0, 0))
        self.seen[id(ledger)] = (len(ledger.grants), len(ledger.asks))
        for asked in ledger.asks[asks:]:
            self._probe(ledger, asked)
        for grant in ledger.grants[grants:]:
            if self.random.random() < 0.8:
                self._run(grant)

    def _probe(self, ledger: Ledger, asked: Verification) -> None:
        if self.random.random() < 0.2:
            return
        there = asked.external_key in self.landed()
        said = "unknown" if self.random.random() < 0.1 else "found" if there else "not_found"
        ledger.add(about(ev.InvocationProbed, "a", **_answered(asked, said)))

    def _run(self, grant: ToolGrant) -> None:
        self.nonces += 1
        nonce, incarnation = f"n{self.nonces}", f"i{self.nonces}"
        before = fold_of(self.world)
        known = before.keys.get(grant.idempotency_key)
        attempt = known.x - 1 if known is not None else 0
        mine = started("a", nonce, token=grant.token, attempt=attempt, incarnation=incarnation)
        self._append(mine)
        state = fold_of(self.world).keys[grant.idempotency_key]
        if state.st is not St.STARTED or state.n != nonce:
            return
        if self.random.random() < 0.5:
            self.world.held.add(grant.idempotency_key)
        self._act(mine, incarnation)

    def _act(self, mine: ev.ToolInvocationStarted, incarnation: str) -> None:
        fate = self.random.choice(["reports", "unsent", "dies", "dies after the call", "pauses", "timeout"])
        if fate == "reports":
            self._call(mine, 0.0)
            self._append(finished("a", mine.invocation_id, result=mine.external_key))
        elif fate == "unsent":
            self._append(finished("a", mine.invocation_id, "retryable_failure"))
        elif fate == "pauses":
            self.late.append((incarnation, mine))
        else:
            if fate != "dies":
                self._call(mine, self.random.uniform(0, SETTLES_S))
            if fate == "dies after the call" and self.random.random() < 0.5:
                self.world.effects[key_of("a")] = {mine.invocation_id: effect("a", mine.invocation_id, 1)}
            if fate == "timeout":
                nonce = mine.invocation_id
                self._append(about(ev.InvocationInDoubt, "a", invocation_id=nonce, error_class="TimeoutError"))
            self._end(incarnation)

    def _call(self, mine: ev.ToolInvocationStarted, delay_s: float) -> None:
        self.landing.append((self.world.now_s + delay_s, mine.external_key))

    def _end(self, incarnation: str) -> None:
        if self.random.random() < 0.7:
            self.world.ended[worker_ended(incarnation)] = Ended(incarnation=incarnation, how="lock")
            for ledger in self.ledgers:
                ledger.core.worker_ended(worker_ended(incarnation))

    def wake_late(self) -> None:
        """A paused executor goes on, as a zombie or not; or it is found dead."""
        if self.late:
            incarnation, mine = self.late.pop(self.random.randrange(len(self.late)))
            if self.random.random() < 0.5:
                self._call(mine, 0.0)
                self._append(finished("a", mine.invocation_id, result=mine.external_key))
            else:
                self._end(incarnation)

    def _append(self, event: Event) -> None:
        self.world.log.append(event)
        self.world.ids.append("")


def fold_of(world: World) -> JobState:
    return fold(*world.log[1:])


@pytest.mark.parametrize("effect_class", ["opaque", "probeable", "idempotent"])
@pytest.mark.parametrize("seed", range(60))
def test_whatever_dies_a_call_takes_effect_at_most_once_and_ends(effect_class: str, seed: int) -> None:
    world = World(one(effect_class, retry={"max_attempts": 6, "backoff_s": 1.0}))
    outside = Outside(world, random.Random(f"{effect_class}{seed}"))  # noqa: S311 - a seeded test
    ledger = outside.ledger()
    ledger.request("a")
    for _ in range(40):
        step = outside.random.random()
        if step < 0.1:
            world.effects.clear()
            world.held.clear()
            world.lost_s = world.now_s
        elif step < 0.25:
            ledger = outside.ledger()
            ledger.request("a")
        elif step < 0.35:
            outside.wake_late()
        else:
            outside.random.choice(outside.ledgers).sleep(outside.random.uniform(0, 2 * TTL_S))
        world.held.clear()
        for one_of_them in outside.ledgers:
            one_of_them.settle()
            outside.serve(one_of_them)
    while outside.late:
        outside.wake_late()
    for _ in range(60):
        ledger.sleep(10 * TTL_S)
        world.held.clear()
        outside.serve(ledger)
    state = fold_of(world).keys[key_of("a")]
    calls = [key for _, key in outside.landing]
    assert state.st in (St.SETTLED, St.PARKED)
    if effect_class == "idempotent":
        assert len(set(calls)) <= 1
    else:
        assert len(calls) <= 1
    if state.outcome is Settled.SUCCESS:
        assert calls
    if state.st is St.SETTLED and state.sure:
        assert not calls


def test_a_sealed_job_is_not_born_again() -> None:
    world = World(one("opaque"))
    ledger = world.ledger()
    seal = {
        "event_count": 1,
        "root": "",
        "execution_hash": "",
        "outcome_hash": "",
        "sealed_at": "",
        "signature": "",
        "key_id": "",
    }
    ledger.add(ev.JobSealed.model_validate({"job_id": JOB, "tenant": TENANT} | seal))
    ledger.add(created(), planned(world.plan))
    assert JOB not in ledger.core.jobs
    assert [*ledger.core.live()] == []


# a cancel


def cancelled(*, compensate: bool = False) -> tuple[Event, Event]:
    requested = ev.CancelRequested(job_id=JOB, by="bob", caused_by="cmd", compensate=compensate)
    return requested, ev.JobStopping(job_id=JOB, by="bob", reason="cancelled", up_to_revision=0)


def test_a_cancel_settles_what_is_parked_as_failed_and_not_sure() -> None:
    world = World(one("opaque"))
    ledger = world.ledger()
    ledger.add(started("a", "n1"), about(ev.InvocationParked, "a", invocation_id="n1", reason="r"))
    ledger.add(*cancelled())
    state = ledger.state()
    assert (state.st, state.outcome, state.sure, state.via) == (St.SETTLED, Settled.FAILED, False, ev.Via.HUMAN)
    said = world.log[-1]
    assert isinstance(said, ev.ToolInvocationFinished)
    assert (said.by, said.caused_by, said.evidence) == ("bob", "cmd", {"effect": "possible"})


def test_what_is_parked_after_the_cancel_and_before_a_restart_is_settled_too() -> None:
    world = World(one("opaque"))
    ledger = world.ledger()
    ledger.add(started("a", "n1"), *cancelled())
    assert ledger.state().st is St.STARTED
    world.log.append(about(ev.InvocationParked, "a", invocation_id="n1", reason="r"))
    world.ids.append("")
    assert world.ledger().state().outcome is Settled.FAILED


def test_a_compensation_that_is_parked_waits_for_a_human_also_under_a_cancel() -> None:
    world = World(one("opaque", compensate_with={"tool": "act"}))
    ledger = world.ledger()
    ledger.add(started("a", "n1"), finished("a", "n1"), *cancelled(compensate=True))
    ledger.add(planned(graph({"id": "a.undo", "compensates": "a"}), 1))
    ledger.add(started("a.undo", "u1", revision=1))
    ledger.add(about(ev.InvocationParked, "a.undo", invocation_id="u1", reason="r"))
    assert ledger.state("a.undo").st is St.PARKED


def test_a_request_that_a_stop_makes_needless_is_closed() -> None:
    world = World(one("opaque", irreversible=True), policy=load(None))
    ledger = world.ledger()
    ledger.request("a")
    assert ledger.state().requested is not None
    ledger.add(*cancelled())
    assert (ledger.state().outcome, ledger.state().reason) == (Settled.REJECTED, "cancelled")


def test_a_compensation_is_granted_behind_a_stop_and_nothing_else_is() -> None:
    plan = graph({"id": "a", "compensate_with": {"tool": "act"}}, {"id": "b"})
    world = World(plan, policy=parse(ALLOW_ALL))
    ledger = world.ledger()
    ledger.add(started("a", "n1"), finished("a", "n1"), *cancelled(compensate=True))
    undo = planned(graph({"id": "a.undo", "compensates": "a"}), 1)
    ledger.add(undo)
    ledger.request("b", revision=1, plan_hash=undo.plan_hash)
    assert ledger.grants == []
    ledger.request("a.undo", offset=1, revision=1, plan_hash=undo.plan_hash)
    assert [grant.nodes for grant in ledger.grants] == [("a.undo",)]
