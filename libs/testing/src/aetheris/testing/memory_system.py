"""A system in memory: the cores of planner, ledger and executor on one log, your own tools, faults, and no waiting.

What decides is what decides in production: the fold, the policy, the ladder of what is in doubt. Time is virtual: it
moves to what is due next when nothing else can be done, so a probe's `settles_within_s` costs nothing. Calls are made
one after another, in this process. Not there: Kafka, Redis, HTTP, secrets, verifiers, seals.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal, cast

from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.core.submissions import SubmissionRequest, submit_command
from aetheris.protocol.base.principals import PrincipalKind, RecordedPrincipal, Role
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import KeyState, create_job
from aetheris.protocol.messages.commands import Cancel, ModelEntry, RegistryEntry, Resolve, Respond, Signal, Submit
from aetheris.protocol.messages.events import Event, JobCreated
from aetheris.protocol.planning.approvals import may_not_answer, may_not_resolve, votes_as_recorded
from aetheris.protocol.planning.policy import parse
from aetheris.runtime.process import policy_file
from aetheris.sdk.client import Goal, StepView
from aetheris.sdk.client.blocking_runs import SessionRun
from aetheris.sdk.client.run_asks import RunAsks, RunOptions
from aetheris.sdk.context import ToolContext
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.outcomes import NotExecuted
from aetheris.sdk.tools import AnyTool, Tool
from aetheris.sdk.workflows.child_jobs import job_tools
from aetheris.sdk.workflows.declaration import AnyWorkflow, Workflow
from aetheris.sdk.workflows.local_calls import called, local_tools
from aetheris.testing.faults import Armed, InjectedFault
from aetheris.testing.job_rest import awaited_keys, rests
from aetheris.testing.job_under_test import JobUnderTest
from aetheris.testing.roles.executor import InMemoryExecutor, Made
from aetheris.testing.roles.ledger import InMemoryLedger
from aetheris.testing.roles.planner import InMemoryPlanner
from aetheris.testing.roles.verifier import InMemoryVerifier
from aetheris.testing.scripted_model import Script
from aetheris.testing.scripted_planner import ScriptedPlanner
from aetheris.testing.session_gateway import SessionGateway
from aetheris.testing.topics import Body, TopicReader, Topics, TopicsClock
from aetheris.tool_executor.secret_store import Secrets
from aetheris.tool_executor.tool_calls import Calls

Verdict = Literal["happened", "not_executed", "retry"]
Action = Literal["approve", "edit", "reject"]

TENANT = "default"
SUBMITTER = "submitter"
APPROVER = "approver"
LONGEST_S = 30 * 86_400.0
"""Virtual time after which a job that has not come to rest counts as stuck."""
_MOST_TURNS = 100_000


class PlanRefused(ValueError):
    """The gateway would refuse the submission; the message names the field and the rule."""


class NotAsked(LookupError):
    """Nobody is asked that, or several are and none was named."""


class NotAllowed(PermissionError):
    """Somebody else may say that: the message says who not, and why."""


class MemorySystem:
    """A system with your tools; in async tests call its methods by `asyncio.to_thread`.

    Args:
        tools: tools, and modules that have some.
        policy: a policy file, or its TOML; without one irreversible calls need approval.
        model: the answers of a scripted model to goals (see `aetheris.testing.scripted_model`).

    Raises:
        DeclarationError: a tool can't be registered.
        PolicyError: of the policy.
    """

    def __init__(
        self, *tools: AnyTool | AnyWorkflow | ModuleType, policy: Path | str | None = None, model: Script | None = None
    ) -> None:
        toolbox = Toolbox({one.key: one for one in (*local_tools(self._make), *job_tools(), *_declared(tools, Tool))})
        self._workflows: Sequence[AnyWorkflow] = list(_declared(tools, Workflow))
        self._models: dict[str, ModelEntry] = {}
        self._topics = Topics()
        self._faults = Armed()
        self._made: Made = Counter()
        self._jobs: dict[str, JobUnderTest] = {}
        self._events = TopicReader(self._topics, (Topic.JOBS_EVENTS,))
        planner = ScriptedPlanner(model, toolbox) if model is not None else None
        if planner is not None:
            self._models = {one.name: one for one in planner.registry()}
        self._calls = Calls(toolbox, TopicsClock(self._topics), Secrets(()), cast("Any", planner), in_the_clear=True)
        workflows = (RegistryEntry.model_validate(one.registry_entry()) for one in self._workflows)
        known = (one for one in self._calls.registry() if isinstance(one, RegistryEntry))
        self._registry = {one.name: one for one in (*known, *workflows)}
        rules = parse(policy) if isinstance(policy, str) else policy_file.load(policy)
        self._signals: dict[str, dict[str, Any]] = {}
        """By job, what it is still to be told."""
        self._answers: dict[str, list[Mapping[str, Any] | None]] = {}
        self.moments = 0
        """So often the log had grown when everybody had had a turn."""
        self._seen = 0
        self._dies: int | None = None
        self._planner = InMemoryPlanner(self._topics)
        self._ledger = InMemoryLedger(self._topics, rules, self._registry, self._runs)
        self._verifier = InMemoryVerifier(self._topics, toolbox)
        self._executors = [self._executor()]

    @property
    def jobs(self) -> Sequence[JobUnderTest]:
        """All that there are, in the order in which they were created."""
        return tuple(self._jobs.values())

    def run(
        self,
        plan: Mapping[str, Any] | Path | Goal,
        *,
        faults: Iterable[InjectedFault] = (),
        options: Mapping[str, Any] | None = None,
        signals: Mapping[str, Any] = MappingProxyType({}),
        answers: Sequence[Mapping[str, Any] | None] = (),
    ) -> JobUnderTest:
        """Submit a plan, or a goal, and go on until the job has ended, or only a human or a signal can let it go on.

        Args:
            faults: what goes wrong.
            options: of the job.
            signals: what it is told, by key, as soon as it waits for that.
            answers: what it is answered, one after another, as soon as it asks one thing: the fields, or None: no.

        Raises:
            PlanRefused: as the gateway would refuse it.
            FaultNotMet: the job ended, and a fault never struck.
        """
        self._faults.arm(faults)
        if self._faults.duplicates and not self._topics.duplicates:
            self._topics.duplicates = True
            self._executors.append(self._executor())
        job_id = self._topics.fresh("job")
        submitted = self._submission(job_id, plan, options or {})
        self._topics.append(Topic.JOBS_COMMANDS, (self._topics.fresh("command"), submitted))
        self._signals[job_id], self._answers[job_id] = dict(signals), list(answers)
        return self._at_rest(job_id)

    def session(
        self, run_id: str, *, tools: Sequence[str], idle_timeout_s: float | None = None, beside: bool = False
    ) -> SessionRun:
        """A run of code of your own, as `Client.run` gives one; a call that waits for a person raises StillWaits.

        The job of it is `session_job`.
        """
        gateway = SessionGateway(TENANT, SUBMITTER, self._registry, self._do, self._logged)
        given = RunOptions(run_id=run_id, tools=tools, idle_timeout_s=idle_timeout_s)
        return SessionRun(gateway.send, RunAsks(given, self._topics.fresh("body"), beside), 0)

    def session_job(self, run: SessionRun) -> JobUnderTest:
        """The job of a run that was attached to."""
        return self._jobs[run.job_id]

    def approve(
        self, job: JobUnderTest, node: str | None = None, *, data: Mapping[str, Any] | None = None, by: str = APPROVER
    ) -> JobUnderTest:
        """Say yes to the call that waits for it, or answer a form with `data`; `node` where several are asked about.

        Raises:
            NotAsked, NotAllowed, FaultNotMet.
        """
        return self._respond(job, node, "approve", data or {}, by)

    def edit(
        self, job: JobUnderTest, node: str | None = None, *, data: Mapping[str, Any], by: str = APPROVER
    ) -> JobUnderTest:
        """Give the call other arguments; what comes of it asks anew. Raises: as `approve`."""
        return self._respond(job, node, "edit", data, by)

    def reject(self, job: JobUnderTest, node: str | None = None, *, by: str = APPROVER) -> JobUnderTest:
        """Say no: the call never starts. Raises: as `approve`."""
        return self._respond(job, node, "reject", {}, by)

    def resolve(
        self, job: JobUnderTest, node: str, verdict: Verdict, *, result: Any = None, by: str = APPROVER
    ) -> JobUnderTest:
        """Say what became of a call of which nobody knew.

        Raises:
            NotAsked: it is not parked.
            NotAllowed: somebody else may say that.
            FaultNotMet.
        """
        if node not in job.parked:
            raise NotAsked(f"{node} is not parked; these are: {', '.join(job.parked) or 'none'}")
        state = next(one for one in job.state.keys.values() if one.node_id == node and one.outcome is None)
        _check(may_not_resolve(job.state, state, _person(by), verdict))
        resolved = Resolve(
            job_id=job.job_id,
            by=by,
            tenant=TENANT,
            principal=_person(by),
            execution_id=job.step(node).execution_id or "",
            verdict=verdict,
            evidence="a test says so",
            result=result,
            as_of=self._as_of,
        )
        return self._say(job.job_id, Topic.JOBS_COMMANDS, resolved)

    def signal(self, job: JobUnderTest, key: str, payload: Any = None) -> JobUnderTest:
        """Tell a job what a node of it waits for; raises FaultNotMet."""
        return self._say(job.job_id, Topic.JOBS_COMMANDS, self._signal(job.job_id, key, payload))

    def cancel(self, job: JobUnderTest, *, compensate: bool = False) -> JobUnderTest:
        """Ask a job to stop, and perhaps to undo what it did; raises FaultNotMet."""
        command = Cancel(job_id=job.job_id, by=SUBMITTER, tenant=TENANT, compensate=compensate)
        return self._say(job.job_id, Topic.JOBS_COMMANDS, command)

    def pass_time(self, seconds: float) -> None:
        """Let time go by: requests expire, waits time out; raises FaultNotMet."""
        until_s = self._topics.now_s + seconds
        while (due_s := self._ledger.due_s()) is not None and due_s <= until_s:
            self._topics.now_s = max(self._topics.now_s, due_s)
            asyncio.run(self._settle())
        self._topics.now_s = until_s
        asyncio.run(self._settle())

    def shuffle(self, chance: random.Random) -> None:
        """From here on calls that are under way together end in any order."""
        for executor in self._executors:
            executor.order = lambda calls: chance.sample(calls, len(calls))

    def lose_bodies(self, moment: int | None) -> None:
        """Have the process of workflows' bodies die at one of the moments; None: at none."""
        self._dies = moment

    def _signal(self, job_id: str, key: str, payload: Any) -> Signal:
        return Signal(
            job_id=job_id,
            by=APPROVER,
            tenant=TENANT,
            principal=_person(APPROVER),
            correlation_key=key,
            payload=payload,
            as_of=self._as_of,
        )

    def _runs(self, key: str) -> bool:
        return any(executor.runs(key) for executor in self._executors)

    async def _make(self, ctx: ToolContext) -> Any:
        """What a body's own function returns."""
        for executor in self._executors:
            function = executor.local(ctx)
            if function is not None:
                return await called(function)
        raise NotExecuted("no body has asked for it")

    def _executor(self) -> InMemoryExecutor:
        name = self._topics.fresh("executor")
        return InMemoryExecutor(self._topics, name, self._calls, self._faults, self._made, workflows=self._workflows)

    def _submission(self, job_id: str, plan: Mapping[str, Any] | Path | Goal, options: Mapping[str, Any]) -> Body:
        if isinstance(plan, Path):
            plan = cast("dict[str, Any]", json.loads(plan.read_text()))
        wanted = plan.body() if isinstance(plan, Goal) else {"plan": dict(plan)}
        raw = json.dumps({**wanted, "options": dict(options)}).encode()
        try:
            return submit_command(raw, SubmissionRequest(job_id, SUBMITTER, TENANT, None), self._registry, self._models)
        except BadRequestProblem as refused:
            raise PlanRefused(str(refused)) from None

    def _respond(
        self, job: JobUnderTest, node: str | None, action: Action, data: Mapping[str, Any], by: str
    ) -> JobUnderTest:
        return self._say(job.job_id, Topic.JOBS_COMMANDS, self._response(job, node, action, data, by))

    def _response(
        self, job: JobUnderTest, node: str | None, action: Action, data: Mapping[str, Any], by: str
    ) -> Respond:
        step, state = _asked(job, node)
        about = state.waits_for if state.is_waiting else state.requested
        if about is not None:
            _check(may_not_answer(about, action, job.state.created, _person(by), votes_as_recorded(state.votes)))
        return Respond(
            job_id=job.job_id,
            by=by,
            tenant=TENANT,
            principal=_person(by),
            request_id=step.request_id or "",
            action=action,
            data=dict(data),
            as_of=self._as_of,
        )

    def _do(self, command: Submit | Signal) -> None:
        self._say(command.job_id, Topic.JOBS_COMMANDS, command)

    def _logged(self, job_id: str) -> list[tuple[Event, int]]:
        job = self._jobs.get(job_id)
        return [] if job is None else job.placed

    def _say(self, job_id: str, topic: Topic, body: Body) -> JobUnderTest:
        self._topics.append(topic, (self._topics.fresh("command"), body))
        return self._at_rest(job_id)

    def _at_rest(self, job_id: str) -> JobUnderTest:
        asyncio.run(self._come_to_rest())
        job = self._jobs[job_id]
        if job.state.terminal is not None:
            self._faults.check_met()
        return job

    @property
    def _as_of(self) -> int:
        return self._topics.end(Topic.JOBS_EVENTS) - 1

    async def _come_to_rest(self) -> None:
        """Until nothing can be done, and time alone changes nothing.

        Raises:
            TimeoutError: it does not.
        """
        longest_s = self._topics.now_s + LONGEST_S
        await self._settle_all()
        while not self._rests() and (due_s := self._ledger.due_s()) is not None:
            self._topics.now_s = max(self._topics.now_s, due_s)
            await self._settle_all()
            if self._topics.now_s > longest_s:
                raise TimeoutError(f"a job has not come to rest after {LONGEST_S / 86_400:.0f} days")

    async def _settle_all(self) -> None:
        """What can be done now; bodies that only wait then are let go of, and begin anew when they can go on."""
        await self._settle()
        while self._speak() or any(executor.bodies_fall_asleep() for executor in self._executors):
            await self._settle()

    async def _settle(self) -> None:
        """Everybody's turns, until nobody has anything new."""
        for _ in range(_MOST_TURNS):
            moved = self._planner.turn()
            moved = self._ledger.turn() or moved
            moved = await self._verifier.turn() or moved
            self._mark_moment()
            news = [executor.read() for executor in self._executors]
            for executor in self._executors:
                await executor.act()
            self._fold()
            if not moved and not any(news):
                return
        raise TimeoutError(f"nobody has come to rest after {_MOST_TURNS} turns")

    def _mark_moment(self) -> None:
        if self._topics.end(Topic.JOBS_EVENTS) == self._seen:
            return
        self._seen = self._topics.end(Topic.JOBS_EVENTS)
        self.moments += 1
        if self.moments == self._dies:
            for executor in self._executors:
                executor.lose_bodies()

    def _fold(self) -> None:
        for entry in self._events.take(Topic.JOBS_EVENTS):
            job = self._jobs.get(entry.body.job_id)
            if job is not None:
                apply(job.state, entry.body, entry.record.offset)
                job.note(entry)
            elif isinstance(entry.body, JobCreated):
                created = create_job(entry.body, entry.record.offset)
                self._jobs[created.job_id] = JobUnderTest(
                    created.job_id, created, [entry], self._made, self._topics.blobs
                )

    def _speak(self) -> bool:
        """Tell jobs what they wait for and were to be told; whether there was anything."""
        said: list[Signal | Respond] = [
            self._signal(job_id, key, given.pop(key))
            for job_id, given in self._signals.items()
            for key in awaited_keys(self._jobs[job_id].state)
            if key in given
        ]
        for job_id, answers in self._answers.items():
            if answers and len(self._jobs[job_id].asked) == 1:
                said.append(self._answered(self._jobs[job_id], answers.pop(0)))
        for command in said:
            self._topics.append(Topic.JOBS_COMMANDS, (self._topics.fresh("command"), command))
        return bool(said)

    def _answered(self, job: JobUnderTest, data: Mapping[str, Any] | None) -> Respond:
        return self._response(job, None, "reject" if data is None else "approve", data or {}, APPROVER)

    def _rests(self) -> bool:
        return all(rests(job.state) for job in self._jobs.values())


def _declared(given: Sequence[Any], kind: type[Any]) -> Iterator[Any]:
    for one in given:
        candidates = vars(one).values() if isinstance(one, ModuleType) else (one,)
        yield from (found for found in candidates if isinstance(found, kind))


def _asked(job: JobUnderTest, node: str | None) -> tuple[StepView, KeyState]:
    if (node is None and len(job.asked) != 1) or (node is not None and node not in job.asked):
        raise NotAsked(f"name one of the nodes that are asked about: {', '.join(job.asked) or 'none'}")
    step = job.step(node or job.asked[0])
    keys = [one for one in job.state.keys.values() if one.node_id == step.node_id]
    return step, next(one for one in reversed(keys) if one.is_asking or one.is_waiting)


def _person(name: str) -> RecordedPrincipal:
    """Somebody who may do everything in his tenant, as far as his roles say."""
    return RecordedPrincipal(id=name, kind=PrincipalKind.PERSON, roles=tuple(Role), tenant=TENANT)


def _check(refused: str | None) -> None:
    if refused is not None:
        raise NotAllowed(refused)
