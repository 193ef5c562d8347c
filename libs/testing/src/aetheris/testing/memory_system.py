"""A system in memory: the cores of planner, ledger and executor on one log, your own tools, faults, and no waiting.

What decides is what decides in production: the fold, the policy, the ladder of what is in doubt. Time is virtual: it
moves to what is due next when nothing else can be done, so a probe's `settles_within_s` costs nothing. Calls are made
one after another, in this process. Not there: Kafka, Redis, HTTP, secrets, verifiers, seals.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.core.submissions import SubmissionRequest, submit_command
from aetheris.protocol.base.principals import PrincipalKind, RecordedPrincipal, Role
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, KeyState, create_job
from aetheris.protocol.messages.commands import Cancel, ModelEntry, RegistryEntry, Resolve, Respond, Signal
from aetheris.protocol.messages.events import JobCreated
from aetheris.protocol.planning.approvals import may_not_answer, may_not_resolve, votes_as_recorded
from aetheris.protocol.planning.invocation import success
from aetheris.protocol.planning.policy import parse
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.process import policy_file
from aetheris.sdk.client import Goal, Job, StepView
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.tools import AnyTool, Tool
from aetheris.testing.faults import Armed, InjectedFault, Named
from aetheris.testing.roles.executor import InMemoryExecutor, Made
from aetheris.testing.roles.ledger import InMemoryLedger
from aetheris.testing.roles.planner import InMemoryPlanner
from aetheris.testing.roles.verifier import InMemoryVerifier
from aetheris.testing.scripted_model import Script
from aetheris.testing.scripted_planner import ScriptedPlanner
from aetheris.testing.topics import START, Body, Entry, TopicReader, Topics
from aetheris.tool_executor.secret_store import Secrets
from aetheris.tool_executor.tool_calls import Calls
from aetheris.views.standing import job_status, job_view

Verdict = Literal["happened", "not_executed", "retry"]
Action = Literal["approve", "edit", "reject"]

TENANT = "default"
SUBMITTER = "submitter"
APPROVER = "approver"
LONGEST_S = 30 * 86_400.0
"""Virtual time after which a job that has not come to rest counts as stuck."""
_MOST_TURNS = 100_000
_BY_ITSELF = frozenset({"timer", "duplicate"})
"""What a job may wait for that needs nobody's word."""


class PlanRefused(ValueError):
    """The gateway would refuse the submission; the message names the field and the rule."""


class NotAsked(LookupError):
    """Nobody is asked that, or several are and none was named."""


class NotAllowed(PermissionError):
    """Somebody else may say that: the message says who not, and why."""


class JobUnderTest:
    """A job as its log says, at the time of asking."""

    def __init__(
        self, job_id: str, state: JobState, entries: list[Entry], made: Made, blobs: Mapping[str, Any]
    ) -> None:
        """`blobs`: the large results, by their hash."""
        self.job_id = job_id
        self.state = state
        self._entries = entries
        self._made = made
        self._blobs = blobs

    @property
    def view(self) -> Job:
        """What `aetheris job` and GET /jobs/{id} show."""
        return Job.model_validate(job_view(self.state, START.isoformat()))

    @property
    def status(self) -> str:
        """completed, failed, cancelled, waiting, paused, running, …"""
        return job_status(self.state)

    @property
    def why(self) -> str | None:
        """Why it does not go on, or has failed, in words."""
        return self.view.why

    @property
    def parked(self) -> tuple[str, ...]:
        """The nodes of which nobody can know whether they took effect: a human must `resolve` them."""
        return tuple(one.node_id for one in self.state.keys.values() if one.parked_because and one.outcome is None)

    @property
    def asked(self) -> tuple[str, ...]:
        """The nodes that wait for a human's approval, or for his answers to a form."""
        return tuple(step.node_id for step in self.view.steps if step.request_id is not None)

    @property
    def events(self) -> tuple[str, ...]:
        """The types of its events, in order."""
        return tuple(entry.body.event_type for entry in self._entries)

    def note(self, entry: Entry) -> None:
        """One more event of it."""
        self._entries.append(entry)

    def step(self, node_id: str) -> StepView:
        """Where one step stands.

        Raises:
            LookupError: the plan has no such node.
        """
        found = next((one for one in self.view.steps if one.node_id == node_id), None)
        if found is None:
            raise LookupError(f"the plan has no node {node_id}")
        return found

    def result(self, node_id: str) -> Any:
        """What a step that succeeded returned.

        Raises:
            LookupError: it has not succeeded.
        """
        if self.step(node_id).state != "completed":
            raise LookupError(f"{node_id} has not succeeded: {self.step(node_id).state}")
        found = success(self.state, node_id)
        return found.result if found.result_ref is None else self._blobs[found.result_ref.sha256]

    def calls(self, tool: Named) -> int:
        """How often the tool's function was called for this job."""
        return self._made[self.job_id, tool if isinstance(tool, str) else tool.name]


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
        self, *tools: AnyTool | ModuleType, policy: Path | str | None = None, model: Script | None = None
    ) -> None:
        toolbox = Toolbox({one.key: one for one in _tools(tools)})
        self._registry = {one.name: one for one in map(RegistryEntry.model_validate, toolbox.entries())}
        self._models: dict[str, ModelEntry] = {}
        self._topics = Topics()
        self._faults = Armed()
        self._made: Made = Counter()
        self._jobs: dict[str, JobUnderTest] = {}
        self._events = TopicReader(self._topics, (Topic.JOBS_EVENTS,))
        planner = ScriptedPlanner(model, toolbox) if model is not None else None
        if planner is not None:
            self._models = {one.name: one for one in planner.registry()}
        self._calls = Calls(toolbox, SystemClock(), Secrets(()), cast("Any", planner), in_the_clear=True)
        rules = parse(policy) if isinstance(policy, str) else policy_file.load(policy)
        self._planner = InMemoryPlanner(self._topics)
        self._ledger = InMemoryLedger(self._topics, rules, self._registry)
        self._verifier = InMemoryVerifier(self._topics, toolbox)
        self._executors = [self._executor()]

    def run(
        self,
        plan: Mapping[str, Any] | Path | Goal,
        *,
        faults: Iterable[InjectedFault] = (),
        options: Mapping[str, Any] | None = None,
    ) -> JobUnderTest:
        """Submit a plan, or a goal, and go on until the job has ended, or only a human or a signal can let it go on.

        Raises:
            PlanRefused: as the gateway would refuse it.
            FaultNotMet: the job ended, and a fault never struck.
        """
        self._faults.arm(faults)
        if self._faults.duplicates and not self._topics.duplicates:
            self._topics.duplicates = True
            self._executors.append(self._executor())
        job_id = self._topics.fresh("job")
        self._say(job_id, Topic.JOBS_COMMANDS, self._submission(job_id, plan, options or {}))
        return self._jobs[job_id]

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
        command = Signal(
            job_id=job.job_id,
            by=APPROVER,
            tenant=TENANT,
            principal=_person(APPROVER),
            correlation_key=key,
            payload=payload,
            as_of=self._as_of,
        )
        return self._say(job.job_id, Topic.JOBS_COMMANDS, command)

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

    def _executor(self) -> InMemoryExecutor:
        return InMemoryExecutor(self._topics, self._topics.fresh("executor"), self._calls, self._faults, self._made)

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
        step, state = _asked(job, node)
        about = state.waits_for if state.is_waiting else state.requested
        if about is not None:
            _check(may_not_answer(about, action, job.state.created, _person(by), votes_as_recorded(state.votes)))
        responded = Respond(
            job_id=job.job_id,
            by=by,
            tenant=TENANT,
            principal=_person(by),
            request_id=step.request_id or "",
            action=action,
            data=dict(data),
            as_of=self._as_of,
        )
        return self._say(job.job_id, Topic.JOBS_COMMANDS, responded)

    def _say(self, job_id: str, topic: Topic, body: Body) -> JobUnderTest:
        self._topics.append(topic, (self._topics.fresh("command"), body))
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
        await self._settle()
        while not self._rests() and (due_s := self._ledger.due_s()) is not None:
            self._topics.now_s = max(self._topics.now_s, due_s)
            await self._settle()
            if self._topics.now_s > longest_s:
                raise TimeoutError(f"a job has not come to rest after {LONGEST_S / 86_400:.0f} days")

    async def _settle(self) -> None:
        """Everybody's turns, until nobody has anything new."""
        for _ in range(_MOST_TURNS):
            moved = self._planner.turn()
            moved = self._ledger.turn() or moved
            moved = await self._verifier.turn() or moved
            news = [executor.read() for executor in self._executors]
            for executor in self._executors:
                await executor.act()
            self._fold()
            if not moved and not any(news):
                return
        raise TimeoutError(f"nobody has come to rest after {_MOST_TURNS} turns")

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

    def _rests(self) -> bool:
        return all(_rests(job.state) for job in self._jobs.values())


def _tools(given: Sequence[AnyTool | ModuleType]) -> Iterator[AnyTool]:
    for one in given:
        if isinstance(one, ModuleType):
            yield from (cast("AnyTool", found) for found in vars(one).values() if isinstance(found, Tool))
        else:
            yield one


def _rests(job: JobState) -> bool:
    """Whether only somebody's word lets it go on."""
    status = job_status(job)
    if job.terminal is not None or status == "paused":
        return True
    return status == "waiting" and not any(kind in _BY_ITSELF for kind, _ in job.open_waits)


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
