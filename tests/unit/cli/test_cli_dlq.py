"""Dead letters: listed once, addressed by their place, appended again exactly as they came."""

import pytest

from aetheris.cli import dead_letter_queue
from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.records import Draft, Headers
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.testkit.memory import MemoryLog

REQUESTS = Topic.TOOLS_REQUESTS
CAME_WITH: Headers = (("ce_id", b"request-1"), ("binary", b"\xff"))


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=2)


async def put_aside(log: MemoryLog, topic: Topic, dlq_id: str, value: bytes = b"{", partition: int = 1) -> None:
    headers = (("dlq_id", dlq_id.encode()), ("dlq_reason", b"not JSON"), ("dlq_offset", b"17"), *CAME_WITH)
    appender = log.appender()
    await appender.start()
    await appender.append([(Draft(dead_letters(topic), b"job-1", value, headers, partition),)])


async def test_a_repeat_is_listed_once_and_leads_to_its_letter(log: MemoryLog) -> None:
    await put_aside(log, REQUESTS, "first")
    await put_aside(log, REQUESTS, "second")
    await put_aside(log, REQUESTS, "first")
    found = await dead_letter_queue.read(log, Topic)
    assert [(str(one.address), one.dlq_id, one.offsets) for one in found] == [
        (f"{REQUESTS}/1/0", "first", (0, 2)),
        (f"{REQUESTS}/1/1", "second", (1,)),
    ]
    assert (found[0].reason, found[0].origin_offset) == ("not JSON", 17)
    assert (await dead_letter_queue.find(log, dead_letter_queue.DeadLetterAddress(REQUESTS, 1, 2))).dlq_id == "first"


async def test_redriving_appends_the_record_as_it_came_and_notes_it(log: MemoryLog) -> None:
    await put_aside(log, REQUESTS, "first", b"\xff not JSON")
    [dead_letter] = await dead_letter_queue.read(log, [REQUESTS])
    [done] = await dead_letter_queue.redrive(log, [dead_letter])
    [again] = log.records(REQUESTS)
    assert (again.key, again.value, again.headers, again.partition) == (b"job-1", b"\xff not JSON", CAME_WITH, 1)
    [listed] = await dead_letter_queue.read(log, [REQUESTS])
    assert listed.redriven == done.redriven is not None
    assert listed.offsets == (0,)


@pytest.mark.parametrize("topic", [Topic.JOBS_EVENTS, Topic.JOBS_SEALS, Topic.WORKERS])
async def test_what_counts_where_it_lies_is_not_redriven(log: MemoryLog, topic: Topic) -> None:
    await put_aside(log, topic, "fact")
    [dead_letter] = await dead_letter_queue.read(log, [topic])
    with pytest.raises(CommandError) as refused:
        dead_letter_queue.check_redrivable(dead_letter)
    assert refused.value.ends is Exit.BAD_INPUT


@pytest.mark.parametrize("suffix", ["", ".dlq"])
def test_an_address_names_the_topic_or_its_dead_letters(suffix: str) -> None:
    assert dead_letter_queue.parse_address(f"{REQUESTS}{suffix}/1/42") == dead_letter_queue.DeadLetterAddress(
        REQUESTS, 1, 42
    )


@pytest.mark.parametrize("text", ["", "1/2", "nope/0/0", f"{REQUESTS}/0", f"{REQUESTS}/-1/0", f"{REQUESTS}/0/0/0"])
def test_no_address(text: str) -> None:
    with pytest.raises(CommandError) as refused:
        dead_letter_queue.parse_address(text)
    assert refused.value.ends is Exit.BAD_INPUT


@pytest.mark.parametrize("at", [(1, 5), (7, 0)])
async def test_no_letter_at_an_address(log: MemoryLog, at: tuple[int, int]) -> None:
    with pytest.raises(CommandError) as refused:
        await dead_letter_queue.find(log, dead_letter_queue.DeadLetterAddress(REQUESTS, *at))
    assert refused.value.code == "unknown_letter"
