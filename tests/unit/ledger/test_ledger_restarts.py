"""What a ledger keeps, and what it does whatever dies."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from aetheris.protocol.fold.state import JobState, KeyStatus, Settled
from aetheris.protocol.fold.workers import Ended
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    ToolGrant,
    Verification,
)
from aetheris.protocol.messages.events import Event
from tests.testkit.histories import JOB, about, created, finished, fold, key_of, planned, sealed, started
from tests.testkit.ledgers import SETTLES_S, TTL_S, Ledger, Surroundings, answered, effect, one, worker_ended


def test_a_sealed_job_is_forgotten_and_frees_the_mark() -> None:
    ledger = Surroundings(one("pure")).ledger()
    assert [creation_offset for _, creation_offset in ledger.core.live()] == [0]
    ledger.add(started("a", "n1"), finished("a", "n1"), ev.JobCompleted(job_id=JOB), sealed())
    assert [*ledger.core.live()] == []
    assert not list(ledger.core.jobs)
    assert [record.status for record in ledger.records] == ["success"]


def test_a_job_that_needs_an_upgrade_is_left_alone() -> None:
    ledger = Surroundings(one("pure")).ledger()
    ledger.add(started("a", "n1"))
    ledger.core.needs_upgrade(JOB, 99)
    ledger.lease_lapses()
    ledger.request("b")
    assert ledger.written() == []
    assert ledger.grants == []


def test_what_is_asked_of_it_is_kept_for_who_can_read_it() -> None:
    """Also of a plan that this version does not know; of a job that is none it is let go."""
    ledger = Surroundings(one("pure")).ledger()
    ledger.core.needs_upgrade(JOB, 99)
    ledger.request("a", offset=4, revision=1, plan_hash="of a plan that cannot be read")
    ledger.core.needs_upgrade("job-born-later", 100, is_birth=True)
    ledger.request("a", offset=5, job_id="job-born-later")
    assert ledger.core.open_request() == 4
    of_none = Surroundings(one("pure")).ledger()
    of_none.request("a", offset=6, job_id="no-job")
    of_none.core.needs_upgrade("job-born-later", 100, is_birth=True)
    of_none.request("a", offset=7, job_id="job-born-later")
    assert of_none.core.open_request() == 7


@pytest.mark.parametrize("plan", [one("idempotent"), one("opaque"), one("probeable")])
def test_two_ledgers_that_decide_the_same_write_the_same_ids(plan: dict[str, Any]) -> None:
    def decided() -> Sequence[str]:
        ledger = Surroundings(plan).ledger()
        ledger.add(started("a", "n1"))
        ledger.lease_lapses()
        return [id_ for id_ in ledger.surroundings.ids if id_]

    assert decided() == decided()
    assert decided()


@dataclass
class ExecutorsAndExternalSystem:
    """The external system that calls change, an executor that may die at any point, and zombies of both."""

    surroundings: Surroundings
    random: random.Random
    ledgers: list[Ledger] = field(default_factory=list[Ledger])
    seen: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    landing: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """When each effect lands, and the external key that it carries."""
    late: list[tuple[str, ev.ToolInvocationStarted]] = field(default_factory=list[tuple[str, ev.ToolInvocationStarted]])
    """Incarnations that still live, with a call that they have not made yet."""
    invocation_ids: int = 0

    def landed(self) -> list[str]:
        return [key for at_s, key in self.landing if at_s <= self.surroundings.now_s]

    def ledger(self) -> Ledger:
        """A new process; the ones before it may wake up as zombies."""
        ledger = self.surroundings.ledger()
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
        text = "unknown" if self.random.random() < 0.1 else "found" if there else "not_found"
        ledger.add(about(ev.InvocationProbed, "a", **answered(asked, text)))

    def _run(self, grant: ToolGrant) -> None:
        self.invocation_ids += 1
        invocation_id, incarnation = f"n{self.invocation_ids}", f"i{self.invocation_ids}"
        before = fold_of(self.surroundings)
        known = before.keys.get(grant.idempotency_key)
        attempt = known.external_attempt - 1 if known is not None else 0
        mine = started("a", invocation_id, token=grant.token, attempt=attempt, incarnation=incarnation)
        self._append(mine)
        state = fold_of(self.surroundings).keys[grant.idempotency_key]
        if state.status is not KeyStatus.STARTED or state.current_invocation != invocation_id:
            return
        if self.random.random() < 0.5:
            self.surroundings.held.add(grant.idempotency_key)
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
                self.surroundings.effects[key_of("a")] = {mine.invocation_id: effect("a", mine.invocation_id, 1)}
            if fate == "timeout":
                invocation_id = mine.invocation_id
                self._append(about(ev.InvocationInDoubt, "a", invocation_id=invocation_id, error_class="TimeoutError"))
            self._end(incarnation)

    def _call(self, mine: ev.ToolInvocationStarted, delay_s: float) -> None:
        self.landing.append((self.surroundings.now_s + delay_s, mine.external_key))

    def _end(self, incarnation: str) -> None:
        if self.random.random() < 0.7:
            self.surroundings.ended[worker_ended(incarnation)] = Ended(incarnation=incarnation, how="lock")
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
        self.surroundings.log.append(event)
        self.surroundings.ids.append("")


def fold_of(surroundings: Surroundings) -> JobState:
    return fold(*surroundings.log[1:])


@pytest.mark.parametrize("effect_class", ["opaque", "probeable", "idempotent"])
@pytest.mark.parametrize("seed", range(60))
def test_whatever_dies_a_call_takes_effect_at_most_once_and_ends(effect_class: str, seed: int) -> None:
    surroundings = Surroundings(one(effect_class, retry={"max_attempts": 6, "backoff_s": 1.0}))
    external = ExecutorsAndExternalSystem(surroundings, random.Random(f"{effect_class}{seed}"))  # noqa: S311 - a seeded test
    ledger = external.ledger()
    ledger.request("a")
    for _ in range(40):
        step = external.random.random()
        if step < 0.1:
            surroundings.effects.clear()
            surroundings.held.clear()
            surroundings.lost_s = surroundings.now_s
        elif step < 0.25:
            ledger = external.ledger()
            ledger.request("a")
        elif step < 0.35:
            external.wake_late()
        else:
            external.random.choice(external.ledgers).sleep(external.random.uniform(0, 2 * TTL_S))
        surroundings.held.clear()
        for one_of_them in external.ledgers:
            one_of_them.settle()
            external.serve(one_of_them)
    while external.late:
        external.wake_late()
    for _ in range(60):
        ledger.sleep(10 * TTL_S)
        surroundings.held.clear()
        external.serve(ledger)
    state = fold_of(surroundings).keys[key_of("a")]
    calls = [key for _, key in external.landing]
    assert state.status in (KeyStatus.SETTLED, KeyStatus.PARKED)
    if effect_class == "idempotent":
        assert len(set(calls)) <= 1
    else:
        assert len(calls) <= 1
    if state.outcome is Settled.SUCCESS:
        assert calls
    if state.status is KeyStatus.SETTLED and state.sure:
        assert not calls


def test_a_sealed_job_is_not_born_again() -> None:
    surroundings = Surroundings(one("opaque"))
    ledger = surroundings.ledger()
    ledger.add(sealed())
    ledger.add(created(), planned(surroundings.plan))
    assert JOB not in ledger.core.jobs
    assert [*ledger.core.live()] == []
