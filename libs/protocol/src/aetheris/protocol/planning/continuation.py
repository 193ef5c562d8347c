"""What a job adopts of the one that it continues: worked out by the gateway, and once more by the planner.

One pure function of that job's sealed stream (docs/continue.md): what a submission says of it is never believed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aetheris.protocol.base.canonical import InvalidArgs, digest
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.keys import content_key
from aetheris.protocol.base.principals import NOBODY, RecordedPrincipal
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.references import UnresolvedReference, adopted_name, point, resolve
from aetheris.protocol.fold.job_log import fold_event, logged_events
from aetheris.protocol.fold.state import JobState, KeyState, PlanEntry, Settled
from aetheris.protocol.messages.adoption import Adopted, Continues, Given, SealOf, StepSettlement, Use
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.event_values import DuplicateOf, RejectReason, Via
from aetheris.protocol.messages.events import JobCancelled, JobFailed, JobSealed, ToolInvocationFinished
from aetheris.protocol.plan.graph import EffectClass, Kind, TaskGraph
from aetheris.protocol.planning.approvals import may_not_resolve, resolvers
from aetheris.protocol.planning.earlier_calls import going_on
from aetheris.protocol.planning.goals import GOAL_ENTRY
from aetheris.protocol.planning.outcome import HasEffect, has_effect

MAX_BIRTH_BYTES = 850_000
"""Of a plan, which lies twice in the group that creates a job, and of what its job says that it continues."""

MAX_CONTINUED = 16
"""How many jobs, each continuing the next, stand behind one at most: verify reads them all."""


class NotContinuable(ValueError):
    """Why a job is not continued so; `details` name the steps."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class NotEntitled(ValueError):
    """Somebody else must say what became of a step."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that is to be continued, and its first seal."""

    job: JobState
    seal: JobSealed | None


def ended(records: Iterable[Record]) -> EndedJob | None:
    """A job as its sealed stream has it, with the seal, if there is one; None where it was never created.

    The first seal behind its end that is its tenant's counts. What lies behind that changes nothing any more, but for
    the reports of tries that come late: they are evidence of what took effect.
    """
    job: JobState | None = None
    seal: JobSealed | None = None
    for count, logged in enumerate(logged_events(records)):
        if seal is None or isinstance(logged.event, ToolInvocationFinished):
            job, _ = fold_event(job, logged.event, logged.record.offset)
        if (
            seal is None
            and isinstance(logged.event, JobSealed)
            and job is not None
            and _seals(logged.event, job, count)
        ):
            seal = logged.event
    return None if job is None else EndedJob(job, seal)


def _seals(seal: JobSealed, job: JobState, before: int) -> bool:
    is_whole = job.terminal is not None and 0 < seal.event_count <= before
    return is_whole and (seal.job_id, seal.tenant) == (job.job_id, job.created.tenant)


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """What a person says became of an unsure step."""

    verdict: Literal["happened", "not_executed"]
    evidence: str
    result: Any = None


def continues(
    ended: EndedJob, by: RecordedPrincipal = NOBODY, settle: Mapping[str, StepVerdict] | None = None
) -> Continues:
    """What a continuation of a job adopts; `settle`: what `by`, who asks for it, says of its unsure steps.

    Raises:
        NotContinuable: it is not one that can be continued, or a human must first say what became of a step.
        NotEntitled: somebody else must say so.
    """
    job, seal = ended.job, ended.seal
    if not isinstance(job.terminal, JobFailed | JobCancelled):
        raise NotContinuable("illegal_transition", "only a failed or cancelled job is continued")
    if isinstance(job.terminal, JobFailed) and job.terminal.unfounded:
        raise NotContinuable("not_continuable", "it never began: what it said of the job that it continues is not so")
    if job.needs_upgrade:
        raise NotContinuable("not_continuable", "it holds records of a newer version than this one")
    if job.bodies is not None and job.created.goal is None:
        raise NotContinuable("not_continuable", "it has a workflow, whose code says what is next: submit that again")
    if seal is None:
        raise NotContinuable("not_sealed", "the job is not sealed yet")
    before = job.created.continues
    depth = 1 if before is None else before.depth + 1
    if depth > MAX_CONTINUED:
        raise NotContinuable("too_many_continued", f"more than {MAX_CONTINUED} jobs would continue each other")
    words = tuple(_words(job, by, settle or {}))
    happened = (_as_adopted(job, action) for action in words if action.verdict == "happened")
    adopted = [*(before.adopted if before is not None else ()), *_adopted(job), *happened]
    sealed = SealOf(event_count=seal.event_count, root=seal.root, outcome_hash=seal.outcome_hash, key_id=seal.key_id)
    known = Continues(job_id=job.job_id, seal=sealed, depth=depth, adopted=tuple(adopted), settled=words)
    return known.model_copy(update={"said_by": by}) if words else known


def result_of(job: JobState, known: Continues, name: str) -> Any:
    """The result of an adopted step, as it settled in this job, or a person said, or this job was given it.

    Raises:
        LookupError: no record of this job has it.
    """
    one = known.by_name[name]
    if one.job_id != job.job_id:
        before = job.created.continues
        if before is None:
            raise LookupError(name)
        return before.results[name]
    for action in known.settled:
        if action.node_id == one.node_id and action.verdict == "happened":
            return action.result
    settled = job.settled_key(one.node_id)
    if settled is None or settled[1].outcome is not Settled.SUCCESS or settled[1].result_ref is not None:
        raise LookupError(name)
    return settled[1].result


def unfounded(command: Submit, ended: EndedJob | None) -> str | None:
    """Why a submission that continues a job can't be taken up, by that job's own stream; None where it can.

    Whoever wrote the command: nothing that it says of the earlier job counts before it is found there.
    """
    continuation = command.continues
    if continuation is None:
        return None
    if ended is None or ended.job.created.tenant != command.tenant or ended.job.job_id != continuation.job_id:
        return "there is no such job"
    try:
        settle = {one.node_id: StepVerdict(one.verdict, one.evidence, one.result) for one in continuation.settled}
        known = continues(ended, command.speaker, settle)
        if continuation.model_copy(update={"uses": (), "given": ()}) != known:
            return "what it adopts, or the seal that it names, is not that job's"
        check_not_done(continuation, command.tenant, command.plan or {})
    except (NotContinuable, NotEntitled) as error:
        return error.message
    except UnresolvedReference as error:
        return str(error)
    if command.goal is not None and not _is_asked_on(command, ended.job, continuation):
        return "its plan is not the one that goes on from that job"
    nodes = {node["id"]: node for node in (command.plan or {}).get("nodes", ())}
    if again := [one.node_id for one in known.adopted if one.node_id in nodes]:
        return f"{', '.join(again)}: settled there, and in its plan again"
    wrong = [use.node_id for use in continuation.uses if not _is_used(ended.job, known, nodes.get(use.node_id), use)]
    wrong += [one.name for one in continuation.given if not _is_result(known, one)]
    return f"{', '.join(wrong)}: has other values than the results that they stand for" if wrong else None


def asks_on(job: JobState) -> bool:
    """Whether a job is continued by asking its model again: it went turn by turn towards a goal."""
    return job.bodies is not None and job.created.brief is not None and job.created.brief.planning == "agent"


def _is_asked_on(command: Submit, job: JobState, continues: Continues) -> bool:
    """Whether the model is asked what follows from the earlier job, towards its goal, and nothing else."""
    brief = job.created.brief
    if brief is None or not asks_on(job) or (command.goal, command.brief) != (job.created.goal, brief):
        return False
    graph = TaskGraph.model_validate(command.plan)
    try:
        return graph == going_on(job, continues, brief, graph.tools, graph.tools[GOAL_ENTRY.name])
    except KeyError:
        return False


def check_not_done(known: Continues, tenant: str, plan: Mapping[str, Any]) -> None:
    """Nothing that can't be undone is done again: whatever its step is called, and whatever job did it.

    Raises:
        NotContinuable: naming the step, also where its arguments are not known yet and the tool was used so before.
        UnresolvedReference: its arguments point to what a result does not have.
    """
    graph = TaskGraph.model_validate(plan)
    by_tool = {(one.tool_name, one.occurrence): one for one in known.by_meaning.values()}
    for node in graph.nodes:
        pin = graph.tools.get(node.tool_name)
        if pin is None or not (node.irreversible or pin.irreversible):
            continue
        if node.refs or not all(used.node_id in known.results for used in node.adopted):
            one = by_tool.get((node.tool_name, node.occurrence))
        else:
            content = content_key(tenant, node.tool_name, resolve(node.args, known.results), pin.volatile)
            one = known.by_meaning.get((content, node.occurrence))
        if one is not None:
            message = f"{node.id} is, or may become, what {one.node_id} of {one.job_id} did: say its occurrence"
            raise NotContinuable("duplicate_of", message, node_id=node.id, duplicate_of=one.node_id, job_id=one.job_id)


def done_before(job: JobState, entry: PlanEntry, content: str) -> DuplicateOf | None:
    """The effect that a job adopted, and that a call of `content` (its content key) would do again.

    None where there is none, or where it can be undone: equal calls of such tools are made as often as they are asked
    for, within a job as well.
    """
    known = job.created.continues
    one = known.by_meaning.get((content, entry.node.occurrence)) if known is not None and entry.irreversible else None
    if one is None:
        return None
    execution = execution_id(one.job_id, one.node_id, one.idempotency_key)
    return DuplicateOf(job_id=one.job_id, node_id=one.node_id, execution_id=execution)


def edited_to(job: JobState, node_id: str, args: Mapping[str, Any]) -> DuplicateOf | None:
    """The effect that a job adopted, and that an edit to these arguments would do again; None where there is none."""
    entry = job.entry(node_id)
    if entry is None or job.created.continues is None:
        return None
    volatile = entry.pin.volatile if entry.pin is not None else ()
    return done_before(job, entry, content_key(job.created.tenant, entry.node.tool_name, args, volatile))


def _is_result(known: Continues, given: Given) -> bool:
    one = known.by_name.get(given.name)
    try:
        return one is not None and digest(given.result) == one.result_hash
    except InvalidArgs:
        return False


def _is_used(job: JobState, known: Continues, node: Any, use: Use) -> bool:
    node_id, _, pointer = use.ref.partition("#")
    try:
        result = result_of(job, known, adopted_name(job.job_id, node_id))
        given, held = point(result, pointer, use.ref), point(node, use.at, use.at)
        return digest(given) == digest(held)
    except (UnresolvedReference, InvalidArgs, LookupError):
        return False


def _words(job: JobState, by: RecordedPrincipal, settle: Mapping[str, StepVerdict]) -> Iterator[StepSettlement]:
    """A word about each unsure step and about no other, by somebody who may say it."""
    unsure = {node_id: key for node_id in job.entries if (key := unsure_call(job, node_id)) is not None}
    unsaid = [node_id for node_id in unsure if node_id not in settle]
    if unsaid:
        message = f"nobody knows whether {', '.join(unsaid)} took effect, or took effect in part"
        raise NotContinuable("unsure", message, nodes=unsaid)
    sure = [node_id for node_id in settle if node_id not in unsure]
    if sure:
        raise NotContinuable("not_unsure", f"{', '.join(sure)}: it is known what became of it", nodes=sure)
    for node_id, reported in sorted(settle.items()):
        key = unsure[node_id]
        entry, state = job.entry(node_id), job.keys[key]
        refused = may_not_resolve(job, state, by, reported.verdict)
        if refused is not None:
            raise NotEntitled(refused)
        needed = resolvers(job, state)
        if needed.approvals > 1 and not by.breaks_glass:
            named = f" by rule {needed.rule}" if needed.rule is not None else ""
            raise NotEntitled(
                f"{needed.approvals} different ones must say what became of {node_id}{named}: one is not enough"
            )
        if entry is None or entry.node.compensates is not None or state.partial:
            message = f"{node_id} undoes another step, or was done in part: no word makes it whole"
            raise NotContinuable("unsure", message, nodes=[node_id])
        yield StepSettlement(
            node_id=node_id,
            idempotency_key=key,
            invocation_id=state.current_invocation,
            verdict=reported.verdict,
            evidence=reported.evidence,
            result=reported.result if reported.verdict == "happened" else None,
        )


def _as_adopted(job: JobState, action: StepSettlement) -> Adopted:
    entry, started = job.entry(action.node_id), job.keys[action.idempotency_key].started
    guarded = started if entry is not None and entry.irreversible else None
    return Adopted(
        job_id=job.job_id,
        node_id=action.node_id,
        idempotency_key=action.idempotency_key,
        invocation_id=action.invocation_id,
        tool_name=entry.node.tool_name if entry is not None else "",
        args_hash=started.args_hash if started is not None else None,
        result_hash=digest(action.result),
        content_key=guarded.content_key if guarded is not None else None,
        occurrence=guarded.occurrence if guarded is not None else 1,
    )


def _adopted(job: JobState) -> Iterator[Adopted]:
    for node_id in _done(job):
        settled, entry = job.settled_key(node_id), job.entry(node_id)
        if settled is None or entry is None:
            continue
        key, state = settled
        started = state.started
        guarded = started if entry.irreversible else None
        yield Adopted(
            job_id=job.job_id,
            node_id=node_id,
            idempotency_key=key,
            invocation_id=state.settled_by,
            tool_name=entry.node.tool_name,
            args_hash=started.args_hash if started is not None else None,
            result_hash=state.result_hash,
            result_ref=state.result_ref,
            external_id=state.external_id,
            content_key=guarded.content_key if guarded is not None else None,
            occurrence=guarded.occurrence if guarded is not None else 1,
        )


def _done(job: JobState) -> Iterator[str]:
    """The steps that settled as a success and were not undone; a body's own end is none of it."""
    undone = job.terminal.compensated or () if isinstance(job.terminal, JobFailed | JobCancelled) else ()
    for node_id, entries in job.entries.items():
        settled = job.settled_key(node_id)
        node = entries[-1].node
        if settled is None or settled[1].outcome is not Settled.SUCCESS or node.kind is Kind.WORKFLOW:
            continue
        if node.compensates is None and node_id not in undone:
            yield node_id


def unsure_call(job: JobState, node_id: str) -> str | None:
    """The call of a step of which nobody knows what it left behind, or of which only a part was done."""
    entry = job.entry(node_id)
    if entry is None or entry.effect_class is EffectClass.PURE:
        return None
    if isinstance(job.terminal, JobFailed | JobCancelled) and node_id in (job.terminal.compensated or ()):
        return None
    return next((key for key in job.node_keys.get(node_id, ()) if _key_is_unsure(entry, job.keys[key])), None)


def _key_is_unsure(entry: PlanEntry, state: KeyState) -> bool:
    if state.outcome is Settled.SUCCESS:
        return state.partial
    denied = state.via is Via.HUMAN and state.reason != RejectReason.CANCELLED
    if state.outcome is Settled.FAILED and denied and not state.alarms:
        return False
    return has_effect(entry, state) is not HasEffect.NONE
