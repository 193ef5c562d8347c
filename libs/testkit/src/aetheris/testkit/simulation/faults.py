"""What may go wrong, as actions on a run; a fault that has no place at the moment gives way to the next."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.state import JobState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages.commands import FreezeBarrier
from aetheris.protocol.plan.graph import RUNNABLE
from aetheris.protocol.planning.policy import PolicyEffect
from aetheris.testkit.simulation.actors.human import Human
from aetheris.testkit.simulation.checks import SimulationObserver
from aetheris.testkit.simulation.external_system import BAD_FATES, CallFate, ExternalCall
from aetheris.testkit.simulation.forged_grants import grant_behind_questions
from aetheris.testkit.simulation.forged_lines import another_host, forged_line
from aetheris.testkit.simulation.forged_records import altered_paths, forged_records
from aetheris.testkit.simulation.forger import forgeries
from aetheris.testkit.simulation.installation import drafts_of, written
from aetheris.testkit.simulation.log import WholeBatch, again
from aetheris.testkit.simulation.processes import Processes
from aetheris.testkit.simulation.scenario import CONFIRMED, POLICIES, SIGNAL, TENANT, TTL_S, revised
from aetheris.testkit.simulation.stores import effect_bytes
from aetheris.testkit.simulation.surroundings import SimulationSurroundings

REPEATED = (
    Topic.TOOLS_REQUESTS,
    Topic.TOOLS_GRANTS,
    Topic.VERIFICATIONS,
    Topic.JOBS_COMMANDS,
    Topic.LEDGER_CONTENTS,
)


@dataclass(slots=True)
class SimulatedFaults:
    """Strikes; `count` is how often it has."""

    parts: Sequence[SimulationSurroundings]
    processes: Processes
    human: Human
    observer: SimulationObserver
    pass_time: Callable[[float], object]
    count: int = 0
    kinds: Sequence["Kind"] = ()
    """Beside what may always go wrong."""
    more: Sequence[Callable[[], str | None]] = ()
    """What else may go wrong."""

    @property
    def around(self) -> SimulationSurroundings:
        """What all partitions share."""
        return self.parts[0]

    def strike(self) -> None:
        """One fault, drawn from those that have a place now."""
        kinds = (*_KINDS, *_FREEZES) if self.around.scenario.freezes else _KINDS
        strikes = (*(partial(kind, self) for kind in (*kinds, *self.kinds)), *self.more)
        first = self.around.tape.below(len(strikes))
        for strike in (*strikes[first:], *strikes[:first]):
            happened = strike()
            if happened is not None:
                self.count += 1
                self.around.say(f"*** {happened}")
                return

    def call_goes_wrong(self) -> str | None:
        """The next call is lost, late, refused, or fails."""
        fate = self.around.tape.pick(BAD_FATES)
        self.around.fates.append(fate)
        return f"the next call: {fate.name}"

    def tool_breaks(self) -> str | None:
        """Whoever calls it: the calls fail, until it is mended."""
        tool = self.around.tape.pick(self.around.scenario.called)
        if tool in self.around.broken:
            del self.around.broken[tool]
            return f"{tool} is mended"
        self.around.broken[tool] = self.around.tape.pick((CallFate.REFUSED, CallFate.REQUEST_LOST))
        return f"{tool} breaks: {self.around.broken[tool].name}"

    def tool_is_released(self) -> str | None:
        """By a human, whether or not its calls wait, and whether or not it is mended."""
        likely = (*self.processes.quarantined(), *self.around.broken)
        tool = self.around.tape.pick(likely or self.around.scenario.called)
        self.human.release(tool)
        return f"{tool} is released"

    def executor_crashes(self) -> str | None:
        """At any point between a decision and its effect."""
        found = self.processes.executors
        if not found:
            return None
        victim = self.around.tape.pick(found)
        self.processes.crash(victim)
        return f"{victim.name} crashes"

    def executor_is_lost(self) -> str | None:
        """With its folder: only a human can say that it has ended."""
        found = [one for one in self.processes.executors if one.owner]
        if not found:
            return None
        victim = self.around.tape.pick(found)
        self.processes.lose(victim)
        return f"{victim.name} is lost with its folder"

    def human_errs_about_a_worker(self) -> str | None:
        """He says that it has ended, and it lives."""
        found = self.processes.executors
        if not found:
            return None
        victim = self.around.tape.pick(found)
        self.human.end_worker((victim.worker.worker_id, victim.worker.incarnation), lives=True)
        return f"{victim.name} is said to have ended, and has not"

    def name_is_taken_again(self) -> str | None:
        """Another host starts under the name, with a folder of its own that proves nothing."""
        found = self.processes.executors
        if not found:
            return None
        name = self.around.tape.pick(found).worker.worker_id
        self.around.log.adrift(another_host(self.around, name))
        return f"another host starts as {name}"

    def ledger_crashes(self) -> str | None:
        """Also a zombie may."""
        found = self.processes.ledgers
        if not found:
            return None
        victim = self.around.tape.pick(found)
        self.processes.crash(victim)
        return f"{victim.name} crashes"

    def planner_crashes(self) -> str | None:
        """Also a zombie may."""
        found = self.processes.planners
        if not found:
            return None
        victim = self.around.tape.pick(found)
        self.processes.crash(victim)
        return f"{victim.name} crashes"

    def verifier_crashes(self) -> str | None:
        """Its open questions are read again."""
        if not self.processes.verifiers:
            return None
        victim = self.around.tape.pick(self.processes.verifiers)
        self.processes.crash(victim)
        return f"{victim.name} crashes"

    def executor_is_paused(self) -> str | None:
        """Another one takes the partition over; the first wakes up some time, with all that it had in hand."""
        awake = [one for one in self.processes.executors if not one.paused]
        if not awake:
            return None
        victim = self.around.tape.pick(awake)
        self.processes.pause(victim)
        successor = self.processes.free_worker()
        if successor is not None and not self.around.tape.chance(0.2):
            self.processes.start_executor(successor)
        return f"{victim.name} is paused"

    def executor_is_taken_over(self) -> str | None:
        """Both go on."""
        successor = self.processes.free_worker()
        if successor is None:
            return None
        self.processes.start_executor(successor)
        return f"{successor} takes the partition over, the one before doesn't notice"

    def executor_is_revoked(self) -> str | None:
        """As in a rebalance: it finishes what runs."""
        found = [one for one in self.processes.executors if not (one.closed or one.paused)]
        successor = self.processes.free_worker()
        if not found or successor is None:
            return None
        found[-1].close(in_time=not self.around.tape.chance(0.2))
        self.processes.start_executor(successor, (found[-1].around,))
        return f"{found[-1].name} gives partition {found[-1].around.number} up to {successor}"

    def partition_moves(self) -> str | None:
        """To another process that lives, or back to the same; what else they have they keep."""
        found = [one for one in self.processes.executors if one.owner and not (one.closed or one.paused)]
        if not found:
            return None
        tape = self.around.tape
        actor = tape.pick(found)
        lives = {
            one.worker: one for one in self.processes.executors if one.memory is not actor.memory and not one.paused
        }
        to = tape.pick((actor, *(one for one in lives.values() if not one.worker.worker_id.startswith("late"))))
        in_time = not tape.chance(0.4)
        self.processes.move(actor, to, in_time=in_time)
        return f"partition {actor.around.number} goes from {actor.name} to {to.name}{'' if in_time else ', too late'}"

    def executor_starts_late(self) -> str | None:
        """It folds from an offset in the middle: what it doesn't know whole, it must not judge."""
        part = self.around.tape.pick(self.parts)
        end = part.log.end(Topic.JOBS_EVENTS)
        if end < 2 or len(self.processes.executors) > 3:
            return None
        start = self.around.rules.mark_at(part.number, 1 + self.around.tape.below(min(end, 8)))
        self.processes.start_late_executor(part, start)
        return f"an executor starts at offset {start}"

    def ledger_becomes_zombie(self) -> str | None:
        """Another one takes over; the old one goes on, or is paused and wakes up some time."""
        part = self.around.tape.pick(self.parts)
        found = self.processes.ledgers_of(part)
        if len(found) != 1:
            return None
        old = found[0]
        if self.around.tape.chance(0.6):
            self.processes.pause(old)
        self.processes.start_ledger(part)
        return f"{old.name} becomes a zombie"

    def planner_becomes_zombie(self) -> str | None:
        """Another one takes over; the old one goes on, or is paused and wakes up some time."""
        part = self.around.tape.pick(self.parts)
        found = self.processes.planners_of(part)
        if len(found) != 1:
            return None
        old = found[0]
        if self.around.tape.chance(0.6):
            self.processes.pause(old)
        self.processes.start_planner(part)
        return f"{old.name} becomes a zombie"

    def redis_is_flushed(self) -> str | None:
        """Leases and effects are gone."""
        self.around.redis.flush(self.around.now_s)
        return "FLUSHALL"

    def redis_falls_silent(self) -> str | None:
        """Until it comes back."""
        if not self.around.redis.up:
            return None
        self.around.redis.up = False
        return "Redis does not answer"

    def message_comes_again(self) -> str | None:
        """A request, grant, question, command or line of an irreversible call, of any age."""
        also = (Topic.FREEZES,) if self.around.scenario.freezes else ()
        topic = self.around.tape.pick((*REPEATED, *also))
        part = self.around.tape.pick(self.parts)
        entries = part.log.topics[topic]
        if not entries:
            return None
        entry = entries[-1 - self.around.tape.below(len(entries))]
        part.log.adrift(again(topic, (entry,)))
        return f"{type(entry.body).__name__} {entry.record.offset} comes again"

    def birth_comes_again(self) -> str | None:
        """A planner that had not seen that its first two records were written writes them again."""
        jobs = [*self.observer.jobs.values()]
        if not jobs:
            return None
        job = self.around.tape.pick(jobs)
        at, log = job.creation_offset, self.parts[self.around.scenario.number_of(job.job_id)].log
        log.adrift(again(Topic.JOBS_EVENTS, log.topics[Topic.JOBS_EVENTS][at : at + 2], log.newer))
        return f"the birth at {at} comes again"

    def step_is_called_off(self) -> str | None:
        """By a human, whatever has become of it."""
        keys = [(job, key) for job in self.observer.jobs.values() for key in job.keys if job.terminal is None]
        if not keys:
            return None
        job, key = self.around.tape.pick(keys)
        self.human.call_off(job, key)
        return f"{job.keys[key].node_id} of {job.job_id} is to be called off"

    def yes_is_taken_back(self) -> str | None:
        """A step is called off as it is approved, or before what was approved has started."""
        keys = [
            (job, key)
            for job in self.observer.jobs.values()
            for key, state in job.keys.items()
            if job.terminal is None
            and state.status is KeyStatus.NONE
            and (state.is_asking or state.decision is not None)
        ]
        if not keys:
            return None
        job, key = self.around.tape.pick(keys)
        self.human.takes_back(job, key)
        return f"{job.keys[key].node_id} of {job.job_id} is to be called off behind a yes"

    def signal_comes(self) -> str | None:
        """Early, late, again, or to a job that waits for none."""
        submission = self.around.tape.pick(self.around.scenario.submissions)
        if submission.job_id not in self.observer.jobs:
            return None
        self.human.signal(submission.job_id, SIGNAL)
        return f"{submission.job_id} is told {SIGNAL}"

    def effect_is_deleted(self) -> str | None:
        """Outside, by somebody else, when its call is settled."""
        done = [
            effect.call
            for effect in self.around.external.effects
            if effect.call.tool in CONFIRMED and self._is_settled(effect.call)
        ]
        if not done:
            return None
        call = self.around.tape.pick(done)
        self.around.external.deleted.add(call.external_key)
        return f"what {call.node_id} of {call.job_id} did is deleted outside"

    def stored_effect_is_spoilt(self) -> str | None:
        """It is no effect, one of another result, or another try's; and whoever could report it otherwise crashes."""
        stored = self.around.redis.stored()
        if not stored:
            return None
        key, invocation_id, events = self.around.tape.pick(stored)
        value = effect_bytes(events)
        spoilt = self.around.tape.pick((b"\xff", b"{}", value.replace(b'"v":', b'"w":'), effect_bytes(stored[0][2])))
        if spoilt == value:
            return None
        self.around.redis.spoil(key, invocation_id, spoilt)
        for one in [one for one in self.processes.executors if one.is_at(invocation_id)]:
            self.processes.crash(one)
        return f"the stored effect of {invocation_id} is spoilt"

    def record_is_forged(self) -> str | None:
        """Whoever may append says what he has no key to sign, or lays what lies there once more."""
        tape, part = self.around.tape, self.around.tape.pick(self.parts)
        jobs = self._jobs_of(part)
        if not jobs:
            return None
        lies_there = part.log.topics[Topic.JOBS_EVENTS]
        entries = [one for one in lies_there if one.record.offset not in part.log.forged]
        kind = tape.below(8)
        if kind == 0:
            how, forged = "as it lies there", again(Topic.JOBS_EVENTS, (tape.pick(entries),), part.log.newer)
        elif kind == 1:
            how, forged = "with an altered path", altered_paths(tape, entries)
        else:
            how, forged = forged_records(tape, tape.pick(jobs), entries, TENANT)
        if forged is None:
            return None
        part.log.adrift(forged)
        return f"somebody writes {how}"

    def report_is_forged(self) -> str | None:
        """Whoever may append says how a try ended; he has no word of it that he has not read."""
        part = self.around.tape.pick(self.parts)
        whose, forged = forgeries(self.around.tape, self._jobs_of(part), part.log.topics[Topic.JOBS_EVENTS])
        if not forged:
            return None
        batch = WholeBatch(Topic.JOBS_EVENTS, forged)
        if self.around.rooted:
            batch = replace(written(batch, drafts_of(batch)), forged=True)
        part.log.adrift(batch)
        return f"somebody forges what is said of {whose}"

    def grant_is_forged(self) -> str | None:
        """Whoever may write grants has the calls made about which humans are asked."""
        by = self.observer.activations.number
        granted = [node for part in self.parts for node in grant_behind_questions(part.log, self._jobs_of(part), by)]
        return f"somebody grants {', '.join(granted)}" if granted else None

    def worker_is_forged(self) -> str | None:
        """Whoever may append says of a worker that it has ended, or left."""
        found = [one for one in self.processes.executors if one.running] or self.processes.executors
        if not found:
            return None
        self.around.log.adrift(forged_line(self.around, [one.worker for one in found]))
        return "somebody forges a line of a worker"

    def clock_jumps(self) -> str | None:
        """A ledger's time of day is set, an hour either way; its monotonic clock is not."""
        if not self.processes.ledgers:
            return None
        ledger = self.around.tape.pick(self.processes.ledgers)
        ledger.clock.wall_off_s += self.around.tape.pick((-3600.0, 3600.0))
        return f"the clock of {ledger.name} jumps"

    def _is_settled(self, call: ExternalCall) -> bool:
        job = self.observer.jobs[call.job_id]
        state = job.keys.get(call.key)
        return state is not None and state.outcome is Settled.SUCCESS

    def time_passes(self) -> str | None:
        """While nobody gets to do anything: leases lapse, deadlines pass."""
        self.pass_time(TTL_S * (1 + self.around.tape.below(4)))
        return "everything stands still for a while"

    def job_is_cancelled(self) -> str | None:
        """By a human, at any time."""
        job_id = self.around.tape.pick([one.job_id for one in self.around.scenario.submissions])
        if self.around.tape.chance(0.5):
            return None
        self.human.cancel(job_id)
        return f"{job_id} is to be cancelled"

    def job_is_paused(self) -> str | None:
        """By a human or two, at any time; somebody resumes it, sooner or later."""
        jobs = self.observer.jobs.values()
        found = [job for job in jobs if job.terminal is None and job.paused is None and job.revision >= 0]
        if not found:
            return None
        job = self.around.tape.pick(found)
        self.human.pause(job)
        return f"{job.job_id} is to be paused"

    def something_is_frozen(self) -> str | None:
        """By a human, whatever is under way; somebody unfreezes it, sooner or later. Some know the number wrong."""
        tape = self.around.tape
        tool = tape.pick(self.around.scenario.called)
        agent = FreezeScope(tenant=TENANT, agent=self.around.scenario.submissions[0].by)
        tools = FreezeScope(tool=tool), FreezeScope(tenant=TENANT, tool=tool)
        scope = tape.pick((FreezeScope(tenant=TENANT), agent, *tools))
        self.human.freeze(scope, off=tape.pick((0, 0, 0, -1, 1)))
        return f"{scope} is to be frozen"

    def barrier_comes_again(self) -> str | None:
        """A partition's barrier of any age: a freeze that is over holds nothing by it."""
        part = self.around.tape.pick(self.parts)
        barriers = [entry for entry in part.log.topics[Topic.JOBS_EVENTS] if isinstance(entry.body, FreezeBarrier)]
        if not barriers:
            return None
        entry = self.around.tape.pick(barriers)
        part.log.adrift(again(Topic.JOBS_EVENTS, (entry,)))
        return f"the barrier at {entry.record.offset} comes again"

    def plan_is_revised(self) -> str | None:
        """A node gets other arguments, whatever has become of it; but for one that a human may be asked about."""
        submission = self.around.tape.pick(self.around.scenario.submissions)
        job = self.observer.jobs.get(submission.job_id)
        if job is None or job.revision != 0 or job.terminal is not None:
            return None
        entries = [job.entries[node_id][-1] for node_id in job.entries]
        called = sorted(one.node.id for one in entries if one.node.kind in RUNNABLE and not self._is_asked_about(one))
        if not called:
            return None
        node_id = self.around.tape.pick(called)
        self.human.revise(job, revised(job.entries[node_id][-1]))
        return f"{node_id} of {job.job_id} gets other arguments"

    def _jobs_of(self, part: SimulationSurroundings) -> list[JobState]:
        return [job for job in self.observer.jobs.values() if self.around.scenario.number_of(job.job_id) == part.number]

    def _is_asked_about(self, entry: PlanEntry) -> bool:
        policies = (self.around.scenario.policy, *(POLICIES if self.around.activates else ()))
        verdicts = (one.verdict(entry.node.tool_name, entry.irreversible, dict) for one in policies)
        return any(verdict.effect is PolicyEffect.APPROVAL for verdict in verdicts)


Kind = Callable[[SimulatedFaults], str | None]

_KINDS: tuple[Kind, ...] = (
    SimulatedFaults.call_goes_wrong,
    SimulatedFaults.executor_crashes,
    SimulatedFaults.call_goes_wrong,
    SimulatedFaults.ledger_crashes,
    SimulatedFaults.executor_is_paused,
    SimulatedFaults.planner_crashes,
    SimulatedFaults.call_goes_wrong,
    SimulatedFaults.executor_is_taken_over,
    SimulatedFaults.redis_is_flushed,
    SimulatedFaults.executor_crashes,
    SimulatedFaults.ledger_becomes_zombie,
    SimulatedFaults.time_passes,
    SimulatedFaults.executor_is_paused,
    SimulatedFaults.planner_becomes_zombie,
    SimulatedFaults.message_comes_again,
    SimulatedFaults.executor_is_revoked,
    SimulatedFaults.partition_moves,
    SimulatedFaults.birth_comes_again,
    *(SimulatedFaults.executor_starts_late,) * 2,
    SimulatedFaults.redis_falls_silent,
    SimulatedFaults.verifier_crashes,
    SimulatedFaults.job_is_cancelled,
    SimulatedFaults.plan_is_revised,
    SimulatedFaults.message_comes_again,
    SimulatedFaults.call_goes_wrong,
    SimulatedFaults.step_is_called_off,
    SimulatedFaults.yes_is_taken_back,
    SimulatedFaults.tool_breaks,
    SimulatedFaults.tool_is_released,
    SimulatedFaults.tool_breaks,
    SimulatedFaults.signal_comes,
    SimulatedFaults.effect_is_deleted,
    SimulatedFaults.stored_effect_is_spoilt,
    SimulatedFaults.clock_jumps,
    SimulatedFaults.executor_is_lost,
    SimulatedFaults.human_errs_about_a_worker,
    SimulatedFaults.name_is_taken_again,
    *(SimulatedFaults.job_is_paused,) * 2,
)

_FREEZES: tuple[Kind, ...] = (
    SimulatedFaults.something_is_frozen,
    SimulatedFaults.something_is_frozen,
    SimulatedFaults.barrier_comes_again,
    SimulatedFaults.something_is_frozen,
)
"""In seeds that have freezes."""
