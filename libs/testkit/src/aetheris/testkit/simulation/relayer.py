"""Who lays a sealed job's signed records once more, behind its seal, and asks for a call of it that was made.

He has no key, and may append to jobs.events, tools.requests and tools.grants. Ledger and executor have restarted, the
planner, who knows every job, says nothing yet: what they obey now, they obey by what they have read.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.events import JobCreated, JobSealed, ToolInvocationStarted
from aetheris.testkit.simulation.checks import SimulationObserver
from aetheris.testkit.simulation.log import Entry, WholeBatch, again
from aetheris.testkit.simulation.processes import Processes
from aetheris.testkit.simulation.surroundings import SimulationSurroundings
from aetheris.testkit.simulation.tape import Tape

_UNTIL_SEALED = 300
_MOST_STEPS = 400


class Run(Protocol):
    """What he plays on."""

    processes: Processes
    observer: SimulationObserver

    @property
    def parts(self) -> Sequence[SimulationSurroundings]:
        """The partitions."""
        ...

    def step(self, impatience: float) -> bool:
        """Let something happen; False where nothing can."""
        ...


def lay_again(run: Run, tape: Tape) -> None:
    """A job up to before one of its calls, in its partition or in another; it is for the run to see what goes out.

    Raises:
        Broken: a promise was.
    """
    for _ in range(_UNTIL_SEALED):
        if not run.step(0.0):
            break
    found = [(part, start) for part in run.parts for start in _calls(part, run.observer)]
    if not found:
        return
    part, start = tape.pick(found)
    to = tape.pick(run.parts)
    job_id, log = start.body.job_id, part.log.topics
    records = [one for one in log[Topic.JOBS_EVENTS][: start.record.offset] if one.body.job_id == job_id]
    first = next(place for place, one in enumerate(records) if isinstance(one.body, JobCreated))
    _restart(run)
    said = f"{job_id} is laid into partition {to.number} once more, up to before {start.body.node_id}"
    to.say(f"*** {said}")
    birth = to.log.end(Topic.JOBS_EVENTS)
    to.log.adrift(again(Topic.JOBS_EVENTS, records[first:]))
    for _ in range(_MOST_STEPS):
        if to.log.end(Topic.JOBS_EVENTS) >= birth + len(records) - first or not run.step(0.0):
            break
    lain = [one for one in to.log.topics[Topic.JOBS_EVENTS][birth:] if isinstance(one.body, JobCreated)]
    if not lain:
        return
    as_of = to.log.end(Topic.JOBS_EVENTS) - 1
    for topic in (Topic.TOOLS_REQUESTS, Topic.TOOLS_GRANTS):
        for entry in [one for one in log[topic] if one.body.job_id == job_id and start.body.node_id in one.body.nodes]:
            body = entry.body.model_copy(update={"birth": lain[0].record.offset, "as_of": as_of})
            to.log.adrift(WholeBatch(topic, ((f"again-{entry.id}", body),)))
    for _ in range(_MOST_STEPS):
        if not run.step(0.0):
            return


def _calls(part: SimulationSurroundings, observer: SimulationObserver) -> Iterator[Entry]:
    """The starts of calls that took effect, of sealed jobs."""
    entries = part.log.topics[Topic.JOBS_EVENTS]
    sealed = {one.body.job_id for one in entries if isinstance(one.body, JobSealed) and not _is_forged(part, one)}
    effects = {one.call.invocation_id for one in part.external.effects}
    starts = (one for one in entries if isinstance(one.body, ToolInvocationStarted))
    for one in starts:
        job_id = one.body.job_id
        if job_id in sealed and observer.jobs[job_id].sealed and one.body.invocation_id in effects:
            yield one


def _is_forged(part: SimulationSurroundings, entry: Entry) -> bool:
    return entry.record.offset in part.log.forged


def _restart(run: Run) -> None:
    """Ledger and executor of all partitions begin anew; their planners are away."""
    processes = run.processes
    for one in (*processes.planners, *processes.ledgers):
        processes.end(one)
    while processes.executors:
        processes.end(processes.executors[0])
    for part in run.parts:
        processes.start_ledger(part)
    processes.start_executor(processes.free_worker() or run.parts[0].fresh("w"), run.parts)
