"""What people ask of a job: cancel, pause, resume, resolve, signal, and the cancel of one step."""

from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from aetheris.gateway.command_writer import CommandWriter
from aetheris.gateway.core import access, bodies, decisions
from aetheris.gateway.core.decisions import Decide, JobSnapshot, Send, Stands
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.feed import JobFeed
from aetheris.gateway.hidden_submissions import HiddenSubmissions
from aetheris.gateway.job_reader import JobReader
from aetheris.protocol.api import CancelBody, Commanded, ReasonBody, ResolveBody
from aetheris.protocol.api_models import ResponseModel

Given = TypeVar("Given", bound=ResponseModel)


@dataclass(frozen=True, slots=True)
class Reply(Generic[Given]):
    """What a command came to, as far as the log has `answered` it in time."""

    answered: bool
    answer: Given


class JobCommands:
    """Each is given in the same way: listen, read the job, decide, send, and wait for the event that answers.

    All of them raise BadRequest, Forbidden, NotFound, Conflict, Unavailable.
    """

    def __init__(
        self, reader: JobReader, writer: CommandWriter, deadlines: Deadlines, hidden: HiddenSubmissions
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._deadlines = deadlines
        self._hidden = hidden

    async def cancel(self, caller: Principal, job_id: str, raw: bytes) -> Reply[Commanded]:
        """Ask a job to stop; one that has not begun too, and another tenant's, for who administers."""
        wanted = bodies.read(CancelBody, raw)
        reach = access.in_tenant(caller, wanted.tenant, of_job=True)
        return await self._give(caller, job_id, partial(decisions.cancel, wanted), planned=False, reach=reach)

    async def pause(self, caller: Principal, job_id: str, raw: bytes) -> Reply[Commanded]:
        """Keep a job from starting anything."""
        return await self._give(caller, job_id, partial(decisions.pause, bodies.read(ReasonBody, raw)))

    async def resume(self, caller: Principal, job_id: str, raw: bytes) -> Reply[Commanded]:
        """End the pause that a job is in."""
        return await self._give(caller, job_id, partial(decisions.resume, bodies.read(ReasonBody, raw)))

    async def resolve(self, caller: Principal, job_id: str, execution_id: str, raw: bytes) -> Reply[Commanded]:
        """Hand on what a human found out about a parked step."""
        wanted = bodies.read(ResolveBody, raw)
        return await self._give(caller, job_id, partial(decisions.resolve, execution_id, wanted), planned=False)

    async def call_off(self, caller: Principal, job_id: str, execution_id: str, raw: bytes) -> Reply[Commanded]:
        """Cancel one step; what is under way is settled first."""
        wanted = bodies.read(ReasonBody, raw)
        return await self._give(caller, job_id, partial(decisions.call_off, execution_id, wanted))

    async def signal(self, caller: Principal, job_id: str, raw: bytes) -> Reply[Commanded]:
        """Put a signal into a job's inbox; what its node declares to be a person's is hidden first."""
        wanted = bodies.read_signal(raw)
        async with self._reader.listening(job_id) as news:
            async with self._deadlines.deadline():
                seen, trace = await self._seen(caller, job_id, news)
                decisions.check_signal(wanted, caller, seen)  # who may not makes no person's key by it
                payload, sealed = await self._hidden.hide_signal(seen.begun, wanted.correlation_key, wanted.payload)
                decision = decisions.signal(wanted.model_copy(update={"payload": payload}), caller, seen)
                if isinstance(decision, Stands):
                    return Reply(True, decision.answer)
                await self._hidden.keep(sealed)
                command_id = await self._writer.send(decision.command, trace)
            return await self._heard(news, seen, decision, command_id)

    async def _give(
        self,
        caller: Principal,
        job_id: str,
        decide: Decide,
        *,
        planned: bool = True,
        reach: Principal | None = None,
    ) -> Reply[Commanded]:
        """`planned`: a job that was just submitted is decided on when its plan is in the log; `reach`: as whom the
        job is looked for, where that is not the caller as he is."""
        async with self._reader.listening(job_id) as news:
            async with self._deadlines.deadline():
                seen, trace = await self._seen(reach or caller, job_id, news if planned else None)
                decision = decide(caller, seen)
                if isinstance(decision, Stands):
                    return Reply(True, decision.answer)
                command_id = await self._writer.send(decision.command, trace)
            return await self._heard(news, seen, decision, command_id)

    async def _heard(self, news: JobFeed, seen: JobSnapshot, sent: Send, command_id: str) -> Reply[Commanded]:
        observed = await self._writer.hear(news, seen.end, partial(sent.settles, command_id))
        return Reply(observed is not None, sent.answered(command_id, observed))

    async def _seen(self, caller: Principal, job_id: str, plan: JobFeed | None) -> tuple[JobSnapshot, bool | None]:
        """(the job, whether it is traced); behind its plan, where that is awaited."""
        if plan is not None:
            seen = await self._reader.planned(caller, job_id, plan)
            return seen, seen.begun.trace
        row = await self._reader.row(caller, job_id)
        seen = await self._reader.fold(row)
        return seen, row.trace if seen.state is None else seen.state.trace
