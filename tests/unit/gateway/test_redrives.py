"""Dead letters: listed once, shown to whom they concern, and a command appended again, as its topic has it, once."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from aetheris.gateway import dead_letters as edge
from aetheris.gateway.core.dead_letters import REDRIVES
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, ForbiddenProblem, NotFoundProblem
from aetheris.gateway.dead_letters import DeadLetters, LetterPlace
from aetheris.gateway.deadlines import Deadlines
from aetheris.protocol.api_dead_letters import DeadLetterView, Redrive
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Draft, Headers, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.messages.commands import Cancel
from aetheris.protocol.messages.envelope import draft
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.memory import MemoryAppender, MemoryLog
from tests.testkit.policies import ALLOW_ALL
from tests.unit.gateway.test_operator_gate import gate

if TYPE_CHECKING:
    from aetheris.gateway.index import JobIndex
    from aetheris.runtime.keys.records import RecordKeys

COMMANDS = Topic.JOBS_COMMANDS
BOB = Principal("bob", "acme", PrincipalKind.PERSON, frozenset({Role.OPERATE, Role.READ_PAYLOADS}))
ROOT = replace(BOB, id="root", tenant="other", roles=frozenset(Role))
WHY = json.dumps({"reason": "upgraded"}).encode()
PARTITION = 1


class LetterDesk:
    """The gateway's dead letters, and who puts records aside."""

    def __init__(self, log: MemoryLog, appender: MemoryAppender, letters: DeadLetters) -> None:
        self.log = log
        self.appender = appender
        self.letters = letters

    async def commanded(self, tenant: str = "acme", version: str = "v1") -> Record:
        """A command, as it lies in its topic."""
        said = Cancel(job_id="job-1", by="ann", tenant=tenant, reason="enough")
        record = draft(COMMANDS, said, key="job-1", id="command-1", source="s", time="now", partition=PARTITION)
        headers = tuple((name, value.replace(b".v1", f".{version}".encode())) for name, value in record.headers)
        await self.appender.append([(record.replaced(headers=headers),)])
        return self.log.records(COMMANDS)[-1]

    async def put_aside(self, record: Record, *, offset: int | None = None, dlq_id: str | None = None) -> int:
        """As a service does it; where it lies in the `.dlq`."""
        at = str(record.offset if offset is None else offset)
        named = dlq_id or derived("dlq", record.topic, str(record.partition), at)
        own = (("dlq_id", named.encode()), ("dlq_reason", b"not JSON"), ("dlq_offset", at.encode()))
        name = dead_letters(record.topic)
        await self.appender.append([(Draft(name, record.key or b"", record.value, own + record.headers, PARTITION),)])
        return self.log.records(name)[-1].offset

    async def garbage(self, topic: Topic, value: bytes = b"{", headers: Headers = ()) -> int:
        """What lies in a topic and its `.dlq`; where there."""
        await self.appender.append([(Draft(topic, b"k", value, headers, PARTITION),)])
        return await self.put_aside(self.log.records(topic)[-1])

    async def redriven(self, offset: int, by: Principal = BOB, topic: str = COMMANDS) -> DeadLetterView:
        return await self.letters.redrive(by, LetterPlace(topic, PARTITION, offset), WHY)


@pytest.fixture
async def desk() -> AsyncGenerator[LetterDesk]:
    log = MemoryLog(partitions=2)
    appender: MemoryAppender = log.appender()
    await appender.start()
    async with gate(ALLOW_ALL) as (operators, _):
        deadlines = Deadlines(cast("JobIndex", None), 20.0)
        letters = DeadLetters(
            log=log, appender=appender, operators=operators, deadlines=deadlines, clock=VirtualClock()
        )
        yield LetterDesk(log, appender, letters)


async def test_a_repeat_is_listed_once_and_leads_to_its_letter(desk: LetterDesk) -> None:
    record = await desk.commanded()
    first, again = await desk.put_aside(record), await desk.put_aside(record)
    other = await desk.garbage(Topic.TOOLS_REQUESTS)
    found = await desk.letters.listed(None)
    assert [(one.topic, one.offset, one.repeats, one.record_offset) for one in found.dead_letters] == [
        (COMMANDS, first, 1, record.offset),
        (Topic.TOOLS_REQUESTS, other, 0, 0),
    ]
    assert found.is_whole
    assert (await desk.letters.record(BOB, LetterPlace(COMMANDS, PARTITION, again))).offset == first
    assert (await desk.letters.listed(COMMANDS + ".dlq")).dead_letters == found.dead_letters[:1]


async def test_its_bytes_and_headers_are_those_that_it_came_with(desk: LetterDesk) -> None:
    value, headers = b"\xff\x00 not JSON", (("binary", b"\xfe"),)
    offset = await desk.garbage(Topic.VERIFICATIONS, value, headers)
    shown = await desk.letters.record(ROOT, LetterPlace(Topic.VERIFICATIONS, PARTITION, offset))
    assert base64.b64decode(shown.value) == value
    assert [(name, base64.b64decode(text)) for name, text in shown.headers] == [("binary", b"\xfe")]


async def test_a_command_is_appended_again_as_its_topic_has_it_and_once(desk: LetterDesk) -> None:
    record = await desk.commanded()
    offset = await desk.put_aside(record.replaced(value=b"what a forger would have said"))
    answers = await asyncio.gather(*(desk.redriven(offset) for _ in range(5)))
    first, again = desk.log.records(COMMANDS)
    assert (again.key, again.value, again.headers, again.partition) == (
        record.key,
        record.value,
        record.headers,
        PARTITION,
    )
    assert first.offset != again.offset
    assert {one.redriven_by for one in answers} == {"bob"}
    (listed,) = (await desk.letters.listed(None)).dead_letters
    assert (listed.redriven_at, listed.offset) == (answers[0].redriven_at, offset)


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        (Topic.TOOLS_REQUESTS, "by itself"),
        (Topic.TOOLS_GRANTS, "by itself"),
        (Topic.VERIFICATIONS, "by itself"),
        (Topic.JOBS_EVENTS, "at its own place"),
        (Topic.JOBS_SEALS, "at its own place"),
        (Topic.WORKERS, "at its own place"),
    ],
)
async def test_what_is_not_redriven_is_refused_by_name(desk: LetterDesk, topic: Topic, why: str) -> None:
    offset = await desk.garbage(topic)
    with pytest.raises(ConflictProblem, match=why) as refused:
        await desk.redriven(offset, ROOT, topic)
    assert (refused.value.code, topic in refused.value.message) == ("not_redrivable", True)
    assert len(desk.log.records(topic)) == 1


def test_every_topic_has_its_answer() -> None:
    assert {REDRIVES.get(topic, Redrive.IN_PLACE) for topic in Topic} == set(Redrive)


async def test_a_letter_that_names_another_record_than_its_own_redrives_nothing(desk: LetterDesk) -> None:
    await desk.commanded()
    record = await desk.commanded()
    offset = await desk.put_aside(record, offset=0, dlq_id=derived("dlq", COMMANDS, str(PARTITION), str(record.offset)))
    with pytest.raises(ConflictProblem) as refused:
        await desk.redriven(offset)
    assert refused.value.code == "not_redrivable"
    gone = await desk.put_aside(record, offset=77)
    with pytest.raises(ConflictProblem) as refused:
        await desk.redriven(gone)
    assert refused.value.code == "not_there"
    assert len(desk.log.records(COMMANDS)) == 2


@pytest.mark.parametrize(("value", "version"), [(b"{", "v1"), (None, "v2")])
async def test_what_cannot_be_decoded_here_either_stays_where_it_is(
    desk: LetterDesk, value: bytes | None, version: str
) -> None:
    record = await desk.commanded(version=version)
    if value is not None:
        await desk.appender.append([(Draft(COMMANDS, b"job-1", value, record.headers, PARTITION),)])
    last = desk.log.records(COMMANDS)[-1]
    offset = await desk.put_aside(last)
    with pytest.raises(ConflictProblem) as refused:
        await desk.redriven(offset, ROOT)
    assert refused.value.code == "not_decodable"
    assert desk.log.records(COMMANDS)[-1].offset == last.offset


async def test_another_tenants_is_for_who_administers(desk: LetterDesk) -> None:
    offset = await desk.put_aside(await desk.commanded(tenant="other"))
    with pytest.raises(ForbiddenProblem):
        await desk.letters.record(BOB, LetterPlace(COMMANDS, PARTITION, offset))
    with pytest.raises(ForbiddenProblem):
        await desk.redriven(offset)
    assert (await desk.redriven(offset, replace(ROOT, tenant="third"))).redriven_by == "root"


async def test_a_robot_is_not_named_unless_the_policy_says_so(desk: LetterDesk) -> None:
    offset = await desk.put_aside(await desk.commanded())
    with pytest.raises(ForbiddenProblem):
        await desk.redriven(offset, replace(BOB, kind=PrincipalKind.AGENT))
    with pytest.raises(BadRequestProblem):
        await desk.letters.redrive(BOB, LetterPlace(COMMANDS, PARTITION, offset), b"{}")
    assert len(desk.log.records(COMMANDS)) == 1


@pytest.mark.parametrize("at", [(1, 5), (7, 0), (0, 0)])
async def test_no_letter_at_an_address(desk: LetterDesk, at: tuple[int, int]) -> None:
    await desk.put_aside(await desk.commanded())
    with pytest.raises(NotFoundProblem):
        await desk.letters.record(ROOT, LetterPlace(COMMANDS, *at))
    with pytest.raises(BadRequestProblem):
        await desk.letters.record(ROOT, LetterPlace("nope", *at))


async def test_who_fills_it_is_not_read_to_the_end(desk: LetterDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "LOOKED_AT", 2)
    for _ in range(4):
        await desk.garbage(Topic.TOOLS_GRANTS)
    found = await desk.letters.listed(Topic.TOOLS_GRANTS)
    assert (len(found.dead_letters), found.is_whole) == (2, False)


class NobodySigned:
    """Keys of an installation in which nobody has signed what is asked about."""

    class Messages:
        def counts(self, *_: object) -> bool:
            return False

    messages = Messages()


async def test_what_nobody_has_signed_is_refused_where_signatures_are_asked_for(desk: LetterDesk) -> None:
    offset = await desk.put_aside(await desk.commanded())
    async with gate(ALLOW_ALL) as (operators, _):
        letters = DeadLetters(
            log=desk.log,
            appender=desk.appender,
            operators=operators,
            deadlines=Deadlines(cast("JobIndex", None), 20.0),
            clock=VirtualClock(),
            keys=cast("RecordKeys", NobodySigned()),
        )
        with pytest.raises(ConflictProblem) as refused:
            await letters.redrive(BOB, LetterPlace(COMMANDS, PARTITION, offset), WHY)
    assert refused.value.code == "not_signed"
    assert len(desk.log.records(COMMANDS)) == 1
