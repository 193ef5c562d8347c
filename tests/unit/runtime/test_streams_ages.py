"""A message holds its topic's offset for a day, however long it waits, and across restarts."""

from aetheris.runtime.worker.ages import HELD_MS, Ages

HOUR_MS = 3_600_000


def read(hours: range, ages: Ages | None = None) -> Ages:
    """A record an hour, at the offset of its number."""
    found = Ages() if ages is None else ages
    for hour in hours:
        found.note(hour, hour * HOUR_MS)
    return found


def test_what_is_younger_than_a_day_is_held() -> None:
    assert read(range(24)).held_from(23.5 * HOUR_MS) == 0


def test_what_is_older_is_not() -> None:
    ages = read(range(100))
    assert ages.held_from(99 * HOUR_MS) == 75
    assert ages.held_from(99 * HOUR_MS) == 75
    assert ages.held_from(99 * HOUR_MS + HELD_MS) == 99


def test_a_restart_that_reads_old_records_again_knows_how_old_they_are() -> None:
    again = read(range(40, 45))
    assert again.held_from(200 * HOUR_MS) == 44


def test_times_that_go_back_change_nothing() -> None:
    ages = read(range(30))
    ages.note(30, 0)
    assert ages.held_from(30 * HOUR_MS) == 6
