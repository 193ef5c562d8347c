"""Each number has one answer through kills: of the planner, between two appends, and of the auditor, before any line.

The cores are the services' own; what lies between them is a list of records that outlives each of them.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from aetheris.planner.core.decisions import Append
from aetheris.planner.core.partition import Partition
from aetheris.proofs.log_lines import receipt_hash
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages.commands import JobIndexEntry, Submit
from aetheris.protocol.messages.envelope import Envelope
from aetheris.protocol.messages.events import Event, JobCreated
from aetheris.protocol.messages.submission_numbers import ReceiptVoid, SubmissionAnswered
from aetheris.verifier.core.unlogged_answers import Answers
from tests.unit.planner.test_submission_answers import number, submission

ROUNDS = 25


@dataclass
class AnswersWorld:
    """The logs, and what of them is committed."""

    chance: random.Random
    commands: list[Submit | ReceiptVoid] = field(default_factory=list[Submit | ReceiptVoid])
    events: list[Event | SubmissionAnswered] = field(default_factory=list[Event | SubmissionAnswered])
    committed: int = 0
    lines: list[tuple[tuple[tuple[str, str], ...], int]] = field(default_factory=list[Any])
    audit_mark: int = 0
    index: dict[str, JobIndexEntry] = field(default_factory=dict[str, JobIndexEntry])

    def dies(self) -> bool:
        return self.chance.random() < 0.15


class AnsweringKilled(Exception):
    """Of a process."""


class KilledPlanner:
    def __init__(self, world: AnswersWorld) -> None:
        self.world = world
        self.core = Partition(world.index.get)
        self.read, self.position = 0, world.committed
        self.fold()

    def fold(self) -> None:
        for at in range(self.read, len(self.world.events)):
            event = self.world.events[at]
            if isinstance(event, Event):
                self.core.evolve(Envelope("id", event, Record("t", 0, at, 0, event.job_id.encode(), (), b"")))
        self.read = len(self.world.events)

    def round(self) -> None:
        self.fold()
        self.core.decide()
        end = min(len(self.world.commands), self.position + self.world.chance.randint(1, 4))
        births: list[Append] = []
        for offset in range(self.position, end):
            command = self.world.commands[offset]
            if isinstance(command, ReceiptVoid):
                self.core.answers.say(command, "void")
                continue
            decided = self.core.submit(command, f"c{offset}", offset)
            births += [decided] if isinstance(decided, Append) else []
        self.append([[one.event for one in birth.facts] for birth in births])
        self.append([[one] for one in self.core.answers.take()])
        self.position = end
        low = self.core.low_water()
        self.world.committed = end if low is None else min(low, end)

    def append(self, groups: list[list[Any]]) -> None:
        for group in groups:
            if self.world.dies():
                raise AnsweringKilled
            self.world.events += group
        if self.world.dies():
            raise AnsweringKilled


class KilledAuditor:
    def __init__(self, world: AnswersWorld) -> None:
        self.world = world
        self.answers, self.read, self.born = Answers(), world.audit_mark, set[str]()
        self.take(len(world.events))
        self.answers.logged(max((up_to for _, up_to in world.lines), default=0))

    def take(self, end: int) -> None:
        for at in range(self.read, end):
            self.answers.read(at)
            event = self.world.events[at]
            if isinstance(event, JobCreated) and event.receipt is not None and event.job_id not in self.born:
                self.born.add(event.job_id)
                self.answers.add(at, named(event, event.job_id), "born")
            if isinstance(event, SubmissionAnswered):
                self.answers.add(at, named(event, event.of_job), event.answer)
        self.read = max(self.read, end)

    def round(self) -> None:
        self.take(len(self.world.events))
        if self.world.chance.random() < 0.5 and (batch := self.answers.batch()) is not None:
            if self.world.dies():
                raise AnsweringKilled
            self.world.lines.append((tuple((one.receipt, one.answer) for one in batch.answers), batch.up_to))
            if self.world.dies():
                raise AnsweringKilled
            self.answers.logged(batch.up_to)
        oldest = self.answers.oldest
        self.world.audit_mark = self.read if oldest is None else oldest
        if self.world.dies():
            raise AnsweringKilled


def named(said: JobCreated | SubmissionAnswered, job_id: str) -> str:
    assert said.receipt is not None
    return receipt_hash(job_id, said.tenant, said.request_hash, said.receipt.model_dump())


def submit_something(world: AnswersWorld, numbers: dict[int, str]) -> None:
    """A new job, a repeat, with another request, of nothing, no plan, or a void number."""
    count = len(numbers) + 1
    job_id = f"job-{world.chance.randint(1, 12)}"
    kind = world.chance.choice(["new", "new", "repeat", "other", "bad", "void"])
    numbers[count] = job_id
    if kind == "void":
        fields = {"job_id": job_id, "by": "ann", "tenant": "t", "request_hash": "r", "receipt": number(count)}
        world.commands.append(ReceiptVoid.model_validate(fields))
    else:
        more = {"repeat": {"repeats": True}, "other": {"request_hash": "s"}, "bad": {"plan": {"nodes": [{}]}}}
        world.commands.append(submission(count, job_id, **more.get(kind, {})))


@pytest.mark.parametrize("seed", range(60))
def test_each_number_has_one_answer_whoever_dies(seed: int) -> None:
    world, numbers = AnswersWorld(random.Random(seed)), dict[int, str]()  # noqa: S311
    planner, auditor = KilledPlanner(world), KilledAuditor(world)
    for at in range(6 * ROUNDS):
        if at < ROUNDS:
            submit_something(world, numbers)
        try:
            planner.round()
        except AnsweringKilled:
            planner = KilledPlanner(world)
        try:
            auditor.round()
        except AnsweringKilled:
            auditor = KilledAuditor(world)
    assert (planner.position, len(auditor.answers)) == (len(world.commands), 0)
    said = defaultdict[str, set[str]](set)
    for line, _ in world.lines:
        for receipt, answer in line:
            said[receipt].add(answer)
    for command in world.commands:
        assert command.receipt is not None
        receipt = receipt_hash(command.job_id, "t", command.request_hash, command.receipt.model_dump())
        # what is read again is answered by what stands then: a job of a later submission, where there was none
        assert len(said[receipt] - {"same_as"}) <= 1
        assert said.pop(receipt)
    assert said == {}
