"""What people are told of what starts jobs: when next, what came of it last, and nothing of what was in a message."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from aetheris.protocol.api_schedules import MOST_STARTS
from aetheris.scheduler.core.job_starts import JobSchedule
from aetheris.scheduler.core.starts_file import TopicEntry, WebhookEntry
from aetheris.scheduler.core.told_starts import StartSource, ToldStarts, fault_report

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NIGHTLY = JobSchedule("nightly", "30 2 * * *", ZoneInfo("Europe/Vienna"), {}, "last", timedelta(hours=1))
ORDERS = TopicEntry(name="nightly", plan="p.json", topic="shop.orders", once_per="key")
SHOP = WebhookEntry.model_validate({"name": "shop", "plan": "p.json", "secret": "shop.key"})
SCHEDULE, TOPIC, WEBHOOK = (
    StartSource("schedule", "nightly"),
    StartSource("topic", "nightly"),
    StartSource("webhook", "shop"),
)


def told() -> ToldStarts:
    return ToldStarts([NIGHTLY], [ORDERS], [SHOP])


def test_each_entry_is_told_with_when_it_starts_the_next() -> None:
    found = told().report("s-0", NOW)
    assert [(one.kind, one.name) for one in found.starts] == [SCHEDULE, TOPIC, WEBHOOK]
    assert found.starts[0].next_at == datetime(2026, 3, 2, 1, 30, tzinfo=UTC)
    assert found.starts[0].when == "30 2 * * * (Europe/Vienna); the last that was missed in 3600 s"
    assert [one.when for one in found.starts[1:]] == ["each key of shop.orders", "each signed delivery"]


def test_what_came_of_an_occasion_is_told_without_what_was_in_it() -> None:
    starts = told()
    message = {
        "topic": "shop.orders",
        "partition": 3,
        "offset": 17,
        "key": "ada@example.com",
        "value": {"iban": "DE02"},
    }
    assert starts.started(TOPIC, message, "job-1", NOW)
    starts.refused(WEBHOOK, {"webhook": "shop", "delivery": "ada-1", "value": "DE02"}, "occasion", NOW)
    starts.started(SCHEDULE, {"schedule": "nightly", "due": "2026-03-01T01:30:00+00:00"}, "job-2", NOW)
    found = starts.report("s-0", NOW)
    text = found.model_dump_json()
    assert "ada" not in text
    assert "DE02" not in text
    assert found.starts[1].last is not None
    assert found.starts[1].last.occasion == "partition 3, offset 17"
    assert found.starts[2].refused is not None
    assert found.starts[2].refused.code == "occasion"
    assert found.starts[0].last is not None
    assert found.starts[0].last.occasion == "due 2026-03-01T01:30:00+00:00"


def test_the_same_job_again_is_no_news_and_an_end_of_waiting_is() -> None:
    starts = told()
    assert starts.started(TOPIC, {"partition": 0, "offset": 1}, "job-1", NOW)
    assert not starts.started(TOPIC, {"partition": 0, "offset": 1}, "job-1", NOW + timedelta(minutes=1))
    assert starts.waits(TOPIC, "unavailable")
    assert not starts.waits(TOPIC, "unavailable")
    assert starts.report("s-0", NOW).starts[1].waits == "unavailable"
    assert starts.started(TOPIC, {"partition": 0, "offset": 1}, "job-1", NOW)
    assert starts.report("s-0", NOW).starts[1].waits is None


def test_of_very_many_entries_the_first_are_told_and_how_many_others_there_are() -> None:
    many = [SHOP.model_copy(update={"name": f"shop-{at}"}) for at in range(MOST_STARTS + 7)]
    found = ToldStarts([], [], many).report("s-0", NOW)
    assert (len(found.starts), found.left_out) == (MOST_STARTS, 7)


def test_a_fault_however_long_can_be_told() -> None:
    found = fault_report("s-0", "x" * 10_000)
    assert found.fault is not None
    assert len(found.fault) == 2_000
