"""Who lives: processes start, crash, are paused, are replaced while they still run, and come back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.workers import LOCK
from aetheris.protocol.messages.commands import Ended, WorkerEntry
from aetheris.testkit.simulation.actors import executor, ledger, planner, verifier
from aetheris.testkit.simulation.actors.executor import Executor
from aetheris.testkit.simulation.actors.ledger import Ledger
from aetheris.testkit.simulation.actors.planner import Planner
from aetheris.testkit.simulation.actors.verifier import Verifier
from aetheris.testkit.simulation.log import Batch
from aetheris.testkit.simulation.surroundings import Action, Surroundings
from aetheris.testkit.simulation.world import Call, Course
from aetheris.tool_executor.core.partition import Worker

WORKERS = 2
"""So many names, each with a folder of its own."""


@dataclass(slots=True, eq=False)
class Processes:
    """All processes of a run; the last planner and ledger own the partition, earlier ones are zombies."""

    parts: tuple[Surroundings, ...]
    """By partition."""
    planners: list[Planner] = field(default_factory=list[Planner])
    ledgers: list[Ledger] = field(default_factory=list[Ledger])
    executors: list[Executor] = field(default_factory=list[Executor])
    verifiers: list[Verifier] = field(default_factory=list[Verifier])
    unproven: dict[tuple[str, str], None] = field(default_factory=dict[tuple[str, str], None])
    """Lives that have ended and left nothing that could prove it."""
    _names: list[str] = field(default_factory=lambda: [f"w{number + 1}" for number in range(WORKERS)])
    _orphans: dict[str, list[Call]] = field(default_factory=dict[str, list[Call]])
    """Name → calls that are still made by what its last life had started."""
    _lived: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _down: list[Action] = field(default_factory=list[Action])

    @property
    def around(self) -> Surroundings:
        """What all partitions share."""
        return self.parts[0]

    def actions(self) -> Iterator[Action]:
        """What any process may do next."""
        for actors in (self.executors, self.ledgers, self.planners, self.verifiers):
            for actor in actors:
                yield from actor.actions()

    def returns(self) -> list[Action]:
        """What brings somebody back: a restart, a wake-up, the end of a zombie."""
        held = [f"{name} starts" for name in self._orphans if self.around.locks == "inherited"]
        found = [action for action in self._down if action.name not in held]
        for name in [name for name, calls in self._orphans.items() if not any(call.may_land for call in calls)]:
            found.append(Action(f"what {name} had started ends", lambda name=name: self.end_orphans(name)))
        for actor in (*self.executors, *self.ledgers, *self.planners):
            if actor.paused:
                found.append(Action(f"{actor.name} wakes up", lambda actor=actor: self._wake(actor)))
        for zombies in (self.planners, self.ledgers):
            for zombie in zombies:
                if not zombie.owner and not zombie.paused:
                    found.append(Action(f"{zombie.name} ends", lambda zombie=zombie: self.end(zombie)))
        return found

    def start_all(self) -> None:
        """The first of each, in every partition; one executor for all."""
        for part in self.parts:
            self.start_planner(part)
            self.start_ledger(part)
        self.start_executor(self._names[0], self.parts)
        for part in self.parts:
            self.start_verifier(part)

    def start_planner(self, part: Surroundings) -> None:
        """A planner that takes the partition over."""
        for one in self.planners_of(part):
            one.owner = False
        self.planners.append(Planner(part, self._name(planner.ROLE), self._start(part, planner.ROLE)))

    def start_ledger(self, part: Surroundings) -> None:
        """A ledger that takes the partition over."""
        for one in self.ledgers_of(part):
            one.owner = False
        self.ledgers.append(Ledger(part, self._name(ledger.ROLE), self._start(part, ledger.ROLE), self.is_held))

    def start_verifier(self, part: Surroundings) -> None:
        """A verifier."""
        self.verifiers.append(Verifier(part, self._name(verifier.ROLE)))

    def planners_of(self, part: Surroundings) -> list[Planner]:
        """The partition's, zombies too."""
        return [one for one in self.planners if one.around is part]

    def ledgers_of(self, part: Surroundings) -> list[Ledger]:
        """The partition's, zombies too."""
        return [one for one in self.ledgers if one.around is part]

    def start_executor(self, worker_id: str, parts: Sequence[Surroundings] | None = None) -> None:
        """An executor that takes partitions over, all or one; its incarnation proves that the one before has ended."""
        self._down = [action for action in self._down if action.name != f"{worker_id} starts"]
        worker, begun = self._announce(worker_id), dict[str, set[str]]()
        for part in self._some() if parts is None else parts:
            self._give(part, worker, begun)

    def start_late_executor(self, part: Surroundings, start: int) -> None:
        """One more that reads the partition, and doesn't know it from its beginning."""
        worker = self._announce(self.around.fresh("late"))
        self.executors.append(Executor(part, worker, start, self, owner=False, grants=0))

    def move(self, actor: Executor, to: Executor, *, in_time: bool) -> None:
        """A partition goes from a process to another that lives, or back to the same; each keeps what else it has."""
        actor.close(in_time=in_time)
        self._give(actor.around, to.worker, to.begun)

    def processes(self, actor: Executor) -> list[Executor]:
        """All partitions of its process."""
        return [one for one in self.executors if one.worker == actor.worker]

    def crash(self, actor: Planner | Ledger | Verifier | Executor) -> None:
        """It is gone at once; what it had sent may still arrive. It comes back some time."""
        self.end(actor)
        match actor:
            case Planner() if actor.owner:
                self._later("a planner starts", lambda: self.start_planner(actor.around))
            case Ledger() if actor.owner:
                self._later("a ledger starts", lambda: self.start_ledger(actor.around))
            case Verifier():
                self._later("a verifier starts", lambda: self.start_verifier(actor.around))
            case Executor() if actor.worker.worker_id in self._names:
                self._later(f"{actor.worker.worker_id} starts", lambda: self.start_executor(actor.worker.worker_id))
            case _:
                pass

    def lose(self, actor: Executor) -> None:
        """It is gone with its folder: nobody can prove it, and another name takes its place."""
        lost, other = actor.worker.worker_id, self.around.fresh("w")
        self._names = [other if name == lost else name for name in self._names]
        self.unproven[lost, actor.worker.incarnation] = None
        self.end(actor)
        self._later(f"{other} starts", lambda: self.start_executor(other))

    def stand_down(self, actor: Executor) -> None:
        """It has read that it was declared ended: it acts no more, and starts again as another."""
        if actor in self.executors:
            self.around.say(f"    {actor.name} reads that it has ended")
            self.crash(actor)

    def leave_children(self, actor: Executor) -> None:
        """It crashes, and what it had started lives on and acts; it holds the lock as well."""
        sent = [call for one in self.processes(actor) for call in one.sent]
        calls = [call for call in sent if call.course is Course.ORPHANED and call.may_land]
        self.crash(actor)
        for call in calls:
            call.gone, call.lands_until_s = False, float("inf")
        self._orphans[actor.worker.worker_id] = calls

    def end_orphans(self, name: str) -> None:
        """The last of them has."""
        for call in self._orphans.pop(name):
            call.cut_off(self.around.now_s)

    def end(self, actor: Planner | Ledger | Verifier | Executor) -> None:
        """It is gone, for good; an executor in all its partitions."""
        if isinstance(actor, Executor):
            for one in self.processes(actor):
                one.around.log.crash(one.writer)
                self.executors.remove(one)
                self._end_executor(one)
            return
        actor.around.log.crash(actor.writer)
        match actor:
            case Planner():
                self.planners.remove(actor)
            case Ledger():
                self.ledgers.remove(actor)
            case Verifier():
                self.verifiers.remove(actor)

    def pause(self, actor: Planner | Ledger | Executor) -> None:
        """It stops in the middle of whatever it does, and knows nothing of it."""
        for one in self.processes(actor) if isinstance(actor, Executor) else (actor,):
            one.paused = True
            if isinstance(one, Executor):
                for key in one.held_keys():
                    self.around.redis.lease(key, self.around.now_s)

    def never_begun(self, job_id: str, life: tuple[str, str], nonce: str) -> bool:
        """Whether this life has the job's partition, awaits nothing of the try, and never made the call."""
        number = self.around.scenario.number_of(job_id)
        held = [one for one in self.executors if one.around.number == number and one.owner and not one.closed]
        return any(
            (one.worker.worker_id, one.worker.incarnation) == life and nonce not in one.begun.get(job_id, ())
            for one in held
        )

    def is_held(self, key: str) -> bool:
        """Whether a running executor renews the lease of a key."""
        return any(one.holds(key) for one in self.executors)

    def heal(self) -> None:
        """Everybody back, zombies awake; a whole executor owns the partition."""
        for name in tuple(self._orphans):
            self.end_orphans(name)
        for action in self.returns():
            action.do()
        self._down.clear()
        left = self._left()
        if left:
            self.start_executor(self.free_worker() or self.around.fresh("w"), left)

    def _lives(self, worker_id: str) -> bool:
        return any(one.worker.worker_id == worker_id for one in self.executors)

    def free_worker(self) -> str | None:
        """A stable name that no living process has."""
        held = self._orphans if self.around.locks == "inherited" else ()
        return next((name for name in self._names if not self._lives(name) and name not in held), None)

    def _wake(self, actor: Planner | Ledger | Executor) -> None:
        for one in self.processes(actor) if isinstance(actor, Executor) else (actor,):
            one.paused = False

    def _some(self) -> Sequence[Surroundings]:
        """All partitions, or one of them; and those that nobody has."""
        if len(self.parts) == 1:
            return self.parts
        left = self._left()
        taken = self.around.tape.pick((self.parts, *((part,) for part in self.parts)))
        return [part for part in self.parts if part in taken or part in left]

    def _left(self) -> list[Surroundings]:
        owned = {one.around.number for one in self.executors if one.owner and not one.closed}
        return [part for part in self.parts if part.number not in owned]

    def _give(self, part: Surroundings, worker: Worker, begun: dict[str, set[str]]) -> None:
        for one in self.executors:
            if one.around is part:
                one.owner = False
        held = [one for one in self.executors if one.around is part and one.worker == worker and not one.closed]
        if held:
            held[0].owner = True  # it had not noticed that it was not
            return
        made = Executor(part, worker, self._start(part, executor.ROLE), self, begun=begun)
        self.executors.append(made)
        if made.has_ended:
            self.stand_down(made)

    def _later(self, name: str, start: Callable[[], None]) -> None:
        action = Action(name, lambda: self._restart(action, start))
        self._down.append(action)

    def _restart(self, action: Action, start: Callable[[], None]) -> None:
        if action in self._down:
            self._down.remove(action)
            start()

    def _name(self, role: str) -> str:
        return self.around.fresh(f"{role}-")

    def _start(self, part: Surroundings, role: str) -> int:
        """Where a restarted service begins to fold: at its mark, or further back."""
        mark = part.group(role).start(Topic.JOBS_EVENTS)
        return 0 if self.around.tape.chance(0.3) else mark

    def _announce(self, worker_id: str) -> Worker:
        incarnation = self.around.fresh("i")
        former = self._lived.setdefault(worker_id, [])
        ended = tuple(Ended(incarnation=one, how=LOCK) for one in former)
        entry = WorkerEntry(worker_id=worker_id, live=incarnation, ended=ended)
        former.append(incarnation)
        self.around.log.adrift(Batch(Topic.WORKERS, ((self.around.fresh("worker-"), entry),)))
        return Worker(worker_id, incarnation)

    def _end_executor(self, actor: Executor) -> None:
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
