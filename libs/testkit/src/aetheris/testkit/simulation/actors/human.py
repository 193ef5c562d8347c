"""Humans, simulated: they submit, pause, cancel, signal, answer what is asked, resolve what is parked, truthfully."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.ids import event_id, execution_id
from aetheris.protocol.base.principals import PrincipalKind, RecordedPrincipal, Role
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus
from aetheris.protocol.messages.commands import (
    Cancel,
    CancelContract,
    FreezeOrder,
    JobCommand,
    Pause,
    Resolve,
    Respond,
    Resume,
    Signal,
    Submit,
    ToolRelease,
    WorkerEnd,
)
from aetheris.protocol.messages.events import Event, JobWaiting, PlanGenerated
from aetheris.protocol.planning.approvals import request_id, resolvers
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.testkit.simulation.installation import SimRecords
from aetheris.testkit.simulation.log import WholeBatch
from aetheris.testkit.simulation.scenario import CODES, TENANT, Lasting
from aetheris.testkit.simulation.surroundings import ScheduledAction, SimulationSurroundings

Jobs = Mapping[str, JobState]

Said = Literal["approve", "edit", "reject"]

HUMANS = ("bob", "carol")
"""Who answers; neither submitted anything, and what one has edited the other approves."""

ROBOT = "robot"
VOTERS = (*HUMANS, "dan", "ann", ROBOT)
"""Who answers where two must say yes: the last two may not, for one submitted the job and the other is no person."""


class Human:
    """Sees the log as it stands; revisions go straight into it: this version has no other way."""

    name = "human"

    def __init__(
        self,
        partitions: Sequence[SimulationSurroundings],
        jobs: Jobs,
        orders: FreezeOrders,
        unproven: dict[tuple[str, str], None],
        quarantined: Callable[[], Iterable[str]],
        *,
        records: SimRecords,
    ) -> None:
        """`records`: a planner's, of all partitions."""
        self.retries: dict[tuple[str, str], int] = {}
        """(job_id, node_id) → the tries that a human took the risk of."""
        self.interesting: dict[str, None] = {}
        """Jobs about which something may be left to say."""
        self.lies: dict[tuple[str, str], None] = {}
        """Lives that he said had ended, and that had not."""
        self.words: list[JobCommand] = []
        """All that was said of jobs, and is to have an effect."""
        self._parts = partitions
        self._around = partitions[0]
        self._jobs = jobs
        self._orders = orders
        self._unproven = unproven
        self._quarantined = quarantined
        self._records = records
        self._writers = [part.log.writer(self.name) for part in partitions]
        self._said: set[tuple[str, ...]] = set()

    def actions(self) -> list[ScheduledAction]:
        """Answers to what the log asks, each once; and the end of a worker that nothing proves."""
        found: list[ScheduledAction] = []
        if self._unproven and self._resolves():
            for life in self._unproven:
                found.append(ScheduledAction(f"human says that {'/'.join(life)} has ended", self._ending(life)))
        if self._around.calm and self._around.scenario.needs_release and not self._writers[0].under_way:
            for tool in self._quarantined():
                found.append(ScheduledAction(f"human releases {tool}", partial(self.release, tool)))
        for order in self.frozen():
            if self._unsaid("unfreeze", order.key, str(order.number)):
                found.append(ScheduledAction(f"human unfreezes {order.scope}", partial(self._unfreeze, order)))
        for job_id in tuple(self.interesting):
            open_ = [*self._open(self._jobs[job_id])]
            if not open_:
                self.interesting.pop(job_id, None)
            found += open_
        return found

    def submit(self, submission: Submit) -> None:
        """Ask for a job; again under another id is the same to the planner."""
        self._command(submission)

    def cancel(self, job_id: str) -> None:
        """Ask for a job's end, and perhaps for what it did to be undone."""
        compensate = self._around.tape.chance(0.5)
        self._command(Cancel(job_id=job_id, by="bob", tenant=TENANT, reason="enough", compensate=compensate))

    def pause(self, job: JobState) -> None:
        """Ask that nothing more of a job starts; two people may at once."""
        for by in HUMANS[: 1 + self._around.tape.below(2)]:
            self._command(Pause(job_id=job.job_id, by=by, tenant=TENANT, number=job.pauses + 1, reason="wait"))

    def call_off(self, job: JobState, key: str) -> None:
        """Ask for one step's end, whatever it is at; of one that nobody has asked for, it does nothing."""
        state = job.keys[key]
        execution = execution_id(job.job_id, state.node_id, key)
        as_of = self._as_of(job.job_id)
        command = CancelContract(job_id=job.job_id, by="bob", tenant=TENANT, execution_id=execution, as_of=as_of)
        asked_for = state.requested is not None or state.is_waiting
        self._command(command, counts=state.status is not KeyStatus.NONE or asked_for)

    def takes_back(self, job: JobState, key: str) -> None:
        """Somebody says yes, and somebody else cancels the step in the same breath."""
        state = job.keys[key]
        if state.is_asking:
            self._respond(job, _request(job, key, state), HUMANS[1], "approve", {})
        self.call_off(job, key)

    def signal(self, job_id: str, correlation_key: str, by: str = "bob") -> None:
        """Tell a job something, perhaps before it waits for it, perhaps again."""
        self._command(
            Signal(
                job_id=job_id,
                by=by,
                tenant=TENANT,
                principal=principal(by),
                correlation_key=correlation_key,
                payload={"v": correlation_key},
                as_of=self._as_of(job_id),
            )
        )

    def frozen(self) -> list[FreezeOrder]:
        """The freezes that somebody has to end."""
        return list(self._orders.in_force())

    def freeze(self, scope: FreezeScope, *, off: int = 0) -> None:
        """Order a freeze; `off`: how far its number is from the next one, where he does not know better."""
        last = self._orders.last(scope.key)
        number = max(1, (last.number if last is not None else 0) + 1 + off)
        self._order(FreezeOrder(scope=scope, number=number, frozen=True, by="bob", at="", reason="stop"))

    def _unfreeze(self, order: FreezeOrder) -> None:
        self._said.add(("unfreeze", order.key, str(order.number)))
        self._order(order.model_copy(update={"frozen": False, "by": "carol"}))

    def _order(self, order: FreezeOrder) -> None:
        self._writers[0].append([WholeBatch(Topic.FREEZES, ((self._around.fresh("freeze-"), order),))])

    def release(self, tool: str) -> None:
        """Say that the calls of a tool wait no longer, whatever it failed in what the log holds now."""
        ends = tuple(part.log.end(Topic.JOBS_EVENTS) for part in self._parts)
        release = ToolRelease(tenant=TENANT, tool=tool, by="bob", reason="mended", at="", below=ends)
        self._writers[0].append([WholeBatch(Topic.TOOLS_REGISTRY, ((self._around.fresh("release-"), release),))])

    def end_worker(self, life: tuple[str, str], *, lives: bool) -> None:
        """His word that a worker has ended; false where it `lives`."""
        if lives:
            self.lies[life] = None
        end = WorkerEnd(worker_id=life[0], incarnation=life[1], by="bob", evidence="looked")
        self._writers[0].append([WholeBatch(Topic.WORKERS, ((self._around.fresh("worker-"), end),))])

    def revise(self, job: JobState, diff: Mapping[str, Any]) -> None:
        """A new revision of the plan, on top of the one in force."""
        planned = PlanGenerated(
            job_id=job.job_id,
            revision=job.revision + 1,
            plan_hash=digest(diff),
            diff=dict(diff),
            planner="human",
            planner_version="1",
        )
        self._event(planned, str(planned.revision), planned.plan_hash)

    def ask_again(self) -> None:
        """What was said and came to nothing may be said once more."""
        self._said.clear()
        self.interesting.update(dict.fromkeys(self._jobs))

    def _open(self, job: JobState) -> Iterable[ScheduledAction]:
        if job.terminal is not None:
            return
        if ("resolve", None) in job.open_waits and self._resolves() and self._unsaid("resolve", job.job_id):
            yield ScheduledAction(f"human decides whether to undo {job.job_id}", self._cancelling(job))
        for by in HUMANS:
            if job.paused is not None and self._unsaid("resume", job.job_id, by, str(job.pauses)):
                yield ScheduledAction(f"{by} resumes {job.job_id}", self._resuming(job, by))
        for waiting in job.open_waits.values():
            name = waiting.correlation_key
            for by in HUMANS if waiting.approvals else HUMANS[:1]:
                known = ("signal", job.job_id, name or "", by)
                if waiting.wait_type in ("signal", "confirmation") and name and self._unsaid(*known):
                    yield ScheduledAction(f"{by} signals {name}", self._signalling(job.job_id, name, by))
        for key, state in job.keys.items():
            for by in VOTERS if _needs_votes(state) else HUMANS:
                if _is_asked(state) and self._decides() and self._unsaid("decide", key, by, str(state.asks)):
                    yield ScheduledAction(f"{by} answers about {state.node_id}", self._answering(job, key, state, by))
            several = state.parked is not None and resolvers(job, state).approvals > 1
            for by in VOTERS if several else HUMANS[:1]:
                unsaid = self._unsaid("resolve", key, by, str(state.fencing_token))
                if state.status is KeyStatus.PARKED and self._resolves() and unsaid:
                    yield ScheduledAction(f"{by} resolves {state.node_id}", self._resolving(job, key, state, by))

    def _ending(self, life: tuple[str, str]) -> Callable[[], None]:
        def do() -> None:
            self._unproven.pop(life, None)
            self.end_worker(life, lives=False)

        return do

    def _cancelling(self, job: JobState) -> Callable[[], None]:
        def do() -> None:
            self._said.add(("resolve", job.job_id))
            self.cancel(job.job_id)

        return do

    def _resuming(self, job: JobState, by: str) -> Callable[[], None]:
        number = job.pauses

        def do() -> None:
            self._said.add(("resume", job.job_id, by, str(number)))
            self._command(Resume(job_id=job.job_id, by=by, tenant=TENANT, number=number))

        return do

    def _decides(self) -> bool:
        return self._around.lasting is not Lasting.NOBODY_DECIDES

    def _resolves(self) -> bool:
        return self._around.scenario.humans_resolve

    def _unsaid(self, *what: str) -> bool:
        return what not in self._said

    def _signalling(self, job_id: str, name: str, by: str) -> Callable[[], None]:
        def do() -> None:
            self._said.add(("signal", job_id, name, by))
            self.signal(job_id, name, by)

        return do

    def _answering(self, job: JobState, key: str, state: KeyState, by: str) -> Callable[[], None]:
        def do() -> None:
            self._said.add(("decide", key, by, str(state.asks)))
            self._decide(job, key, state, by)

        return do

    def _resolving(self, job: JobState, key: str, state: KeyState, by: str) -> Callable[[], None]:
        def do() -> None:
            self._said.add(("resolve", key, by, str(state.fencing_token)))
            self._resolve(job, key, state, by)

        return do

    def _decide(self, job: JobState, key: str, state: KeyState, by: str) -> None:
        """Yes, no, or an edit; the first word that the ledger takes up counts."""
        tape = self._around.tape
        action: Said = "reject" if tape.chance(0.15) and by not in ("ann", ROBOT) else "approve"
        data: dict[str, Any] = {}
        may_edit = state.requested is not None and not state.needs_yes
        may_edit = may_edit and by not in ("ann", ROBOT)
        if action == "approve" and may_edit and not self._around.calm and tape.chance(0.15):
            action, data = "edit", {"for": f"as {by} has it"}
        self._around.say(f"    {by} says of {state.node_id}: {action}")
        for _ in range(2 if _needs_votes(state) and tape.chance(0.3) else 1):
            self._respond(job, _request(job, key, state), by, action, data)

    def _respond(self, job: JobState, request: str, by: str, action: Said, data: dict[str, Any]) -> None:
        self._command(
            Respond(
                job_id=job.job_id,
                by=by,
                tenant=TENANT,
                principal=principal(by),
                request_id=request,
                action=action,
                data=data,
                as_of=self._as_of(job.job_id),
            )
        )

    def _resolve(self, job: JobState, key: str, state: KeyState, by: str) -> None:
        """He looks outside; what has not arrived there he can't see."""
        started = state.started
        effect = self._around.external.found(started.external_key) if started is not None else None
        verdict: Literal["happened", "not_executed", "retry"] = "happened"
        if effect is None:
            verdict = "retry" if self._around.tape.chance(0.8 if _has_body(job, state) else 0.5) else "not_executed"
        if verdict == "retry":
            node = (job.job_id, state.node_id)
            self.retries[node] = self.retries.get(node, 0) + 1
        accepts = self._accepts(job, state) if verdict == "retry" else None
        self._around.say(f"    {by} says of {state.node_id}: {verdict}{'' if accepts is None else ', as it is now'}")
        self._command(
            Resolve(
                job_id=job.job_id,
                by=by,
                tenant=TENANT,
                principal=principal(by),
                execution_id=execution_id(job.job_id, state.node_id, key),
                verdict=verdict,
                evidence="looked",
                result=effect.result if effect is not None else None,
                accept_code=accepts,
                as_of=self._as_of(job.job_id),
            ),
            counts=by not in ("ann", ROBOT),
        )

    def _accepts(self, job: JobState, state: KeyState) -> str | None:
        """Of a workflow that has parted from what is recorded: which code may go on, now and then."""
        accepts = _has_body(job, state) and self._around.tape.chance(0.6)
        return CODES[self._around.deployed[-1]].hash if accepts else None

    def _as_of(self, job_id: str) -> int:
        return self._parts[self._number(job_id)].log.end(Topic.JOBS_EVENTS) - 1

    def _number(self, job_id: str) -> int:
        return self._around.scenario.number_of(job_id)

    def _command(self, body: JobCommand, *, counts: bool = True) -> None:
        if counts:
            self.words.append(body)
        self._writers[self._number(body.job_id)].append(
            [WholeBatch(Topic.JOBS_COMMANDS, ((self._around.fresh("command-"), body),))]
        )

    def _event(self, event: Event, *cause: str) -> None:
        writer = self._writers[self._number(event.job_id)]
        written = WholeBatch(Topic.JOBS_EVENTS, ((event_id(event.job_id, event.event_type, *cause), event),))
        writer.append(self._records.signed([written]))


def principal(name: str) -> RecordedPrincipal:
    """Somebody who may do everything in his tenant, as far as his roles say."""
    kind = PrincipalKind.AGENT if name == ROBOT else PrincipalKind.PERSON
    return RecordedPrincipal(id=name, kind=kind, roles=tuple(Role), tenant=TENANT)


def _has_body(job: JobState, state: KeyState) -> bool:
    return job.bodies is not None and state.node_id in job.bodies.of


def _needs_votes(state: KeyState) -> bool:
    return state.requested is not None and state.requested.approvals is not None


def _is_asked(state: KeyState) -> bool:
    """Whether a human is asked for an approval, or to fill a form of the plan."""
    return state.is_asking or (state.is_waiting and _waits(state).wait_type == "human")


def _waits(state: KeyState) -> JobWaiting:
    if state.waits_for is None:
        raise LookupError("the key waits for nothing")
    return state.waits_for


def _request(job: JobState, key: str, state: KeyState) -> str:
    if state.is_waiting:
        return _waits(state).correlation_key or ""
    return request_id(job.job_id, state.node_id, key, state.asks)
