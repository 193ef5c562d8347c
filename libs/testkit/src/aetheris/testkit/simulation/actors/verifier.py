"""The verifier, simulated: answers probes from what the external system knows at that moment, and seals ended jobs."""

from collections.abc import Callable, Iterable
from typing import Any

from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import SIGNING, Party
from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.messages.event_values import Answer
from aetheris.protocol.messages.events import TERMINAL, ConfirmationFailed, EffectConfirmed, InvocationProbed, JobSealed
from aetheris.testkit.simulation.log import WholeBatch
from aetheris.testkit.simulation.scenario import TENANT, Lasting
from aetheris.testkit.simulation.surroundings import ScheduledAction, SimulatedReader, SimulationSurroundings
from aetheris.testkit.simulation.versions import ReadableRecords, is_newer, writes_newer

ROLE = "verifier"

Answered = InvocationProbed | EffectConfirmed | ConfirmationFailed


class SimulatedVerifier:
    """One verifier process. No key has sealed what its seals say: the proofs have tests of their own for those."""

    def __init__(self, around: SimulationSurroundings, name: str) -> None:
        self.name = name
        self.reading = ReadableRecords(around, name, is_newer(around))
        self.writer = around.log.writer(name, writes_newer(around, newer=self.reading.newer))
        self.around = around
        self._records = around.records(*sorted(SIGNING & {Party.PROBER, Party.AUDITOR}))
        self._asked: list[tuple[int, Verification]] = []
        self._ended: list[str] = []
        self._sealed: set[str] = set()
        self._takes_a_round = (ScheduledAction(f"{name} takes a round", self._round),)
        asked = around.group(ROLE).start(Topic.VERIFICATIONS)
        self.reader = SimulatedReader(around, {Topic.JOBS_EVENTS: 0, Topic.VERIFICATIONS: asked})

    def actions(self) -> Iterable[ScheduledAction]:
        """Reading, answering, sealing."""
        round_ = self._takes_a_round if self.reader.has_more else ()
        return (*round_, *self._answers(), *self._seals()) if self._asked or self._ended else round_

    def _seals(self) -> Iterable[ScheduledAction]:
        return (ScheduledAction(f"{self.name} seals {self._ended[0]}", self._seal),) if self._ended else ()

    def _answers(self) -> Iterable[ScheduledAction]:
        silent = self.around.lasting is Lasting.NOBODY_ANSWERS
        for place in [place for place, (_, asked) in enumerate(self._asked) if asked.what == "confirm" or not silent]:
            yield ScheduledAction(f"{self.name} probes", lambda place=place: self._answer(place))

    def _round(self) -> None:
        batch = self.reader.read()
        for entry in batch[Topic.JOBS_EVENTS]:
            if not self.reading.reads(entry):
                self._records.pass_over(entry)
                continue
            if not self._records.counts(entry):
                continue
            if isinstance(entry.body, TERMINAL) and entry.body.job_id not in self._ended:
                self._ended.append(entry.body.job_id)
            elif isinstance(entry.body, JobSealed):
                self._sealed.add(entry.body.job_id)
        over = self._sealed | self.reading.unread.keys()
        self._ended = [job_id for job_id in self._ended if job_id not in over]
        for entry in batch[Topic.VERIFICATIONS]:
            self._asked.append((entry.record.offset, entry.body))
        self._commit()

    def _answer(self, place: int) -> None:
        offset, question = self._asked[place]
        if question.what == "confirm":
            self._confirm(offset, question)
            return
        effect = self.around.external.found(question.external_key)
        answer = Answer.FOUND if effect is not None else Answer.NOT_FOUND
        if self._nobody_knows():
            effect, answer = None, Answer.UNKNOWN
        probed = InvocationProbed(
            job_id=question.job_id,
            node_id=question.node_id,
            idempotency_key=question.idempotency_key,
            invocation_id=question.invocation_id,
            external_key=question.external_key,
            ask=question.ask,
            answer=answer,
            result=effect.result if effect is not None else None,
        )
        cause = f"{question.invocation_id} {question.ask}"
        self.around.say(f"    {question.external_key} is {answer.value}")
        self._append(event_id(question.job_id, probed.event_type, cause), probed, lambda: self._answered(offset))

    def _confirm(self, offset: int, question: Verification) -> None:
        """Every call counts as one change of one resource: as it was left, gone, or nobody can say."""
        body: dict[str, Any] = {
            "job_id": question.job_id,
            "node_id": question.node_id,
            "idempotency_key": question.idempotency_key,
            "ask": question.ask,
            "place": 0,
            "of": 1,
            "resource": {},
            "mode": question.mode,
        }
        if self._nobody_knows():
            event: Answered = ConfirmationFailed(**body, reason="unknown")
        elif self.around.external.found(question.external_key) is not None:
            event = EffectConfirmed(**body)
        else:
            event = ConfirmationFailed(**body, reason="drift")
        self.around.say(f"    what {question.node_id} did: {event.event_type}")
        cause = f"{question.invocation_id} {question.ask}"
        self._append(event_id(question.job_id, event.event_type, cause), event, lambda: self._answered(offset))

    def _nobody_knows(self) -> bool:
        if self.around.calm:
            return self.around.lasting is Lasting.NOBODY_KNOWS
        return self.around.tape.chance(0.15)

    def _answered(self, offset: int) -> None:
        self._asked = [held for held in self._asked if held[0] != offset]
        self._commit()

    def _seal(self) -> None:
        job_id = self._ended.pop(0)
        self._sealed.add(job_id)
        seal = JobSealed(
            job_id=job_id,
            tenant=TENANT,
            event_count=0,
            root="",
            chain=2,
            tree="",
            execution_hash="",
            outcome_hash="",
            sealed_at="",
            signature="",
            key_id="",
        )
        self._append(event_id(job_id, seal.event_type), seal)

    def _append(self, id_: str, body: Answered | JobSealed, then: Callable[[], None] | None = None) -> None:
        self.writer.append(self._records.signed([WholeBatch(Topic.JOBS_EVENTS, ((id_, body),))]), then)

    def _commit(self) -> None:
        open_ = [offset for offset, _ in self._asked]
        self.around.group(ROLE).committed[Topic.VERIFICATIONS] = min(
            [*open_, self.reader.positions[Topic.VERIFICATIONS]]
        )
