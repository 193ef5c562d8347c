"""Where a job's records lie, in few stretches that hold every one of them."""

import random

import pytest

from aetheris.protocol.base.stretches import MOST, NEAR, Stretches, in_order


def stretches(*offsets: int) -> tuple[tuple[int, int], ...]:
    found = Stretches()
    for offset in offsets:
        found.add(offset)
    return found.told()


def test_what_lies_near_is_one_stretch_and_what_lies_far_another() -> None:
    assert stretches() == ()
    assert stretches(7) == ((7, 8),)
    assert stretches(7, 8, 8 + NEAR) == ((7, 9 + NEAR),)
    assert stretches(7, 9 + NEAR) == ((7, 8), (9 + NEAR, 10 + NEAR))


def test_an_offset_that_is_known_is_no_news() -> None:
    found = Stretches.known(((7, 9), (5000, 5001)))
    assert [found.add(offset) for offset in (7, 8, 5000, 5001, 5001)] == [False, False, False, True, False]
    assert found.told() == ((7, 9), (5000, 5002))


def test_beyond_the_bound_the_closest_become_one() -> None:
    far = [at * 10 * NEAR for at in range(MOST)]
    near = far[-1] + 2 * NEAR
    found = stretches(*far, near, near + 10 * NEAR)
    assert len(found) == MOST
    assert (far[-1], near + 1) in found


@pytest.mark.parametrize("seed", range(50))
def test_every_offset_lies_in_a_stretch_and_they_come_in_order(seed: int) -> None:
    rand = random.Random(seed)  # noqa: S311  not for secrets
    offsets = sorted(rand.sample(range(2_000_000), rand.randrange(1, 400)))
    found = stretches(*offsets)
    assert all(any(begin <= offset < end for begin, end in found) for offset in offsets)
    assert in_order(offsets[0], offsets[-1] + 1, found)
    assert len(found) <= MOST


@pytest.mark.parametrize(
    "lying",
    [((5, 5),), ((5, 4),), ((3, 6),), ((5, 21),), ((5, 9), (8, 10)), ((9, 10), (5, 6)), ((-1, 3),)],
)
def test_what_does_not_come_in_order_is_told(lying: tuple[tuple[int, int], ...]) -> None:
    assert in_order(4, 20, ((4, 6), (6, 8), (9, 20)))
    assert not in_order(4, 20, lying)
