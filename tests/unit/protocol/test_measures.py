"""What cores count: bounded whatever the log names, and never backwards."""

import random

from aetheris.protocol.base.measures import OTHER, Busiest, Counts, Histogram, Histograms


def test_a_value_lies_in_the_bucket_whose_bound_it_does_not_exceed() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1, -3.0):
        histogram.add(value)
    assert (histogram.counts, histogram.total) == ([3, 2, 1], 6.6)


def test_the_busiest_are_shown_by_name_and_all_others_as_one() -> None:
    counts = Counts("tenant", bounded=("tenant",), most=2)
    for tenant, times in (("a", 5), ("b", 4), ("c", 3), ("d", 1)):
        for _ in range(times):
            counts.add(tenant)
    assert {labels["tenant"]: count for labels, count in counts.series()} == {"a": 5, "b": 4, OTHER: 4}


def test_one_that_becomes_busier_takes_a_place_and_the_series_of_whom_it_outdid_ends() -> None:
    counts = Counts("tenant", bounded=("tenant",), most=2)
    counts.add("first", amount=7)
    counts.add("idle")
    for _ in range(40):
        counts.add("busy")
    found = {labels["tenant"]: count for labels, count in counts.series()}
    assert "busy" in found
    assert len(found.keys() - {OTHER}) == 2


def test_nothing_that_is_shown_ever_counts_backwards_and_there_are_never_more_series() -> None:
    seed = random.randrange(2**32)  # noqa: S311  histories, not secrets
    chance = random.Random(seed)  # noqa: S311
    counts, histograms = Counts("tenant", "end", bounded=("tenant",), most=5), Histograms("tool", (1.0,), most=5)
    last: dict[tuple[str, ...], int] = {}
    for number in range(20_000):
        name = f"t{int(chance.paretovariate(0.4)) % 3_000 + number // 5_000 * 1_000}"
        counts.add(name, chance.choice(("completed", "failed")))
        histograms.add(name, 0.5)
        if number % 500 == 0:
            now = {tuple(labels.values()): count for labels, count in counts.series()}
            assert len(now) <= 2 * 6, seed
            assert len(list(histograms.series())) <= 6, seed
            assert all(now[labels] >= count for labels, count in last.items() if labels in now), seed
            assert all(now[labels] >= last[labels] for labels in last if labels[0] == OTHER), seed
            last = now


def test_names_of_strangers_are_not_remembered_without_end() -> None:
    busiest = Busiest(2)
    for number in range(100_000):
        busiest.label(f"stranger {number}")
    assert len(busiest._rest) <= 1_000


def test_a_name_that_cannot_be_shown_is_one_of_the_others() -> None:
    busiest = Busiest()
    assert {busiest.label(name) for name in ("a" * 101, "line\nbreak", "half \ud800", OTHER)} == {OTHER}
    assert busiest.label("Überweisung 1") == "Überweisung 1"
