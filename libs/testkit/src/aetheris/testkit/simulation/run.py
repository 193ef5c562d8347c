"""One run: a seed, its jobs, its faults, and what came of it (docs/simulation.md)."""

import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.workers import LOCK
from aetheris.protocol.messages.commands import (
    FreezeAnswer,
    FreezeBarrier,
    FreezeOrder,
    JobIndexEntry,
    PolicyBarrier,
    RulesBarrier,
)
from aetheris.protocol.messages.events import WorkerEnded
from aetheris.runtime.keys.records import UNSIGNED
from aetheris.testkit.simulation import seeds
from aetheris.testkit.simulation.ablations import NONE, Ablation, Replace, replaced
from aetheris.testkit.simulation.actors.administrator import Administrator
from aetheris.testkit.simulation.actors.human import Human
from aetheris.testkit.simulation.body_faults import BODIES as FLOW_FAULTS
from aetheris.testkit.simulation.body_faults import EDITS_OF_CODE
from aetheris.testkit.simulation.body_watch import BodyWatch
from aetheris.testkit.simulation.checks import (
    Broken,
    Rest,
    SimulationObserver,
    check_effect,
    check_end,
    check_folds,
    check_lines,
)
from aetheris.testkit.simulation.external_system import EARLY, RAISES, ExternalCall, SimulatedExternalSystem
from aetheris.testkit.simulation.faults import SimulatedFaults
from aetheris.testkit.simulation.flows import AS_IT_WAS
from aetheris.testkit.simulation.installation import SimRecords, keys_of
from aetheris.testkit.simulation.log import Entry, SimLog, history_text
from aetheris.testkit.simulation.outcome import RunOutcome
from aetheris.testkit.simulation.processes import Processes
from aetheris.testkit.simulation.proof_checks import check_proofs
from aetheris.testkit.simulation.quarantines import may_hold
from aetheris.testkit.simulation.relayer import lay_again
from aetheris.testkit.simulation.restarts import check_restarts
from aetheris.testkit.simulation.scenario import ASKING, TTL_S, Lasting, draw_flows, draw_scenario
from aetheris.testkit.simulation.stores import SimRedis
from aetheris.testkit.simulation.surroundings import ScheduledAction, SimulationSurroundings
from aetheris.testkit.simulation.tape import Tape
from aetheris.testkit.simulation.words import check_listed, check_words

LONGEST = 4000
"""Actions after which a run that has not come to rest counts as stuck."""
LONGEST_REST_S = 600.0
"""Virtual time without faults after which nothing more is waited for: what is open then is stuck."""
BETWEEN_FAULTS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsOutcome(RunOutcome):
    """Of the services of a system: the choices that were made, and in how many actions."""

    steps: int
    tape: tuple[int, ...]


_WORDS: Mapping[str, Replace] = {
    "aetheris.tool_executor.core.tries.FIRST_CALLS": lambda _: 5,
    "aetheris.tool_executor.core.tries.MAX_CHILDREN": lambda _: 60,
}
"""A first body can plan so few calls, a later one so many."""

_REACH: tuple[str, ...] = ("aetheris.protocol.fold.births.REACH", "aetheris.proofs.authorship.REACH")


_KNOWN: tuple[str, ...] = ("aetheris.protocol.messages.event_base.KNOWN_RULES", "aetheris.proofs.records.KNOWN_RULES")


class SimulationRun:
    """A log, an external system, and every service."""

    def __init__(
        self,
        tape: Tape,
        *,
        gate: str = "log",
        locks: str = "inherited",
        codec: bool = False,
        forger: bool = False,
        grants: bool = False,
        rooted: bool = False,
        activates: bool = False,
        orders_rules: bool = False,
        bodies: bool = False,
        unserved: bool = False,
        mixed: bool = False,
        longest: int = LONGEST,
        compared: bool = True,
    ) -> None:
        """`rooted`: the installation has a root, and its services sign; `forger`: somebody writes what he likes, and
        reports of tries alone where nobody signs; `activates`: somebody activates policies;
        `grants`: he forges grants, and humans are asked about more;
        `orders_rules`: somebody orders later rules; `bodies`: the jobs are workflows;
        `unserved`: calls wait for executors; `mixed`: some processes are of a newer version;
        `compared`: whether folds are, before all has come to rest.
        """
        self.steps = 0
        self._compared = compared
        self._forger = forger
        self._longest = longest
        self.tape = tape
        self.external = SimulatedExternalSystem()
        log = SimLog(tape, partial(self._landed, 0), codec=codec)
        scenario = draw_flows(tape) if bodies else draw_scenario(tape)
        self._grants = grants
        if grants:
            scenario = replace(scenario, policy=ASKING[scenario.policy.hash])
        redis = SimRedis(TTL_S)
        self.around = SimulationSurroundings(
            tape, scenario, log, redis, self.external, self._sent, gate, locks, rooted=rooted, activates=activates
        )
        self.around.unserved = unserved
        self.around.mixed = mixed
        records = SimRecords(keys_of(Party.PLANNER)) if rooted else SimRecords()
        watch = BodyWatch(self.around.asked, self.around.deployed)
        self.observer = SimulationObserver(
            scenario.number_of, records, self.around.activations, self.around.rules, watch
        )
        others = [self._beside(number, codec=codec) for number in range(1, scenario.partitions)]
        self.parts = (self.around, *others)
        self.processes = Processes(self.parts)
        self.human = Human(
            self.parts,
            self.observer.jobs,
            self.observer.freezes.orders,
            self.processes.unproven,
            self.processes.quarantined,
            records=self.observer.records,
        )
        self.administrator = Administrator(self.parts, seeds.LATER_RULES if orders_rules else 0)
        self.faults = SimulatedFaults(self.parts, self.processes, self.human, self.observer, self._pass_time)
        if bodies:
            self.faults.kinds = (*FLOW_FAULTS, *(EDITS_OF_CODE if tape.chance(0.5) else ()))
        if activates:
            self.faults.more = seeds.OFTEN * self.administrator.faults(self.faults.ledger_becomes_zombie)

    def _beside(self, number: int, *, codec: bool) -> SimulationSurroundings:
        log = SimLog(self.tape, partial(self._landed, number), codec=codec, beside=self.around.log, number=number)
        return self.around.beside(number, log)

    def _sent(self, call: ExternalCall) -> None:
        self.observer.sent(call)

    def events(self) -> list[Entry]:
        """What all partitions hold, each in its order."""
        return [entry for part in self.parts for entry in part.log.topics[Topic.JOBS_EVENTS]]

    def go(self) -> None:
        """From the submissions to the rest after the last fault.

        Raises:
            Broken: a promise was.
        """
        with self.in_reach():
            self._go()
            if self.around.rooted:
                lay_again(self, self.tape)

    def in_reach(self) -> AbstractContextManager[None]:
        """Births count as far on as the scenario says, and all rules are known that are ordered."""

        def reach(_: Any) -> int:
            return self.around.scenario.reach

        def known(_: Any) -> frozenset[int]:
            return frozenset(range(1, 2 + seeds.LATER_RULES))

        functions: dict[str, Replace] = dict.fromkeys(_REACH, reach) | dict.fromkeys(_KNOWN, known)
        return replaced({**functions, **_WORDS})

    def _go(self) -> None:
        self.processes.start_all()
        for submission in self.around.scenario.submissions:
            self.human.submit(submission)
        self._storm()
        self._calm()
        expected = [one.job_id for one in self.around.scenario.submissions]
        check_end(self.observer, self.external, expected, self._rest())
        if not self.observer.freezes.is_answered(len(self.parts)):
            raise Broken("freezes_are_answered", "a partition has not answered an order")
        if not self.around.activations.is_answered(len(self.parts)):
            raise Broken("activations_are_answered", "a partition has not answered the last one")
        if not self.around.rules.is_answered(len(self.parts)):
            raise Broken("rules_are_answered", "a partition has not answered the last order")
        check_words(self.human.words, self.around.progress.passed_over, self.observer.jobs)
        check_listed(self.observer.jobs, self.around.index)
        check_lines((entry.body for entry in self.around.log.topics[Topic.LEDGER_CONTENTS]), self.observer.jobs)
        self._check_folds()
        self._check_replays()
        check_proofs((part.log for part in self.parts), self.observer, self.external)

    def _check_replays(self) -> None:
        for job in self.observer.jobs.values():
            lies_there = self.parts[self.around.scenario.number_of(job.job_id)].log
            entries = [
                one
                for one in lies_there.topics[Topic.JOBS_EVENTS][job.creation_offset :]
                if one.body.job_id == job.job_id and one.record.offset not in lies_there.forged
            ]
            strange = self.observer.bodies.check_replay(job, entries)
            if strange is not None:
                raise Broken("a_replay_makes_the_same_calls", strange)

    def _rest(self) -> Rest:
        scenario, lasting = self.around.scenario, self.around.lasting
        decided = lasting is not Lasting.NOBODY_DECIDES
        return Rest(
            mended=lasting in (None, Lasting.NOBODY_DECIDES),
            decided=decided,
            resolved=scenario.humans_resolve and decided,
            never_begun=self.processes.never_begun,
            max_tries=scenario.limits.max_tries,
        )

    # the two phases

    def _storm(self) -> None:
        """Anything in any order, and faults."""
        until_fault = self.tape.below(BETWEEN_FAULTS)
        while self.faults.count < self.around.scenario.faults:
            if until_fault == 0:
                if self._compared:
                    self._check_folds()
                self.faults.strike()
                if self._forger and self.tape.chance(0.7):
                    if self.tape.chance(0.2):
                        self.around.say(f"*** {self.faults.worker_is_forged()}")
                    of_a_try = not self.around.rooted or self.tape.chance(0.4)
                    forged = self.faults.report_is_forged() if of_a_try else self.faults.record_is_forged()
                    self.around.say(f"*** {forged}")
                    if self._grants:
                        self.around.say(f"*** {self.faults.grant_is_forged()}")
                until_fault = 1 + self.tape.below(BETWEEN_FAULTS)
            until_fault -= 1
            if not self.step(0.03):
                until_fault = 0

    def _calm(self) -> None:
        """No more faults: whatever can be done is, time passes only when nothing else does."""
        self.around.progress.calm = True
        for part in self.parts:
            part.log.calm = True
        self.around.redis.up = True
        self.around.fates.clear()
        self.around.broken.clear()
        if self.around.deployed[-1] != AS_IT_WAS:
            self._roll_back()
        self.processes.heal()
        rests_from_s = self.around.now_s
        while self.step(0.0) or not self._at_rest():
            if self.around.now_s > rests_from_s + LONGEST_REST_S:
                return

    def _roll_back(self) -> None:
        """The code that was there first is there again, everywhere."""
        self.around.deployed.append(AS_IT_WAS)
        for executor in tuple(self.processes.executors):
            if executor in self.processes.executors:
                self.processes.end(executor)

    def _at_rest(self) -> bool:
        """Nothing can be done now, nothing is due, and no human has anything left to say: else time goes on."""
        if self._over():
            return True
        passed = self._pass_time(0.0)
        self.human.ask_again()
        return not passed and not self.human.actions() and not self.administrator.actions()

    def _over(self) -> bool:
        jobs = self.observer.jobs
        done = len(jobs) == len(self.around.scenario.submissions) and all(job.terminal for job in jobs.values())
        answered = self.observer.freezes.is_answered(len(self.parts)) and not any(self.human.frozen())
        answered = answered and self.around.activations.is_answered(len(self.parts))
        answered = answered and self.around.rules.is_answered(len(self.parts)) and not self.administrator.actions()
        return done and answered and not any(call.may_land for call in self.external.under_way)

    def step(self, impatience: float) -> bool:
        """One action; False where there was none."""
        self.steps += 1
        if self.steps > self._longest:
            raise Broken("too_long", f"it does not come to rest within {self._longest} steps")
        if impatience and self.tape.chance(impatience):
            self._pass_time(self.tape.pick((0.0, TTL_S / 3, 2 * TTL_S)))
        actions = self._actions()
        if not actions:
            return False
        action = self.tape.pick(actions)
        self.around.say(action.name)
        action.do()
        self._check_judged()
        self._check_quarantines()
        return True

    def _actions(self) -> list[ScheduledAction]:
        found = [
            ScheduledAction("", partial(part.log.land, writer, topic))
            for part in self.parts
            for writer, topic in part.log.under_way()
        ]
        for call in self.external.under_way:
            if call.may_land and call.lands_from_s <= self.around.now_s:
                found.append(ScheduledAction(f"{call.invocation_id} takes effect", partial(self._land, call)))
            if not call.answered and (call.landed or call.gone or call.fate in EARLY):
                found.append(ScheduledAction(f"{call.invocation_id} is answered", partial(self._answer, call)))
        found += self.processes.actions()
        found += self.human.actions()
        found += self.administrator.actions()
        found += self.processes.returns()
        if not self.around.redis.up:
            found.append(ScheduledAction("Redis is back", self._redis_returns))
        return found

    # what happens

    def _landed(self, number: int, topic: Topic, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if isinstance(entry.body, FreezeBarrier):
                self.observer.freezes.passed(number, entry.body, entry.record.offset)
            elif isinstance(entry.body, PolicyBarrier):
                self.around.activations.passed(number, entry.body, entry.record.offset)
            elif isinstance(entry.body, RulesBarrier):
                self.around.rules.passed(number, entry.body, entry.record.offset)
            elif topic is Topic.POLICIES:
                strange = self.around.activations.told(entry.id, entry.body) or self.around.rules.told(entry.body)
                if strange is not None:
                    raise Broken("an_answer_has_its_barrier", strange)
            elif isinstance(entry.body, FreezeOrder | FreezeAnswer):
                self.observer.freezes.told(entry.body)
            elif topic is Topic.JOBS_EVENTS:
                forged = entry.record.offset in self.parts[number].log.forged
                self.observer.record(entry, forged=forged)
                if isinstance(entry.body, WorkerEnded) and entry.body.how == LOCK and not forged:
                    self._check_ended(entry.body)
                if entry.body.job_id in self.observer.jobs:
                    self.human.interesting[entry.body.job_id] = None
            if isinstance(entry.body, JobIndexEntry):
                self.around.index[entry.body.job_id] = entry.body
            if self.around.progress.trace is not None:
                self.around.say(f"    {topic.split('.')[2]}[{entry.record.offset}] {history_text(entry)}")

    def _check_ended(self, end: WorkerEnded) -> None:
        if self.processes.is_alive((end.worker_id, end.incarnation)):
            raise Broken("nobody_is_known_to_have_ended_who_lives", f"{end.worker_id} of {end.job_id}")

    def _land(self, call: ExternalCall) -> None:
        effect = self.external.land(call)
        self.external.settle()
        if effect is not None:
            scope = self.around.scenario.scope
            check_effect(effect, self.external, self.human.retries, self.observer, lies=self.human.lies, scope=scope)

    def _answer(self, call: ExternalCall) -> None:
        call.answered = True
        if call.fate in RAISES:
            call.cut_off(self.around.now_s)
        for executor in self.processes.executors:
            if executor.answer(call):
                break
        self.external.settle()

    def _redis_returns(self) -> None:
        self.around.redis.up = True

    def _pass_time(self, extra_s: float) -> bool:
        """To the next time at which anything is due; False where nothing ever is."""
        dues = [due_s for ledger in self.processes.ledgers if (due_s := ledger.due_s()) is not None]
        on_the_way = [call for call in self.external.under_way if call.may_land]
        dues += [at for call in on_the_way for at in (call.lands_from_s, call.lands_until_s)]
        due_s = min((due_s for due_s in dues if due_s > self.around.now_s and due_s != float("inf")), default=None)
        if due_s is None and not extra_s:
            return False
        until_s = max(due_s if due_s is not None else 0.0, self.around.now_s) + extra_s
        for call in on_the_way:
            if call.lands_until_s <= until_s:
                self._land(call)
        self.around.now_s = until_s
        return True

    def _check_judged(self) -> None:
        """What a core could not judge it only sets aside: here that is a broken promise."""
        for one in (*self.processes.planners, *self.processes.ledgers, *self.processes.executors):
            if one.core.unjudged.failures:
                raise one.core.unjudged.failures[0].error

    def _check_quarantines(self) -> None:
        """Nobody's calls wait for what a tool did before a person has released it, or before it worked again."""
        for ledger in self.processes.ledgers:
            for tool in ledger.quarantined():
                number, limits = ledger.around.number, self.around.scenario.limits.quarantine
                reports = [
                    one for one in self.observer.tool_reports if self.around.scenario.number_of(one.job_id) == number
                ]
                if not may_hold(tool, reports, limits, folded=ledger.core.folded, released=ledger.released):
                    raise Broken("quarantined_for_a_reason", f"{ledger.name} holds the calls of {tool}")

    def _check_folds(self) -> None:
        made = self.processes
        folds = [
            *((one, {job_id: one.core.jobs[job_id].job for job_id in one.core.jobs}) for one in made.planners),
            *((one, {job_id: one.core.jobs[job_id].state for job_id in one.core.jobs}) for one in made.ledgers),
            *((one, {job_id: one.core.jobs[job_id] for job_id in one.core.jobs}) for one in made.executors),
        ]
        ends = {one: one.around.log.end(Topic.JOBS_EVENTS) for one, _ in folds}
        whole = [
            (one.name, {job_id: job for job_id, job in jobs.items() if job_id not in one.reading.unread})
            for one, jobs in folds
            if one.reader.positions[Topic.JOBS_EVENTS] == ends[one]
        ]
        check_folds(self.observer, whole)


def simulate(
    seed: int,
    *,
    ablation: Ablation = NONE,
    recorded: Sequence[int] | None = None,
    traced: bool = False,
    longest: int = LONGEST,
    rests: bool | None = None,
) -> JobsOutcome:
    """Run a seed, or a recorded tape of it; whatever a core raises counts as a broken promise too.

    `rests`: whether every job that may rest is packed after each round, in one of `seeds.RESTS` if nobody says; the run
    is the same.
    """
    codec = seed % seeds.WRITTEN_OUT == 0
    tape = Tape(seed) if recorded is None else Tape(recorded=recorded)
    mixed = seed % seeds.ACTIVATED in seeds.MIXED
    forger, rooted = seed % seeds.FORGED in seeds.FORGES and not mixed, seed % seeds.FORGED in seeds.SIGNS
    activates = seed % seeds.ACTIVATED == seeds.ACTIVATES
    bodies = seed % seeds.ACTIVATED in seeds.BODIES
    run = SimulationRun(
        tape,
        gate=ablation.gate,
        locks=ablation.locks,
        codec=codec,
        forger=forger,
        rooted=rooted,
        activates=activates,
        orders_rules=seed % seeds.ACTIVATED == seeds.ORDERS_RULES,
        bodies=bodies,
        unserved=seed % seeds.ACTIVATED in seeds.UNSERVED,
        mixed=mixed,
        longest=longest,
        compared=ablation.compared,
    )
    run.around.progress.trace = [] if traced else None
    run.around.progress.rests = seed % seeds.RESTS == 0 if rests is None else rests
    broken, rule = "", ""
    try:
        with ablation.applied():
            run.go()
            of_some = seed % seeds.PASSED_ON in (seeds.ACTIVATES, seeds.BODIES[0]) and (activates or bodies)
            if seed % seeds.LOOKED_BACK == 0 or of_some:
                logs, keys = (part.log for part in run.parts), keys_of() if rooted else UNSIGNED
                last = run.processes.ledgers[-1]
                with run.in_reach():
                    called = run.observer.called
                    check_restarts(logs, run.around.scenario, called, seed=seed, keys=keys, ledger=last)
    except Broken as error:
        broken, rule = str(error), error.rule
    except Exception as error:  # noqa: BLE001  a core that raises is what is looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        rule = f"raised {type(error).__name__} in {where.name}"
        broken = f"{rule}: {error}"
    return JobsOutcome(
        seed=seed,
        broken=broken,
        rule=rule,
        faults=run.faults.count,
        steps=run.steps,
        records=len(run.events()),
        tape=tuple(tape.taken),
        history=tuple(run.around.progress.trace or ()),
    )
