"""Failed logins are slowed, per address and in all; nothing is kept for ever."""

import pytest

from aetheris.gateway.core.buckets import Limit
from aetheris.gateway.core.throttle import Throttle


def test_an_address_may_fail_so_often_and_is_told_when_to_come_again() -> None:
    throttle = Throttle(Limit(3, 0.5), Limit(100, 100.0))
    assert [throttle.failed("192.0.2.1", 0.0) for _ in range(4)] == [None, None, None, 2]
    assert throttle.failed("192.0.2.2", 0.0) is None
    assert throttle.failed("192.0.2.1", 1.9) == 1
    assert throttle.failed("192.0.2.1", 2.0) is None
    assert throttle.failed("192.0.2.1", 2.0) == 2


def test_who_goes_on_trying_waits_no_longer_than_one_who_does_not() -> None:
    throttle = Throttle(Limit(3, 0.5), Limit(100, 100.0))
    for _ in range(1000):
        throttle.failed("192.0.2.1", 0.0)
    assert throttle.failed("192.0.2.1", 2.0) is None


def test_all_addresses_together_may_fail_so_often() -> None:
    throttle = Throttle(Limit(3, 0.5), Limit(10, 1.0))
    reported = [throttle.failed(f"192.0.2.{number}", 0.0) for number in range(12)]
    assert reported == [None] * 10 + [1, 1]
    assert throttle.failed("192.0.2.200", 1.0) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("no address", "no address", True),
    ],
)
def test_who_has_a_network_has_one_budget(one: str, other: str, same: bool) -> None:
    throttle = Throttle(Limit(1, 0.1), Limit(100, 1.0))
    assert throttle.failed(one, 0.0) is None
    assert (throttle.failed(other, 0.0) is not None) is same


def test_so_many_addresses_are_remembered() -> None:
    throttle = Throttle(Limit(1, 0.1), Limit(10_000, 1.0), addresses=10)
    for number in range(100):
        throttle.failed(f"192.0.2.{number}", 0.0)
    assert throttle.failed("192.0.2.99", 0.0) is not None
    assert throttle.failed("192.0.2.0", 0.0) is None
