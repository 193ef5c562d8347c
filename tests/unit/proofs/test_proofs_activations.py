"""Decisions name the policy that they went by: an activation is of one, and what goes back to an earlier is noted."""

from typing import Any

import pytest

from tests.testkit.proof_histories import Log, node
from tests.testkit.standalone import verified

KINDS = ("policy_allowed", "approval_requested", "invocation_rejected")


def by(*decisions: tuple[str, Any, Any]) -> tuple[list[str], list[str]]:
    """Event ids: those that break the rule, and those that are noted, of (type, activation, policy_hash)."""
    log = Log(*(node(f"n{at}") for at in range(len(decisions))))
    for at, (kind, activation, policy_hash) in enumerate(decisions):
        named = {"activation": activation, "policy_hash": policy_hash, "reason": "policy", "tool_version": "1"}
        log.about(kind, name=f"n{at}", event_id=f"d{at}", **{name: one for name, one in named.items() if one != ""})
    report = verified(log.records)
    found = [one.event_id for one in report.violations if one.rule == "activation_differs"]
    return found, [one.event_id for one in report.notes if one.rule == "activation_decreases"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_activation_is_of_one_policy(kind: str) -> None:
    assert by(("policy_allowed", 1, "h1"), (kind, 1, "h2"), (kind, 1, "h1")) == (["d1"], [])
    assert by(("policy_allowed", 1, "h1"), (kind, 1, "")) == (["d1"], [])


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_back_to_an_earlier_activation_is_noted_and_no_fault(kind: str) -> None:
    late = by(("policy_allowed", 1, "h1"), (kind, 2, "h2"), (kind, 1, "h1"), (kind, 0, "h0"), (kind, 2, "h2"))
    assert late == ([], ["d2", "d3"])


def test_the_configured_file_may_change() -> None:
    assert by(("policy_allowed", 0, "h0"), ("policy_allowed", 0, "h1"), ("policy_allowed", 1, "h1")) == ([], [])


@pytest.mark.parametrize("strange", [True, "1", 1.0, None, [1], ""])
def test_what_names_no_activation_says_nothing_of_one(strange: Any) -> None:
    assert by(("policy_allowed", 2, "h1"), ("policy_allowed", strange, "h2")) == ([], [])


def test_what_decides_nothing_says_nothing_of_a_policy() -> None:
    assert by(("policy_allowed", 1, "h1"), ("retry_scheduled", 1, "h2"), ("retry_scheduled", 0, "h2")) == ([], [])
