"""The bodies that run here, of one partition, and in which order the calls of each body have settled; pure."""

from collections.abc import Iterator
from typing import Any

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.bodies import ended_call, expected_calls
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from aetheris.sdk.workflows.bodies import BodyStart, CallSettled, settled_call
from aetheris.tool_executor.core.body_runs import BodyOutcome, RunningBody, Stop
from aetheris.tool_executor.core.tries import DeclaredInvocation


class HostedBodies:
    """Follows the log for them: what it says of their calls, and whether they may go on."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, RunningBody]] = {}
        """Job → node → the body that runs here."""
        self._settled: dict[str, dict[str, dict[str, None]]] = {}
        """Job → node → its calls that have settled, in the order of the log, whoever its body was."""
        self._expected: dict[str, frozenset[str]] = {}
        """Bodies whose start was read just now → what each must ask for."""
        self._moved: dict[str, RunningBody] = {}

    def __contains__(self, job_id: object) -> bool:
        """Whether one of the job runs here."""
        return job_id in self._runs

    def started(self, job: JobState, invocation: DeclaredInvocation) -> None:
        """Its `started` counts, and is the last record that was folded."""
        self._expected[invocation.invocation_id] = expected_calls(job, invocation.started.node_id)

    def begin(self, job: JobState, invocation: DeclaredInvocation) -> tuple[RunningBody, list[str]]:
        """The body runs from here on; with its calls that have settled so far, which it is told first."""
        run = RunningBody(invocation, self._expected.pop(invocation.invocation_id), invocation.recorded_code)
        known = self._settled.get(job.job_id, {}).get(run.parent, {})
        history = [node_id for node_id in known if run.settled(node_id, self.state(job, node_id))]
        self._runs.setdefault(job.job_id, {})[run.parent] = run
        run.look(job)
        return run, history

    def forget(self, invocation: DeclaredInvocation) -> None:
        """It runs no more, or never did."""
        self._expected.pop(invocation.invocation_id, None)
        self._moved.pop(invocation.invocation_id, None)
        job_id, node_id = invocation.started.job_id, invocation.started.node_id
        runs = self._runs.get(job_id, {})
        if node_id in runs and runs[node_id].invocation_id == invocation.invocation_id:
            del runs[node_id]
            if not runs:
                del self._runs[job_id]

    def of_call(self, job: JobState, node_id: str) -> RunningBody | None:
        """The body that runs here, and has planned this call or an equal one."""
        entry = job.entry(node_id) if job.job_id in self._runs else None
        call = entry.call if entry is not None else None
        return self._runs[job.job_id].get(call.parent) if call is not None else None

    def follow(self, job: JobState, event: Event, *, counts: bool) -> None:
        """An event of a job with bodies was folded."""
        runs = self._runs.get(job.job_id, {})
        self._note_settled(job, event, runs)
        for run in runs.values():
            if isinstance(event, ev.CallPlanned) and event.invocation_id == run.invocation_id:
                run.read_back(job, event, counts=counts)
            elif isinstance(event, ev.ToolInvocationFinished) and event.invocation_id == run.invocation_id:
                run.end_is_read = True
            else:
                run.look(job)
            self._moved[run.invocation_id] = run

    def look(self, job: JobState) -> None:
        """Whether those of a job may still go on."""
        for run in self._runs.get(job.job_id, {}).values():
            run.look(job)
            self._moved[run.invocation_id] = run

    def job_is_over(self, job_id: str) -> None:
        """It was sealed: nothing is known of it any more."""
        self._settled.pop(job_id, None)
        for run in self._runs.get(job_id, {}).values():
            run.ends(BodyOutcome(stop=Stop.CANCELLED))
            self._moved[run.invocation_id] = run

    def moved(self) -> Iterator[RunningBody]:
        """Those of whose jobs something was read since this was last asked for."""
        found, self._moved = self._moved, {}
        yield from found.values()

    @staticmethod
    def state(job: JobState, node_id: str) -> KeyState:
        """How a call stands that a body has planned, and that has settled.

        Raises:
            KeyError: there is none.
        """
        entry = job.entry(node_id)
        call = entry.call if entry is not None else None
        return job.keys[call.key if call is not None else ""]

    @staticmethod
    def start_of(job: JobState, invocation: DeclaredInvocation) -> BodyStart:
        """How a body begins."""
        started = invocation.started
        return BodyStart(
            body=started.invocation_id,
            workflow=f"{started.tool_name}@{started.tool_version}",
            job_id=started.job_id,
            node_id=started.node_id,
            args=invocation.call.args,
            planned=invocation.call.entry.node.args,
            pins=job.bodies.pins if job.bodies is not None else {},
        )

    def settlement(self, run: RunningBody, job: JobState, node_id: str, result: Any) -> CallSettled:
        """How a call has settled, as its body is told; `result`: loaded, where it is large."""
        entry, state = job.entry(node_id), self.state(job, node_id)
        key = entry.call.key if entry is not None and entry.call is not None else ""
        execution = execution_id(job.job_id, node_id, key)
        return settled_call(node_id, state, result if run.reads(node_id) else None, execution)

    def _note_settled(self, job: JobState, event: Event, runs: dict[str, RunningBody]) -> None:
        ended = ended_call(job, event)
        if ended is None:
            return
        node_id, state = ended
        call = job.entries[node_id][-1].call
        parent = call.parent if call is not None else ""
        known = self._settled.setdefault(job.job_id, {}).setdefault(parent, {})
        if node_id in known:
            return
        known[node_id] = None
        run = runs.get(parent)
        if run is not None and run.settled(node_id, state):
            run.news.append(node_id)
