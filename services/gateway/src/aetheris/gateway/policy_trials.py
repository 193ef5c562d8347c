"""What another policy would have said of a tenant's past calls: some jobs at a time, judged in a process of its own."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC
from typing import Any

from aetheris.gateway.core import bodies, policies
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import TooMany, Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.job_histories import StoredResults
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.policy_judge import wired
from aetheris.gateway.registry import Registry
from aetheris.gateway.views import JobQuery, Row, Views
from aetheris.protocol.api_operations import OtherVerdictView, PolicyTrialBody, PolicyTrialPage
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import Blobs

LOOKED_THROUGH = 200
"""Lines of the list of jobs that one request looks through."""
MOST_DIFFERENCES = 1_000
"""Behind so many no further job is judged."""
_LINE_BYTES = 64 * 1024 * 1024
"""What the process may answer at once: a job's differences are few, and a reason is short."""
_GIVEN = ("PATH", "PYTHONPATH", "LANG", "LC_ALL")
"""Of the environment; nothing that could be a secret."""
_QUERY = JobQuery()


class PolicyTrials:
    """One at a time; nothing is kept between two requests."""

    def __init__(
        self,
        *,
        reader: JobReader,
        views: Views,
        blobs: Blobs,
        signers: AllowedSigners,
        registry: Registry,
        deadlines: Deadlines,
        clock: Clock,
        listed_for_s: float,
    ) -> None:
        self._reader = reader
        self._views = views
        self._results = StoredResults(blobs)
        self._signers = signers
        self._registry = registry
        self._deadlines = deadlines
        self._clock = clock
        self._listed_for_ms = round(listed_for_s * 1000)
        self._turn = asyncio.Lock()

    async def tried(self, caller: Principal, raw: bytes) -> PolicyTrialPage:
        """The calls of some of the tenant's jobs, newest job first, that would have been decided otherwise.

        It takes as long as two requests may, however many there are; the cursor leads on. A job that takes all of that
        by itself is named, and left out.

        Raises:
            BadRequest: it is no policy. TooMany: somebody else's is under way. Unavailable.
        """
        wanted = bodies.read(PolicyTrialBody, raw)
        await asyncio.to_thread(policies.check, wanted, self._signers, self._registry.newest())
        async with self._alone(), PolicyJudge.of(wanted, self._deadlines.request_s) as judge:
            return await self._page(caller, wanted, judge)

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._deadlines.request_s):
                await self._turn.acquire()
        except TimeoutError:
            raise TooMany("policy_trials", "another policy is being tried: ask again") from None
        try:
            yield
        finally:
            self._turn.release()

    async def _page(self, caller: Principal, wanted: PolicyTrialBody, judge: "PolicyJudge") -> PolicyTrialPage:
        async with self._deadlines.deadline():
            page = await self._views.page(caller.tenant, _QUERY, wanted.cursor, LOOKED_THROUGH)
        ends_s = self._clock.monotonic() + self._deadlines.request_s
        following, jobs, left_out = page.cursor, 0, list[str]()
        calls = unjudged = differ = 0
        differences: list[OtherVerdictView] = []
        for row in (rows := list(self._within(page.rows, wanted))):
            async with self._deadlines.deadline():
                records = await self._reader.records(row, await self._reader.end(row.job_id))
            left_s = ends_s - self._clock.monotonic()
            found = await judge.judged(records, left_s, self._results) if left_s > 0 else None
            if found is None:
                if jobs == 0 and left_s > 0:
                    left_out.append(row.job_id)  # nobody else had a part of the time: the next one has not, either
                    jobs += 1
                    following = self._behind(row, rows, page.cursor)
                elif jobs == 0:
                    raise Unavailable("deadline", "Kafka is late: ask again")
                break
            jobs, calls, unjudged = jobs + 1, calls + found["calls"], unjudged + found["unjudged"]
            differ += found["differ"]
            differences += [OtherVerdictView.model_validate(one) for one in found["differences"]]
            following = self._behind(row, rows, page.cursor)
            if len(differences) >= MOST_DIFFERENCES:
                break
        return PolicyTrialPage(
            jobs=jobs,
            calls=calls,
            unjudged=unjudged,
            differ=differ,
            differences=tuple(differences),
            left_out=tuple(left_out),
            cursor=following,
        )

    def _behind(self, row: Row, rows: Sequence[Row], cursor: str | None) -> str | None:
        return cursor if row is rows[-1] else self._views.cursor_behind(row, _QUERY)

    def _within(self, rows: Sequence[Row], wanted: PolicyTrialBody) -> Iterator[Row]:
        """Without those that were sealed before the time that is asked about."""
        least_ms = wanted.since.timestamp() * 1000 if wanted.since is not None else 0
        for row in rows:
            sealed_ms = row.ends_ms - self._listed_for_ms if row.ends_ms is not None else None
            if sealed_ms is None or sealed_ms >= least_ms:
                yield row


class PolicyJudge:
    """The process that judges; it is ended with what needs it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    @asynccontextmanager
    async def of(cls, wanted: PolicyTrialBody, within_s: float) -> AsyncGenerator["PolicyJudge"]:
        """One that has read the policy.

        Raises:
            Unavailable: it does not start in time.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "aetheris.gateway.policy_judge"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE_BYTES,
            env={name: os.environ[name] for name in _GIVEN if name in os.environ},
        )
        try:
            judge = cls(process)
            since = wanted.since.astimezone(UTC).isoformat() if wanted.since is not None else None
            first = {"policy": wanted.policy, "since": since}
            try:
                async with asyncio.timeout(within_s):
                    is_ready = await judge._asked(first)
            except TimeoutError:
                is_ready = None
            if is_ready is None:
                raise Unavailable("policy_judge", "what judges policies did not start in time: ask again")
            yield judge
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def judged(self, records: Sequence[Record], within_s: float, results: StoredResults) -> dict[str, Any] | None:
        """{calls, unjudged, differ, differences} of a job; None: not in time, and it answers no more.

        Raises:
            Unavailable: a large result can't be had now.
        """
        lines = await asyncio.to_thread(lambda: {"records": wired(as_sealed(records))})
        try:
            async with asyncio.timeout(within_s):
                answer = await self._asked(lines)
                while answer is not None and "want" in answer:
                    answer = await self._asked(await asyncio.to_thread(_had, results, str(answer["want"])))
        except TimeoutError:
            return None
        return answer

    async def _asked(self, what: dict[str, Any]) -> dict[str, Any] | None:
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            return None
        try:
            stdin.write(await asyncio.to_thread(lambda: json.dumps(what).encode() + b"\n"))
            await stdin.drain()
            line = await stdout.readline()
        except (ConnectionError, ValueError):
            return None
        return json.loads(line) if line.endswith(b"\n") else None


def _had(results: StoredResults, sha256: str) -> dict[str, Any]:
    try:
        return {"value": results[sha256]}
    except KeyError:
        return {}
