"""Who lives: processes start, crash, are paused, are replaced while they still run, and come back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from aetheris.protocol.base import sealed
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import LifeWord, LifeWords
from aetheris.protocol.messages.commands import WorkerEntry
from aetheris.testkit.simulation.actors import executor, ledger, planner, verifier
from aetheris.testkit.simulation.actors.executor import ProcessMemory, SimulatedExecutor
from aetheris.testkit.simulation.actors.ledger import SimulatedLedger
from aetheris.testkit.simulation.actors.planner import SimulatedPlanner
from aetheris.testkit.simulation.actors.verifier import SimulatedVerifier
from aetheris.testkit.simulation.external_system import CallFate, ExternalCall
from aetheris.testkit.simulation.log import WholeBatch
from aetheris.testkit.simulation.surroundings import ScheduledAction, SimulationSurroundings
from aetheris.testkit.simulation.versions import is_newer
from aetheris.tool_executor.core.tries import Worker

WORKERS = 2
"""So many names, each with a folder of its own."""


@dataclass(slots=True, eq=False)
class Processes:
    """All processes of a run; the last planner and ledger own the partition, earlier ones are zombies."""

    parts: tuple[SimulationSurroundings, ...]
    """By partition."""
    planners: list[SimulatedPlanner] = field(default_factory=list[SimulatedPlanner])
    ledgers: list[SimulatedLedger] = field(default_factory=list[SimulatedLedger])
    executors: list[SimulatedExecutor] = field(default_factory=list[SimulatedExecutor])
    verifiers: list[SimulatedVerifier] = field(default_factory=list[SimulatedVerifier])
    unproven: dict[tuple[str, str], None] = field(default_factory=dict[tuple[str, str], None])
    """Lives that have ended and left nothing that could prove it."""
    _names: list[str] = field(default_factory=lambda: [f"w{number + 1}" for number in range(WORKERS)])
    _orphans: dict[str, list[ExternalCall]] = field(default_factory=dict[str, list[ExternalCall]])
    """Name → calls that are still made by what its last life had started."""
    _lived: dict[str, list[LifeWords]] = field(default_factory=dict[str, list[LifeWords]])
    _down: list[ScheduledAction] = field(default_factory=list[ScheduledAction])

    @property
    def around(self) -> SimulationSurroundings:
        """What all partitions share."""
        return self.parts[0]

    def actions(self) -> list[ScheduledAction]:
        """What any process may do next."""
        actors = (self.executors, self.ledgers, self.planners, self.verifiers)
        return [action for some in actors for actor in some for action in actor.actions()]

    def returns(self) -> list[ScheduledAction]:
        """What brings somebody back: a restart, a wake-up, the end of a zombie."""
        held = [f"{name} starts" for name in self._orphans if self.around.locks == "inherited"]
        found = [action for action in self._down if action.name not in held]
        for name in [name for name, calls in self._orphans.items() if not any(call.may_land for call in calls)]:
            found.append(ScheduledAction(f"what {name} had started ends", partial(self.end_orphans, name)))
        for actors in (self.executors, self.ledgers, self.planners):
            for one in actors:
                if one.paused:
                    found.append(ScheduledAction(f"{one.name} wakes up", partial(self._wake, one)))
        for zombies in (self.planners, self.ledgers):
            for zombie in zombies:
                if not (zombie.owner or zombie.paused):
                    found.append(ScheduledAction(f"{zombie.name} ends", partial(self.end, zombie)))
        return found

    def start_all(self) -> None:
        """The first of each, in every partition; one executor for all."""
        for part in self.parts:
            self.start_planner(part)
            self.start_ledger(part)
        self.start_executor(self._names[0], self.parts)
        for part in self.parts:
            self.start_verifier(part)

    def start_planner(self, part: SimulationSurroundings) -> None:
        """A planner that takes the partition over."""
        for one in self.planners_of(part):
            one.owner = False
        self.planners.append(SimulatedPlanner(part, self._name(planner.ROLE), self._start(part, planner.ROLE)))

    def start_ledger(self, part: SimulationSurroundings) -> None:
        """A ledger that takes the partition over."""
        for one in self.ledgers_of(part):
            one.owner = False
        self.ledgers.append(
            SimulatedLedger(part, self._name(ledger.ROLE), self._start(part, ledger.ROLE), self.is_held)
        )

    def start_verifier(self, part: SimulationSurroundings) -> None:
        """A verifier."""
        self.verifiers.append(SimulatedVerifier(part, self._name(verifier.ROLE)))

    def planners_of(self, part: SimulationSurroundings) -> list[SimulatedPlanner]:
        """The partition's, zombies too."""
        return [one for one in self.planners if one.around is part]

    def quarantined(self) -> list[str]:
        """The tools that wait for a person's release somewhere, as operators see it."""
        owners = [one for one in self.ledgers if one.owner and one.knows_tables]
        return list(dict.fromkeys(tool for one in owners for tool in one.quarantined()))

    def ledgers_of(self, part: SimulationSurroundings) -> list[SimulatedLedger]:
        """The partition's, zombies too."""
        return [one for one in self.ledgers if one.around is part]

    def start_executor(self, worker_id: str, partitions: Sequence[SimulationSurroundings] | None = None) -> None:
        """An executor that takes partitions over, all or one; its incarnation proves that the one before has ended."""
        self._down = [action for action in self._down if action.name != f"{worker_id} starts"]
        worker, memory = (
            self._announce(worker_id),
            ProcessMemory(edit=self.around.deployed[-1], newer=is_newer(self.around)),
        )
        for part in self._some() if partitions is None else partitions:
            self._give(part, worker, memory)

    def start_late_executor(self, part: SimulationSurroundings, start: int) -> None:
        """One more that reads the partition, and doesn't know it from its beginning."""
        worker, memory = self._announce(self.around.fresh("late")), ProcessMemory(newer=is_newer(self.around))
        self.executors.append(SimulatedExecutor(part, worker, start, self, owner=False, grants=0, memory=memory))

    def move(self, actor: SimulatedExecutor, to: SimulatedExecutor, *, in_time: bool) -> None:
        """A partition goes from a process to another that lives, or back to the same; each keeps what else it has."""
        actor.close(in_time=in_time)
        self._give(actor.around, to.worker, to.memory)

    def processes(self, actor: SimulatedExecutor) -> list[SimulatedExecutor]:
        """All partitions of its process."""
        return [one for one in self.executors if one.worker == actor.worker]

    def crash(self, actor: SimulatedPlanner | SimulatedLedger | SimulatedVerifier | SimulatedExecutor) -> None:
        """It is gone at once; what it had sent may still arrive. It comes back some time."""
        self.end(actor)
        match actor:
            case SimulatedPlanner() if actor.owner:
                self._later("a planner starts", lambda: self.start_planner(actor.around))
            case SimulatedLedger() if actor.owner:
                self._later("a ledger starts", lambda: self.start_ledger(actor.around))
            case SimulatedVerifier():
                self._later("a verifier starts", lambda: self.start_verifier(actor.around))
            case SimulatedExecutor() if actor.worker.worker_id in self._names:
                self._later(f"{actor.worker.worker_id} starts", lambda: self.start_executor(actor.worker.worker_id))
            case _:
                pass

    def lose(self, actor: SimulatedExecutor) -> None:
        """It is gone with its folder: nobody can prove it, and another name takes its place."""
        lost, other = actor.worker.worker_id, self.around.fresh("w")
        self._names = [other if name == lost else name for name in self._names]
        self.unproven[lost, actor.worker.incarnation] = None
        self.end(actor)
        self._later(f"{other} starts", lambda: self.start_executor(other))

    def stand_down(self, actor: SimulatedExecutor) -> None:
        """It has read that it was declared ended: it acts no more, and starts again as another."""
        if actor in self.executors:
            self.around.say(f"    {actor.name} reads that it has ended")
            self.crash(actor)

    def leave_children(self, actor: SimulatedExecutor) -> None:
        """It crashes, and what it had started lives on and acts; it holds the lock as well."""
        sent = [call for one in self.processes(actor) for call in one.sent]
        calls = [call for call in sent if call.fate is CallFate.ORPHANED and call.may_land]
        self.crash(actor)
        for call in calls:
            call.gone, call.lands_until_s = False, float("inf")
        self._orphans[actor.worker.worker_id] = calls

    def end_orphans(self, name: str) -> None:
        """The last of them has."""
        for call in self._orphans.pop(name):
            call.cut_off(self.around.now_s)

    def end(self, actor: SimulatedPlanner | SimulatedLedger | SimulatedVerifier | SimulatedExecutor) -> None:
        """It is gone, for good; an executor in all its partitions."""
        if isinstance(actor, SimulatedExecutor):
            for one in self.processes(actor):
                one.around.log.crash(one.writer)
                self.executors.remove(one)
                self._end_executor(one)
            return
        actor.around.log.crash(actor.writer)
        match actor:
            case SimulatedPlanner():
                self.planners.remove(actor)
            case SimulatedLedger():
                self.ledgers.remove(actor)
            case SimulatedVerifier():
                self.verifiers.remove(actor)

    def pause(self, actor: SimulatedPlanner | SimulatedLedger | SimulatedExecutor) -> None:
        """It stops in the middle of whatever it does, and knows nothing of it."""
        for one in self.processes(actor) if isinstance(actor, SimulatedExecutor) else (actor,):
            one.paused = True
            if isinstance(one, SimulatedExecutor):
                for key in one.held_keys():
                    self.around.redis.lease(key, self.around.now_s)

    def never_begun(self, job_id: str, life: tuple[str, str], invocation_id: str) -> bool:
        """Whether this life has the job's partition, awaits nothing of the try, and never made the call."""
        number = self.around.scenario.number_of(job_id)
        held = [one for one in self.executors if one.around.number == number and one.owner and not one.closed]
        return any(
            (one.worker.worker_id, one.worker.incarnation) == life
            and invocation_id not in one.memory.begun.get(job_id, ())
            for one in held
        )

    def is_held(self, key: str) -> bool:
        """Whether a running executor renews the lease of a key."""
        return any(one.holds(key) for one in self.executors)

    def heal(self) -> None:
        """Everybody back, zombies awake, nobody of an earlier version; a whole executor owns the partition."""
        self._upgrade()
        for name in tuple(self._orphans):
            self.end_orphans(name)
        for action in self.returns():
            action.do()
        self._down.clear()
        left = self._left()
        if left:
            self.start_executor(self.free_worker() or self.around.fresh("w"), left)

    def _upgrade(self) -> None:
        """Whoever is of the earlier version ends, and one of the newer takes his place."""
        old = [one for one in (*self.planners, *self.ledgers, *self.verifiers) if not one.reading.newer]
        for one in old:
            self.end(one)
            match one:
                case SimulatedPlanner() if one.owner:
                    self.start_planner(one.around)
                case SimulatedLedger() if one.owner:
                    self.start_ledger(one.around)
                case SimulatedVerifier():
                    self.start_verifier(one.around)
                case _:
                    pass
        for one in tuple(self.executors):
            if one in self.executors and not one.memory.newer:
                self.end(one)

    def is_alive(self, life: tuple[str, str]) -> bool:
        """Whether a process lives this life, asleep or not."""
        return any((one.worker.worker_id, one.worker.incarnation) == life for one in self.executors)

    def _lives(self, worker_id: str) -> bool:
        return any(one.worker.worker_id == worker_id for one in self.executors)

    def free_worker(self) -> str | None:
        """A stable name that no living process has."""
        held = self._orphans if self.around.locks == "inherited" else ()
        return next((name for name in self._names if not self._lives(name) and name not in held), None)

    def _wake(self, actor: SimulatedPlanner | SimulatedLedger | SimulatedExecutor) -> None:
        for one in self.processes(actor) if isinstance(actor, SimulatedExecutor) else (actor,):
            one.paused = False

    def _some(self) -> Sequence[SimulationSurroundings]:
        """All partitions, or one of them; and those that nobody has."""
        if len(self.parts) == 1:
            return self.parts
        left = self._left()
        taken = self.around.tape.pick((self.parts, *((part,) for part in self.parts)))
        return [part for part in self.parts if part in taken or part in left]

    def _left(self) -> list[SimulationSurroundings]:
        owned = {one.around.number for one in self.executors if one.owner and not one.closed}
        return [part for part in self.parts if part.number not in owned]

    def _give(self, part: SimulationSurroundings, worker: Worker, memory: ProcessMemory) -> None:
        for one in self.executors:
            if one.around is part:
                one.owner = False
        held = [one for one in self.executors if one.around is part and one.worker == worker and not one.closed]
        if held:
            held[0].owner = True  # it had not noticed that it was not
            return
        made = SimulatedExecutor(part, worker, self._start(part, executor.ROLE), self, memory=memory)
        self.executors.append(made)
        if made.has_ended:
            self.stand_down(made)

    def _later(self, name: str, start: Callable[[], None]) -> None:
        action = ScheduledAction(name, lambda: self._restart(action, start))
        self._down.append(action)

    def _restart(self, action: ScheduledAction, start: Callable[[], None]) -> None:
        if action in self._down:
            self._down.remove(action)
            start()

    def _name(self, role: str) -> str:
        return self.around.fresh(f"{role}-")

    def _start(self, part: SimulationSurroundings, role: str) -> int:
        """Where a restarted service begins to fold: in reach of its mark, or further back."""
        mark = part.group(role).start(Topic.JOBS_EVENTS)
        return 0 if self.around.tape.chance(0.3) else sealed.in_reach(mark, part.reach)

    def _announce(self, worker_id: str) -> Worker:
        words = LifeWords.of(self.around.fresh_secret())
        former = self._lived.setdefault(worker_id, [])
        ended = tuple(one.word(LifeWord.ENDED) for one in former)
        entry = WorkerEntry(worker_id=worker_id, live=words.incarnation, ended=ended)
        former.append(words)
        self.around.log.adrift(WholeBatch(Topic.WORKERS, ((self.around.fresh("worker-"), entry),)))
        return Worker(worker_id, words.incarnation)

    def _end_executor(self, actor: SimulatedExecutor) -> None:
        """Its leases last one TTL at most; its requests are on their way, or never left."""
        for key in actor.held_keys():
            self.around.redis.lease(key, self.around.now_s)
        for running in actor.running:
            call = running.call
            if call is not None and not call.answered:
                call.answered = True
                call.gone = call.gone or (not call.landed and self.around.tape.chance(0.4))
        for call in actor.sent:
            call.cut_off(self.around.now_s)
