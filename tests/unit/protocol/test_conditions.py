"""What a condition may cost: it is judged over a client's arguments, on a service's own loop."""

import time

import pytest

from aetheris.protocol.base.conditions import (
    MAX_LOOPED,
    MAX_LOOPED_ASKED,
    MAX_RULE,
    BadCondition,
    Condition,
    asked_condition,
)

ARGS = frozenset({"args"})
WITHIN_S = 10.0
"""Of what took minutes."""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("args.l.map(x, args.l + args.l).size() > 0", "map makes lists"),
        ("args.l.map //'\n(x, x).size() > 0", "map makes lists"),
        ("args.l.all(x, args.l.all(y, y != x))", "inside another"),
        ("args.l.exists( x, size(args.l.filter(y, y == x)) > 1)", "inside another"),
        ("args.l.all(x, args.s == ')' || args.l.all (y, true))", "inside another"),
        ("args.l.all(x, args.s == \"('\" || args.l.all(y, args.s == '\"'))", "inside another"),
        (r"args.l.all(x, args.s == r'\' || args.l.all(y, args.s == r')'))", "tripled quotes"),
        ("args.l.all(x, args.l.all//\n(y, true))", "tripled quotes"),
        ("args.l.all(x, args.s == '''')' ''' || args.l.all(y, true))", "tripled quotes"),
        ("args.a == " + "1" * MAX_RULE, f"at most {MAX_RULE} characters"),
    ],
)
def test_a_condition_that_may_cost_too_much_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadCondition, match=says):
        Condition("when", text, ARGS)


@pytest.mark.parametrize(
    "text",
    [
        "args.to.all(x, x != 'eve') && args.cc.exists(y, y == 'bob')",
        "args.to.filter(x, x != 'eve').exists(y, y == 'bob')",
        "args.mode == 'all' && args.to.exists(x, x == 'all')",
        '(args.to.exists(x, x == "it\'s (fine)")) || args.to.all(x, true)',
        "args.map.size() == 1",
    ],
)
def test_loops_beside_each_other_are_taken(text: str) -> None:
    args = {"to": ["bob"], "cc": ["bob"], "mode": "all", "map": [1]}
    assert isinstance(Condition("when", text, ARGS).holds({"args": args}), bool)


def test_a_loop_goes_through_a_bounded_number_of_members() -> None:
    for made, most in ((Condition("when", "args.l.all(x, x > 0)", ARGS), MAX_LOOPED), (None, MAX_LOOPED_ASKED)):
        condition = made or asked_condition("where", "args.l.all(x, x > 0)")
        assert condition.holds({"args": {"l": [1] * (most - 2)}})
        for large in ({"l": [1] * most}, {"l": [1], "m": {"n": [{"o": [1] * most}]}}, {"l": [[1] * 10] * (most // 10)}):
            with pytest.raises(ValueError, match="more members"):
                condition.holds({"args": large})
    assert Condition("when", "args.l[0] == 1", ARGS).holds({"args": {"l": [1] * 100_000}})


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "^(a?){500}a{500}$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_pattern_is_matched_in_linear_time(pattern: str) -> None:
    """Twenty-eight characters took 37 seconds."""
    begun = time.monotonic()
    for text in ("a" * 28 + "!", "a" * 400_000 + "!"):
        assert not Condition("when", "args.s.matches(args.p)", ARGS).holds({"args": {"s": text, "p": pattern}})
    assert time.monotonic() - begun < WITHIN_S
