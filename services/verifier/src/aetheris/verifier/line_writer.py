"""Lines of the log of seals that are no seals: answers of submissions, interim seals (docs/receipts.md).

They wait for nothing that seals wait for, and no seal waits for them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from aetheris.proofs.log_lines import (
    ANSWERS,
    answers_payload,
    interim_payload,
    read_line,
    receipt_hash,
    unjudged_in,
)
from aetheris.proofs.trust import SEAL, keyring
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import AnsweredSubmissions, InterimSeals, Message
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, Undecodable, decode_message, draft
from aetheris.protocol.messages.events import JobCreated
from aetheris.protocol.messages.submission_numbers import SubmissionAnswered
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.base.fresh_ids import fresh_salt
from aetheris.runtime.log.interface import Log, Place
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.runtime import Runtime
from aetheris.runtime.process.withheld import write_all
from aetheris.verifier.core.open_jobs import OpenJobs, lines
from aetheris.verifier.core.partition import AuditedJob, AuditedJobTable, OpenJob
from aetheris.verifier.core.unlogged_answers import Answers
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.token_key import KeyAway

WITHIN_S = 5.0
"""So long an answer waits for others to share its line."""
AGAIN_S = 60.0
"""After which a line that the brokers refused is made anew."""
LOOKED_BACK = 5_000
"""So many lines are looked at for the last of a partition's answers; where none is, these are logged again."""

_SEALS: Place = (Topic.JOBS_SEALS, 0)
_ANSWERED, _BORN = SubmissionAnswered.type_name, JobCreated.event_type

_log = structlog.get_logger(__name__)


class LoggedAnswers:
    """Up to where each partition's answers lie in the log of seals, as lines say that a key of ours has signed."""

    def __init__(self, log: Log, keys: SealKeys) -> None:
        self._log = log
        self._keys = keyring(keys.trusted, SEAL)
        self._up_to: dict[int, tuple[int, frozenset[int]]] = {}
        self._read: int | None = None
        self._reading = asyncio.Lock()

    async def up_to(self, partition: int) -> tuple[int, frozenset[int]]:
        """(up to where, the offsets below that its verifier could not judge); 0 where no line of late says so.

        Raises:
            LogError.
        """
        async with self._reading:
            end = (await self._log.end_offsets([_SEALS]))[_SEALS]
            begin = self._read
            if begin is None:
                begin = max((await self._log.beginning_offsets([_SEALS]))[_SEALS], end - LOOKED_BACK)
            async for records in replay(self._log, _SEALS, begin, end):
                for record in records:
                    self._take(record)
            self._read = end
        return self._up_to.get(partition, (0, frozenset()))

    def _take(self, record: Record) -> None:
        body = read_line(record.value, self._keys) or {}
        partition, up_to = body.get("partition"), body.get("up_to")
        if body.get("kind") != ANSWERS or type(partition) is not int or type(up_to) is not int:
            return
        if up_to >= self._up_to.get(partition, (0, frozenset()))[0]:
            self._up_to[partition] = up_to, unjudged_in(body)


class LogLines:
    """Of one partition."""

    def __init__(
        self,
        runtime: Runtime,
        keys: SealKeys,
        messages: SignedMessages,
        number: int,
        *,
        logged: LoggedAnswers,
        every_s: float,
        source: str,
    ) -> None:
        """`every_s`: between two interim seals of an open job."""
        self._runtime = runtime
        self._keys = keys
        self._messages = messages
        self._number = number
        self._logged = logged
        self._source = source
        self._answers = Answers()
        self._open = OpenJobs(every_s)
        self._due_s: float | None = None

    def read(self, offset: int) -> None:
        """All was read up to here, and `take` was given of it what lines come of."""
        self._answers.read(offset)

    def take(self, record: Record, name: str, born: AuditedJob | None, *, is_unjudged: bool = False) -> None:
        """The next birth, or answer, of the partition; `born` where it counts as the birth of this job.

        `is_unjudged`: it may be a birth, which nobody here can tell.
        """
        if is_unjudged:
            self._answers.could_not_judge(record.offset)
        elif born is not None and name == _BORN:
            if born.receipt is not None:
                self._answers.add(record.offset, born.receipt, "born")
        elif name == _ANSWERED:
            self._take_answer(record)

    def parked(self, job: AuditedJob) -> None:
        """A call of the job waits for a person."""
        self._open.parked(job.job_id)

    async def learn(self) -> None:
        """History was read: what of it is logged already; raises LogError."""
        place = (str(Topic.JOBS_EVENTS), self._number)
        up_to, unjudged = await self._logged.up_to(self._number)
        end = (await self._runtime.log.end_offsets([place]))[place]
        self._answers.logged(up_to if up_to <= end else 0, unjudged)  # else it is of a log that is no more

    def start(self) -> None:
        """From now on the partition's lines are written here."""
        self._open.start(self._now_s())

    def next_due_s(self) -> float | None:
        """When something is to be written, by the monotonic clock."""
        if len(self._answers) and self._due_s is None:
            self._due_s = self._now_s() + (0.0 if self._answers.is_full else WITHIN_S)
        return min((at for at in (self._due_s, self._open.next_due_s()) if at is not None), default=None)

    def low_water(self) -> int | None:
        """The oldest answer that is not logged."""
        return self._answers.oldest

    async def write(self, jobs: AuditedJobTable) -> None:
        """What is due; what can't be written now is written later."""
        now_s = self._now_s()
        if self._answers.is_full or (self._due_s is not None and now_s >= self._due_s):
            self._due_s = None
            await self._write_answers()
        await self._write_interim(self._open.due(jobs, now_s))

    async def _write_answers(self) -> None:
        while (batch := self._answers.batch()) is not None:
            said = [(one.receipt, one.answer) for one in batch.answers]
            at, salt = self._time(), fresh_salt()
            payload = answers_payload(
                partition=self._number, up_to=batch.up_to, answers=said, at=at, salt=salt, unjudged=batch.unjudged
            )
            if not await self._append(AnsweredSubmissions, payload):
                self._due_s = self._now_s() + AGAIN_S
                return
            self._answers.logged(batch.up_to)

    async def _write_interim(self, jobs: Sequence[OpenJob]) -> None:
        for tenant, own in lines(jobs):
            said = [(job.job_id, job.records, job.tree) for job in own]
            at, salt = self._time(), fresh_salt()
            payload = interim_payload(tenant=tenant, partition=self._number, jobs=said, at=at, salt=salt)
            if not await self._append(InterimSeals, payload):
                self._open.again(own)
                self._due_s = self._now_s() + AGAIN_S

    async def _append(self, kind: type[AnsweredSubmissions] | type[InterimSeals], payload: Mapping[str, Any]) -> bool:
        try:
            sign = self._keys.sign_line
            signed = await asyncio.to_thread(sign, payload) if self._keys.is_elsewhere else sign(payload)
        except KeyAway as error:
            _log.warning("a line can't be signed yet", kind=payload["kind"], code=error.code, reason=str(error))
            return False
        refusals = await write_all(self._runtime.appender, [(self._draft(kind.model_validate(signed)),)])
        for refusal in refusals:
            _log.error("a line is refused", kind=payload["kind"], reason=refusal.why)
        return not refusals

    def _draft(self, body: Message) -> Draft:
        """Of no job: the key is its kind, and the partition that it is about."""
        return draft(
            Topic.JOBS_SEALS,
            body,
            key=f"{body.type_name}:{self._number}",
            id=derived(body.type_name, str(self._number), fresh_salt()),
            source=self._source,
            time=self._time(),
        )

    def _take_answer(self, record: Record) -> None:
        try:
            found = decode_message(record)
        except Undecodable:
            return
        other = self._messages.other_root(record.topic, _ANSWERED, record.value)
        if isinstance(found, NeedsUpgrade) or other is not None:
            self._answers.could_not_judge(record.offset)
            return
        if not self._messages.counts(record.topic, _ANSWERED, record.key, record.value):
            return
        if isinstance(found, Envelope) and isinstance(found.body, SubmissionAnswered):
            said = found.body
            receipt = receipt_hash(said.of_job, said.tenant, said.request_hash, said.receipt.model_dump())
            self._answers.add(record.offset, receipt, said.answer)

    def _time(self) -> str:
        return self._runtime.clock.now().isoformat()

    def _now_s(self) -> float:
        return self._runtime.clock.monotonic()
