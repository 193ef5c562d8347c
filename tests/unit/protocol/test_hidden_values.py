"""Hidden values: what stands for them, and what of it enters which hash."""

import hashlib
import hmac
from typing import Any

import pytest

from aetheris.proofs import value_references
from aetheris.proofs.standalone import verify
from aetheris.protocol.base.hidden_values import (
    HiddenValue,
    InvalidHidden,
    by_meaning,
    hidden,
    hidden_at,
    hidden_places,
    joint_key,
    put_at,
)
from aetheris.protocol.base.keys import content_key, idempotency_key
from aetheris.protocol.base.references import UnresolvedReference, resolve
from aetheris.protocol.plan.graph import InvalidPlan, Node, check_graph
from aetheris.protocol.planning.policy import PolicyEffect, parse

KEY, K = bytes(range(32)), "0123456789abcdef" * 2
VALUE = hidden(KEY, K, "acme", "job-1", "ann@example.org")
FORM = VALUE.json()


def test_what_stands_for_a_value_is_made_as_written() -> None:
    data = b'"ann@example.org"'
    salt = hmac.digest(KEY, b"c\0acme\0job-1\0" + data, "sha256")
    assert VALUE.c == hashlib.sha256(b"ah1\0" + salt + b"\0" + data).hexdigest()
    assert VALUE.d == hmac.digest(KEY, b"d\0acme\0" + data, "sha256").hex()


def test_c_depends_on_the_job_and_d_does_not() -> None:
    other = hidden(KEY, K, "acme", "job-2", "ann@example.org")
    assert (other.c == VALUE.c, other.d == VALUE.d) == (False, True)
    assert hidden(KEY, K, "other", "job-1", "ann@example.org").d != VALUE.d
    assert hidden(bytes(32), K, "acme", "job-1", "ann@example.org").d != VALUE.d


def test_a_joint_key_needs_each_of_its_keys() -> None:
    one, two = {"b" * 32: b"1" * 32}, {"a" * 32: b"2" * 32}
    name, key = joint_key(one | two)
    assert name == f"{'a' * 32}.{'b' * 32}"
    assert joint_key(two | one) == (name, key)
    assert joint_key(one) == ("b" * 32, b"1" * 32)
    assert joint_key(one | {"a" * 32: b"3" * 32})[1] != key


def test_content_and_outcome_know_no_job_and_the_key_does() -> None:
    other = hidden(KEY, K, "acme", "job-2", "ann@example.org").json()
    first, second = ({"to": [one], "n": 1} for one in (FORM, other))
    assert content_key("acme", "mail", first) == content_key("acme", "mail", second)
    assert idempotency_key("job-1", "a", "mail", first) != idempotency_key("job-1", "a", "mail", second)
    assert content_key("acme", "mail", first) != content_key("acme", "mail", {"to": ["ann@example.org"], "n": 1})


@pytest.mark.parametrize(
    "part",
    [
        FORM,
        {"a": [FORM, {"b": FORM}], "c": 1},
        {"a": 1},
        {"$hidden": {"c": "x", "d": "y"}},
        {"$hidden": {"c": "x", "d": "y", "k": 1}},
        {"$hidden": {"c": "x", "d": "y", "k": "z"}, "b": 1},
        {"$hidden": {"c": "x", "d": "y", "k": "z", "e": "w"}},
        {"$hidden": "x"},
        [],
        None,
    ],
)
def test_the_three_readers_leave_out_the_same(part: Any) -> None:
    meant = by_meaning(part)
    assert value_references.by_meaning(part) == meant
    assert verify.by_meaning(part) == meant


def test_what_is_not_hidden_is_left_as_it_is() -> None:
    part = {"a": [1, {"b": None}]}
    assert value_references.by_meaning(part) is part


@pytest.mark.parametrize(
    "said",
    [
        "x",
        {"c": "0" * 64, "d": "0" * 64},
        {"c": "0" * 63, "d": "0" * 64, "k": K},
        {"c": "0" * 64, "d": "0" * 64, "k": K, "x": 1},
        {"c": "0" * 64, "d": "0" * 64, "k": ".".join((K, K))},
        {"c": "0" * 64, "d": "0" * 64, "k": ".".join(("b" * 32, "a" * 32))},
        {"c": "0" * 64, "d": "0" * 64, "k": ".".join(f"{n:032x}" for n in range(5))},
        {"c": "0" * 64, "d": 5, "k": K},
    ],
)
def test_what_says_hidden_otherwise_is_in_no_plan(said: Any) -> None:
    with pytest.raises(InvalidHidden):
        list(hidden_places({"a": {"$hidden": said}}))
    node = Node.model_validate({"id": "a", "tool": "t", "args": {"x": [{"$hidden": said}]}})
    with pytest.raises(InvalidPlan, match=r"nodes\[0\].args/x/0: no hidden value"):
        check_graph([node])


def test_only_a_tool_is_given_one() -> None:
    node = Node.model_validate({"id": "a", "kind": "llm", "args": {"prompt": FORM}})
    with pytest.raises(InvalidPlan, match="only a tool's arguments may hold a hidden value"):
        check_graph([node])


def test_places_and_what_is_put_there() -> None:
    args = {"a/b": {"c": FORM}, "d": 1}
    (place,) = hidden_places(args)
    assert (place.at, place.value) == ("/a~1b/c", VALUE)
    assert hidden_at(args) == place.at
    assert put_at(args, place.at, "ann") == {"a/b": {"c": "ann"}, "d": 1}
    assert args["a/b"] == {"c": FORM}
    with pytest.raises(LookupError):
        put_at(args, "/e", 1)


def test_no_reference_takes_a_hidden_value_out_of_a_result() -> None:
    for pointer, result in (("", FORM), ("/a", {"a": [FORM]}), ("", {"b": {"$hidden": 1}})):
        with pytest.raises(UnresolvedReference, match=r"holds \$hidden"):
            resolve({"x": {"$ref": f"n#{pointer}"}}, {"n": result})


POLICY = """
[[rules]]
name = "looks"
tools = ["mail"]
when = '{}'
effect = "{}"
[[rules]]
name = "rest"
tools = ["*"]
effect = "allow"
"""


@pytest.mark.parametrize("effect", ["allow", "deny"])
@pytest.mark.parametrize(
    ("when", "asks"),
    [
        ('args.to == "x"', True),
        ('args["to"] != "x"', True),
        ("has(args.to) && args.n == 1", True),
        ("size(args) == 2", True),
        ("args[job.tenant] == 1", True),
        ('args["\\\\x74o"] == 1', True),
        ("args.n == 1", False),
        ('tool == "mail"', False),
    ],
)
def test_a_rule_that_looks_at_a_hidden_value_asks(when: str, asks: bool, effect: str) -> None:
    policy = parse(POLICY.format(when, effect))
    facts = {"args": {"to": FORM, "n": 1}, "tool": "mail", "job": {"tenant": "to"}, "node": {}}
    verdict = policy.verdict("mail", irreversible=False, facts=lambda: facts)
    assert (verdict.effect is PolicyEffect.APPROVAL) is asks
    shown = {**facts, "args": {"to": "x", "n": 1}}
    assert policy.verdict("mail", irreversible=False, facts=lambda: shown).effect is not PolicyEffect.APPROVAL


def test_a_hidden_value_says_whose_it_is() -> None:
    assert HiddenValue("c", "d", "a.b").pseudonyms == ("a", "b")
