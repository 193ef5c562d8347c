"""What people, and signals, say about steps: held until the fold is where the gateway was, then decided, once each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from aetheris.ledger.core import confirmations, resolutions, settlement, waits
from aetheris.ledger.core.adjudication import is_closed
from aetheris.ledger.core.approvals import answer
from aetheris.ledger.core.decisions import Decision, Emit, Now
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs, Waiting
from aetheris.ledger.core.settlement import JobKey
from aetheris.ledger.core.votes import only_votes
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.state import KeyState, KeyStatus
from aetheris.protocol.messages.begun import is_end_key
from aetheris.protocol.messages.commands import CancelContract, JobEnded, Resolve, Respond, Signal, StepCommand
from aetheris.protocol.planning.approvals import may_not_resolve


@dataclass(slots=True)
class _PendingCommand:
    """What was said from outside about a step, and is not decided yet."""

    body: StepCommand
    id: str
    offset: int
    answered_at: tuple[KeyStatus, int] | None = None
    """Of a cancel: the state and token of its key for which this process has written what it comes to."""


@dataclass(frozen=True, slots=True)
class IgnoredCommand:
    """A person's word that decides nothing, past the gateway, which refuses such words; what is open stays open."""

    job_id: str
    command_id: str
    why: str


class HumanCommands:
    """Of one partition; `unheard` is for an operator to hear of."""

    def __init__(self, live_jobs: LiveJobs) -> None:
        self._live_jobs = live_jobs
        self._held: list[_PendingCommand] = []
        self.ignored: list[IgnoredCommand] = []

    @property
    def waits_for_fold(self) -> bool:
        """Whether one is here that the fold has not caught up with."""
        return any(held.body.as_of > self._live_jobs.folded for held in self._held)

    def hear(self, command: StepCommand, command_id: str, offset: int) -> None:
        """Take one up."""
        self._held.append(_PendingCommand(command, command_id, offset))

    def oldest(self) -> int | None:
        """The offset of the oldest one that waits."""
        return min((held.offset for held in self._held), default=None)

    def decided(self, now: Now) -> list[Decision]:
        """What becomes of those that the fold has caught up with."""
        decided: list[Decision] = list(self._counted())
        waiting: list[_PendingCommand] = []
        for held in self._held:
            job = self._live_jobs.jobs.get(held.body.job_id)
            if held.body.as_of > self._live_jobs.folded or (job is not None and job.state.needs_upgrade):
                waiting.append(held)
            elif job is not None:
                decided += self._contained(job, held, now)
                if isinstance(held.body, CancelContract) and _is_open(job, held.body):
                    waiting.append(held)
        self._held = waiting
        return decided

    def _counted(self) -> Iterator[Decision]:
        """What the votes that were folded come to."""
        voted, self._live_jobs.voted = self._live_jobs.voted, {}
        for job_id, key in voted:
            job = self._live_jobs.jobs.get(job_id)
            if job is None or job.state.needs_upgrade or job.state.terminal is not None:
                continue
            end = resolutions.accepted(job.state) if key is None else resolutions.settled(job.state, key)
            if end is not None:
                yield end

    def _contained(self, job: LiveJob, held: _PendingCommand, now: Now) -> list[Decision]:
        try:
            return self._decide(job, held, now)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            self._live_jobs.unjudged.note(job.state, error)
            return []

    def _decide(self, job: LiveJob, held: _PendingCommand, now: Now) -> list[Decision]:
        match held.body:
            case Resolve() as command:
                return self._resolve(job, command, held)
            case Respond() as command:
                return self._respond(job, command, held, now)
            case Signal() as command:
                return _take_signal(job, command, held.id)
            case CancelContract() as command:
                return _call_off(job, command, held)
            case _:
                return []

    def _resolve(self, job: LiveJob, command: Resolve, held: _PendingCommand) -> list[Decision]:
        """What a human's word on a parked key becomes; the first one counts, the fold sees to that."""
        key = job.parked.get(command.execution_id)
        if key is None:
            return []
        if command.as_of < job.parked_at[key]:
            return self._turn_down(held, "the call was parked behind what its writer had read")
        job_key = JobKey(job.state, key, job.state.keys[key])
        may_not = may_not_resolve(job.state, job_key.state, command.speaker, command.verdict)
        if may_not is not None:
            return self._turn_down(held, may_not)
        if resolutions.is_vote(job_key, command):
            if command.as_of < job_key.state.last_word(command.by)[0]:
                return self._turn_down(held, "he has said something behind what its writer had read")
            return [resolutions.voted(job_key, command, held.id)]
        return [_RESOLUTIONS[command.verdict](job_key, command, held.id)]

    def _respond(self, job: LiveJob, command: Respond, held: _PendingCommand, now: Now) -> list[Decision]:
        """What an answer to a request becomes; nothing for one that was answered before."""
        key = job.requests.get(command.request_id)
        if key is None or is_closed(job.state, job.state.entry(job.state.keys[key].node_id)):
            return []
        asked = job.asked.get(key)
        emit = (
            answer(job, key, asked, command, held.id, context=self._live_jobs.context, now=now)
            if asked is not None
            else _answer_form(job, key, command, held.id, now)
        )
        if emit is None:
            return []
        if isinstance(emit, str):
            return self._turn_down(held, emit)
        if not only_votes(emit):
            job.asked.pop(key, None)
            job.awaited.pop(command.request_id, None)
        return [emit]

    def _turn_down(self, held: _PendingCommand, why: str) -> list[Decision]:
        self.ignored.append(IgnoredCommand(held.body.job_id, held.id, why))
        return []


def _answer_form(job: LiveJob, key: str, command: Respond, command_id: str, now: Now) -> Emit | str | None:
    """What an answer to a form of the plan becomes; past its time, the clock's word goes before it."""
    waiting = job.keys.get(key)
    if not isinstance(waiting, Waiting) or command.request_id not in job.awaited or waiting.due_s <= now.mono_s:
        return None
    return waits.answered(JobKey(job.state, key, job.state.keys[key]), waiting.event, command, command_id)


def _call_off(job: LiveJob, command: CancelContract, held: _PendingCommand) -> list[Decision]:
    """What waits ends at once; what is under way is settled first, and not tried again.

    Once for each state that the key comes to: what somebody else wrote first may have made it void.
    """
    key = _key_to_call_off(job, command)
    if key is None or held.answered_at == (job.state.keys[key].status, job.state.keys[key].fencing_token):
        return []
    state = job.state.keys[key]
    held.answered_at = (state.status, state.fencing_token)
    job_key = JobKey(job.state, key, state)
    if state.status in (KeyStatus.STARTED, KeyStatus.REOPENED):
        return [settlement.cancel_asked(job_key, command, held.id)]
    job.asked.pop(key, None)
    return [settlement.called_off(job_key, command, held.id)]


def _is_open(job: LiveJob, command: CancelContract) -> bool:
    """Whether the log has not said yet what a step's cancel came to."""
    return _key_to_call_off(job, command) is not None


def _key_to_call_off(job: LiveJob, command: CancelContract) -> str | None:
    """The key that a cancel names, where anything is left to cancel; nothing for a call that nobody has asked for."""
    key = next((key for key, state in job.state.keys.items() if _is_named(job, key, state, command)), None)
    if key is None or job.state.terminal is not None:
        return None
    state = job.state.keys[key]
    was_asked_for = state.requested is not None or state.is_waiting
    over = (
        state.status is KeyStatus.SETTLED
        or state.cancel_requested
        or (state.status is KeyStatus.NONE and not was_asked_for)
    )
    return None if over else key


def _is_named(job: LiveJob, key: str, state: KeyState, command: CancelContract) -> bool:
    return execution_id(job.state.job_id, state.node_id, key) == command.execution_id


def _take_signal(job: LiveJob, command: Signal, command_id: str) -> list[Decision]:
    """The first signal of a declared key counts; what its node waits for already it ends at once."""
    name = command.correlation_key
    if is_end_key(name) is not isinstance(command, JobEnded):
        return []  # how a job has ended its planner says, and nothing else
    accepts = confirmations.awaits(job.state, command)
    if name in job.state.signals or name in job.signalled or not _is_awaited(job, command, accepts=accepts):
        return []
    if accepts and not confirmations.may_accept(job.state, command):
        return []
    if accepts:
        emit = resolutions.accepts(job.state, command, command_id)
        if not only_votes(emit):
            job.signalled.add(name)
        return [emit]
    job.signalled.add(name)
    reported = waits.kept(job.state, command, command_id)
    key = job.awaited.get(name)
    waiting = job.keys.get(key) if key is not None else None
    if key is None or not isinstance(waiting, Waiting):
        return [Emit(job.state.job_id, (reported,), key)]
    job_key = JobKey(job.state, key, job.state.keys[key])
    return [Emit(job.state.job_id, (reported, waits.ended(job_key, waiting.event, command.payload, command_id)), key)]


def _is_awaited(job: LiveJob, command: Signal, *, accepts: bool) -> bool:
    """Whether anything may still wait for the signal; an undo may ask to let something pass, too."""
    over = job.state.terminal is not None or (job.state.stopping is not None and not accepts)
    return not over and (accepts or waits.takes(job.state, command))


_RESOLUTIONS: Mapping[str, Callable[[JobKey, Resolve, str], Emit]] = {
    "happened": settlement.happened,
    "not_executed": settlement.not_executed,
    "retry": settlement.retry_by_hand,
}
