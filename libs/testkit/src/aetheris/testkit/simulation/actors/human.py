"""Humans, simulated: they submit, cancel, decide what is asked, and resolve what is parked, truthfully."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import event_id, execution_id
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.state import JobState, KeyState, St
from aetheris.protocol.messages.commands import Cancel, Resolve, Submit
from aetheris.protocol.messages.events import ApprovalDecided, Decision, Event, PlanGenerated
from aetheris.testkit.simulation.log import Batch, Body
from aetheris.testkit.simulation.scenario import TENANT
from aetheris.testkit.simulation.surroundings import Action, Surroundings

Jobs = Mapping[str, JobState]


class Human:
    """Sees the log as it stands. Approvals and revisions go straight into it: this version has no other way."""

    name = "human"

    def __init__(self, around: Surroundings, jobs: Jobs) -> None:
        self.retries: dict[tuple[str, str], int] = {}
        """(job_id, node_id) → the tries that a human took the risk of."""
        self.interesting: dict[str, None] = {}
        """Jobs about which something may be left to say."""
        self._around = around
        self._jobs = jobs
        self._writer = around.log.writer(self.name)
        self._said: set[tuple[str, ...]] = set()

    def actions(self) -> Iterable[Action]:
        """Answers to what the log asks, each once."""
        for job_id in tuple(self.interesting):
            job = self._jobs[job_id]
            open_ = [*self._open(job)]
            if not open_:
                self.interesting.pop(job_id, None)
            yield from open_

    def submit(self, submission: Submit) -> None:
        """Ask for a job; again under another id is the same to the planner."""
        self._command(submission)

    def cancel(self, job_id: str) -> None:
        """Ask for a job's end, and perhaps for what it did to be undone."""
        compensate = self._around.tape.chance(0.5)
        self._command(Cancel(job_id=job_id, by="bob", tenant=TENANT, reason="enough", compensate=compensate))

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
        self._said = {said for said in self._said if said[0] != "resolve"}
        self.interesting.update(dict.fromkeys(self._jobs))

    def _open(self, job: JobState) -> Iterable[Action]:
        if job.terminal is not None:
            return
        if ("resolve", None) in job.open_waits and self._resolves() and self._unsaid("resolve", job.job_id):
            yield Action(f"human decides whether to undo {job.job_id}", self._cancelling(job))
        for key, state in job.keys.items():
            if state.requested is not None and state.decision is None and self._unsaid("decide", key):
                yield Action(f"human decides about {state.node_id}", self._answering(job, key, state))
            if state.st is St.PARKED and self._resolves() and self._unsaid("resolve", key, str(state.t)):
                yield Action(f"human resolves {state.node_id}", self._resolving(job, key, state))

    def _cancelling(self, job: JobState) -> Callable[[], None]:
        def do() -> None:
            self._said.add(("resolve", job.job_id))
            self.cancel(job.job_id)

        return do

    def _resolves(self) -> bool:
        return self._around.scenario.humans_resolve

    def _unsaid(self, *what: str) -> bool:
        return what not in self._said

    def _answering(self, job: JobState, key: str, state: KeyState) -> Callable[[], None]:
        def do() -> None:
            self._said.add(("decide", key))
            self._decide(job, key, state)

        return do

    def _resolving(self, job: JobState, key: str, state: KeyState) -> Callable[[], None]:
        def do() -> None:
            self._said.add(("resolve", key, str(state.t)))
            self._resolve(job, key, state)

        return do

    def _decide(self, job: JobState, key: str, state: KeyState) -> None:
        asked = state.requested
        if asked is None:
            return
        no = self._around.tape.chance(0.15)
        decided = ApprovalDecided(
            job_id=job.job_id,
            node_id=state.node_id,
            idempotency_key=key,
            args_hash=asked.args_hash,
            tool_version=asked.tool_version,
            rule=asked.rule,
            decision=Decision.REJECT if no else Decision.APPROVE,
            approver="bob",
        )
        self._event(decided, key)

    def _resolve(self, job: JobState, key: str, state: KeyState) -> None:
        """He looks outside; what has not arrived there he can't see."""
        started = state.started
        effect = self._around.outside.found(started.external_key) if started is not None else None
        verdict: Literal["happened", "not_executed", "retry"] = "happened"
        if effect is None:
            verdict = "retry" if self._around.tape.chance(0.5) else "not_executed"
        if verdict == "retry":
            node = (job.job_id, state.node_id)
            self.retries[node] = self.retries.get(node, 0) + 1
        self._around.say(f"    human says of {state.node_id}: {verdict}")
        self._command(
            Resolve(
                job_id=job.job_id,
                by="bob",
                tenant=TENANT,
                execution_id=execution_id(job.job_id, state.node_id, key),
                verdict=verdict,
                evidence="looked",
                result=effect.result if effect is not None else None,
                as_of=self._around.log.end(Topic.JOBS_EVENTS) - 1,
            )
        )

    def _command(self, body: Body) -> None:
        self._writer.append([Batch(Topic.JOBS_COMMANDS, ((self._around.fresh("command-"), body),))])

    def _event(self, event: Event, *cause: str) -> None:
        self._writer.append([Batch(Topic.JOBS_EVENTS, ((event_id(event.job_id, event.event_type, *cause), event),))])
