"""When jobs are due, what a plan gets of what started it, and by which key each is submitted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aetheris.scheduler.core.job_starts import (
    MOST_AT_ONCE,
    JobSchedule,
    OccasionRefused,
    due_times,
    filled,
    message_key,
    next_time,
    schedule_key,
)

HOURLY = JobSchedule("hourly", "0 * * * *", UTC, {}, "all", timedelta(days=1))
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-{text}").replace(tzinfo=UTC)


def test_all_that_was_missed_is_made_up_for_or_the_last_one() -> None:
    missed = due_times(HOURLY, at("01-01T00:00"), at("01-01T03:30"))
    assert missed == [at("01-01T01:00"), at("01-01T02:00"), at("01-01T03:00")]
    assert due_times(replace(HOURLY, catch_up="last"), at("01-01T00:00"), at("01-01T03:30")) == missed[-1:]


def test_nothing_is_made_up_for_beyond_what_the_schedule_says() -> None:
    found = due_times(replace(HOURLY, within=timedelta(hours=2)), LONG_AGO, at("01-01T03:30"))
    assert found == [at("01-01T02:00"), at("01-01T03:00")]
    assert due_times(replace(HOURLY, since=at("01-01T03:00")), LONG_AGO, at("01-01T03:30")) == [at("01-01T03:00")]
    assert due_times(replace(HOURLY, since=at("01-01T03:01")), LONG_AGO, at("01-01T03:30")) == []


def test_many_missed_times_are_bounded_and_the_latest() -> None:
    often = replace(HOURLY, cron="* * * * *", within=timedelta(days=31))
    found = due_times(often, LONG_AGO, at("02-01T00:00"))
    assert (len(found), found[-1]) == (MOST_AT_ONCE, at("02-01T00:00"))


def test_a_time_that_has_come_is_not_due_again() -> None:
    assert due_times(HOURLY, at("01-01T03:00"), at("01-01T03:30")) == []
    assert next_time(HOURLY, at("01-01T03:00")) == at("01-01T04:00")


def test_local_times_go_by_their_zone_through_a_change_of_clocks() -> None:
    nightly = replace(HOURLY, cron="30 2 * * *", zone=ZoneInfo("Europe/Vienna"), within=timedelta(days=9))
    spring = due_times(nightly, at("03-28T00:00"), at("03-30T12:00"))
    assert [one.isoformat() for one in spring] == [
        "2026-03-28T01:30:00+00:00",
        "2026-03-29T01:00:00+00:00",  # 02:30 is not there: at the change
        "2026-03-30T00:30:00+00:00",
    ]
    autumn = due_times(nightly, at("10-24T12:00"), at("10-25T12:00"))
    assert len(autumn) == 1, "02:30 is there twice, and due once"


def test_a_due_time_has_one_key_whatever_its_zone_says() -> None:
    due = at("07-01T00:00")
    assert schedule_key("a", due) == schedule_key("a", due.astimezone(ZoneInfo("Asia/Tokyo")))
    keys = {schedule_key("a", due), schedule_key("b", due), schedule_key("a", due + timedelta(minutes=1))}
    keys |= {
        message_key("a", "0", "1"),
        message_key("a", "01"),
        message_key("b", "0", "1"),
        message_key("a", "key", "1"),
    }
    assert len(keys) == 7


def test_a_plan_gets_what_it_names() -> None:
    plan = {
        "nodes": [
            {"id": "a", "args": {"order": {"$start": "/value/id"}, "ref": {"$ref": "b#"}, "n": [{"$start": "/key"}]}}
        ]
    }
    found = filled(plan, {"value": {"id": {"x": [1, None]}}, "key": "k"})
    assert found["nodes"][0]["args"] == {"order": {"x": [1, None]}, "ref": {"$ref": "b#"}, "n": ["k"]}


@pytest.mark.parametrize(
    "value",
    [
        {"$ref": "pay#/secret"},
        {"$secret": "payments@1"},
        [{"deep": {"$hidden": {}}}],
        {"$start": "/key"},
        {"a": 1, "$secret": "x@1"},
    ],
)
def test_a_message_is_data_and_names_no_secret_and_no_result(value: Any) -> None:
    with pytest.raises(OccasionRefused, match="only a plan may name"):
        filled({"args": {"$start": "/value"}}, {"value": value})


@pytest.mark.parametrize("pointer", ["/none", "/value/1", "/value/99999999999999999999", "value", "", 7, "/value/-1"])
def test_a_pointer_that_leads_nowhere_starts_nothing(pointer: Any) -> None:
    with pytest.raises(OccasionRefused):
        filled({"args": {"$start": pointer}}, {"value": ["a"]})
