"""Looking at what comes behind seals: one job at a time, within a share of the time, whoever writes how much there."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from math import inf

import structlog

from aetheris.proofs.due_amendments import DueAmendment
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import BlobsUnreachable
from aetheris.runtime.log.interface import LogError
from aetheris.verifier.core.amendments import LONGEST_PAUSE, LateJob, LateJobs, LateJudgement, may_amend_at
from aetheris.verifier.proofs import KNOWN_WITHIN_S, Proofs, StillReading, UnknownJob
from aetheris.verifier.token_key import KeyAway

AGAIN_S = 1.0
"""After which what could not be read, or signed, is tried again; twice as long after each further time, at most so:"""
LONGEST_AGAIN_S = 60.0
_SAID_AFTER = 5
"""So often it is tried before the log has it."""
LISTED_AGAIN_S = 0.1
"""After which a job's line is asked again for a record that it does not tell of yet."""
REST = 10
"""Looking takes at most 1/10 of the time."""

Tell = Callable[[LateJob, LateJudgement], Awaitable[bool]]
"""Whether anything is told that was not told before."""
Amend = Callable[[LateJudgement], Awaitable[bool]]
"""Whether the amendment that is due lies in the log by now; raises KeyAway."""
StandStill = Callable[[LateJob, Exception], None]

_log = structlog.get_logger(__name__)


class AmendmentWatch:
    """The task that does it; what it has not ended when the process dies, who comes next begins anew."""

    def __init__(
        self, late: LateJobs, proofs: Proofs, clock: Clock, *, tell: Tell, amend: Amend, stand_still: StandStill
    ) -> None:
        self._late = late
        self._proofs = proofs
        self._clock = clock
        self._tell = tell
        self._amend = amend
        self._stand_still = stand_still
        self._looking: asyncio.Task[None] | None = None

    def hurry(self) -> float | None:
        """Look, if a look is due and none is under way; when to come again, None where nothing is to be looked at.

        Raises what a look before ended with.
        """
        if self._looking is not None and self._looking.done():
            done, self._looking = self._looking, None
            done.result()
        now_s = self._clock.monotonic()
        if self._looking is None and self._late.next_due(now_s) is not None:
            self._looking = asyncio.create_task(self._look_in_turn())
        return self._late.next_s() if self._looking is None else now_s + LISTED_AGAIN_S

    async def close(self) -> None:
        """Whoever comes next looks at all that is held."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_in_turn(self) -> None:
        while (job := self._late.next_due(began_s := self._clock.monotonic())) is not None:
            try:
                await self._look(job)
            except UnknownJob:
                self._late.settle(job, job.last)
            except StillReading:
                self._look_later(job, AGAIN_S)
            except (LogError, BlobsUnreachable, KeyAway) as error:
                self._in_vain(job, error.code, str(error))
            except Exception as error:  # noqa: BLE001 - it concerns this job alone
                self._look_later(job, inf)
                self._stand_still(job, error)
            await self._clock.sleep(REST * (self._clock.monotonic() - began_s))

    async def _look(self, job: LateJob) -> None:
        now_s, upto = self._clock.monotonic(), job.last
        if job.first_look_s is None:
            job.first_look_s = now_s
        found = await self._proofs.late(job.job_id, upto, last_look=now_s - job.first_look_s >= KNOWN_WITHIN_S)
        job.vain = 0
        if found is None:
            self._look_later(job, LISTED_AGAIN_S)
            return
        if await self._tell(job, found):  # an amendment covers what is told, too
            self._look_later(job, LISTED_AGAIN_S)
        elif found.due is None:
            self._late.settle(job, upto)
        else:
            job.held_from = max(job.held_from, found.due.offsets[0])
            pause_s = self._pause_s(job, found.due)
            if pause_s > 0:
                self._look_later(job, pause_s)
            elif await self._amend(found):
                self._late.settle(job, upto)
            else:
                self._look_later(job, AGAIN_S)

    def _in_vain(self, job: LateJob, code: str, reason: str) -> None:
        job.vain += 1
        if job.vain == _SAID_AFTER:
            _log.warning("what came behind a seal waits", job_id=job.job_id, code=code, reason=reason)
        self._look_later(job, min(AGAIN_S * 2 ** min(job.vain - 1, 10), LONGEST_AGAIN_S))

    def _pause_s(self, job: LateJob, due: DueAmendment) -> float:
        """Seconds until it may be amended; however wrong clocks were, not long."""
        at, now_s = may_amend_at(due), self._clock.monotonic()
        if job.paused_s is None:
            job.paused_s = now_s
        left = at - self._clock.now() if at is not None else timedelta(0)
        return min(left.total_seconds(), LONGEST_PAUSE.total_seconds() - (now_s - job.paused_s))

    def _look_later(self, job: LateJob, pause_s: float) -> None:
        self._late.look_at(job, self._clock.monotonic() + pause_s)
