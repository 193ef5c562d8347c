"""Another policy on what was decided before: what would have been otherwise, from the records alone."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.proofs import RawRecord
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.policy import parse
from aetheris.views.policy_trial import Trial
from tests.testkit.histories import about, finished, graph, started
from tests.testkit.job_histories import records
from tests.testkit.ledgers import Surroundings
from tests.testkit.principals import person
from tests.testkit.refused import write
from tests.unit.ledger.test_approvals import PAID, PAY, asked, respond, world

ALLOW = '[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"\n'
LITTLE = f'[[rules]]\nname = "much"\ntools = ["pay"]\nwhen = "args.amount > 400"\neffect = "deny"\n{ALLOW}'
PAY_KEYS: dict[str, Any] = {"args": PAID, "tool": "pay"}


def begun(node: str, rule: str, args: dict[str, Any], tool: str = "act") -> Event:
    return started(node, f"n-{node}", args=args, tool=tool).model_copy(update={"rule": rule})


def paid(policy: str = PAY, *voters: str) -> list[Event]:
    """The log of a payment that was asked about, approved and made."""
    ledger = asked(policy)
    for number, who in enumerate(voters or ("bob",)):
        respond(ledger, "approve", by=who, name=f"v-{number}", principal=person(who))
    ledger.add(begun("a", "pay", PAID, "pay"), finished("a", "n-a", **PAY_KEYS))
    return ledger.surroundings.log


def allowed() -> list[Event]:
    """The log of a payment that a rule allowed."""
    ledger = world(ALLOW).ledger()
    ledger.request("a", offset=1)
    ledger.add(begun("a", "all", PAID, "pay"), finished("a", "n-a", **PAY_KEYS))
    return ledger.surroundings.log


def tried(log: list[Event], policy: str, since: str | None = None) -> Trial:
    trial = Trial(parse(policy), since)
    trial.judge(records(*log), {})
    return trial


def sides(trial: Trial) -> list[tuple[str, str, str, str]]:
    return [(one.then, one.then_by, one.now, one.now_by) for one in trial.differences]


def test_the_policy_that_decided_decides_likewise() -> None:
    for log, policy in ((paid(), PAY), (allowed(), ALLOW)):
        trial = tried(log, policy)
        assert (trial.calls, trial.unjudged, trial.differences) == (1, 0, [])


def test_what_was_allowed_would_be_asked_about_or_denied() -> None:
    assert sides(tried(allowed(), PAY)) == [("allow", "all", "approval", "pay")]
    assert sides(tried(allowed(), LITTLE)) == [("allow", "all", "deny", "much")]
    assert sides(tried(allowed(), LITTLE.replace("amount", "sum"))) == [
        ("allow", "all", "deny", "much: can't be judged (KeyError)")
    ]


def test_what_was_asked_about_or_denied_would_be_allowed() -> None:
    assert sides(tried(paid(), ALLOW)) == [("approval", "pay", "allow", "all")]
    denied = world(LITTLE).ledger()
    denied.request("a", offset=1)
    assert sides(tried(denied.surroundings.log, ALLOW)) == [("deny", "much", "allow", "all")]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("approvals = 2\n", "pay: 1 of 2 who may say yes have"),
        ('approvers = ["carol"]\n', "pay: 0 of 1 who may say yes have"),
        ('approver_kinds = ["service"]\n', "pay: 0 of 1 who may say yes have"),
    ],
)
def test_a_yes_that_would_not_be_enough_is_named(rule: str, why: str) -> None:
    assert sides(tried(paid(), PAY + rule)) == [("approved", "bob", "unapproved", why)]


def test_votes_are_counted_anew() -> None:
    two = paid(PAY + "approvals = 2\n", "bob", "carol")
    assert sides(tried(two, PAY)) == []
    assert sides(tried(two, PAY + "approvals = 3\n")) == [
        ("approved", "bob, carol", "unapproved", "pay: 2 of 3 who may say yes have")
    ]


def test_only_what_was_decided_since_then_is_compared() -> None:
    assert tried(allowed(), PAY, since="2026-01-01T00:00:03+00:00").calls == 0
    assert tried(allowed(), PAY, since="2026-01-01T00:00:02+00:00").calls == 1


def several(*ends: str) -> list[Event]:
    """A job whose steps came after one another, each allowed as it started."""
    nodes = [{"id": name, "args": {"n": number}} for number, name in enumerate("abc")]
    ledger = Surroundings(graph(*nodes), parse(ALLOW)).ledger()
    for (node, end), number in zip(zip("abc", ends, strict=True), range(3), strict=True):
        args = {"n": number}
        ledger.add(begun(node, "all", args), finished(node, f"n-{node}", end, args=args))
    return ledger.surroundings.log


def test_a_budget_is_counted_over_the_job_and_what_had_no_effect_gives_it_back() -> None:
    two = ALLOW + "budget = {calls = 2}\n"
    assert sides(tried(several("success", "success", "success"), two)) == [
        ("allow", "all", "deny", "all: over its budget")
    ]
    assert sides(tried(several("permanent_failure", "success", "success"), two)) == []


def test_a_call_whose_arguments_are_gone_is_not_judged() -> None:
    log = allowed()
    strange = [about(ev.PolicyAllowed, "a", tool_version="1", args_hash="x", rule="all"), *log[3:]]
    trial = tried([*log[:2], *strange], LITTLE)
    assert trial.unjudged >= 1


OBSERVE = '[[rules]]\nname = "would"\ntools = ["pay"]\nwhen = "args.amount > 400"\neffect = "observe"\nwould = "deny"\n'


@pytest.mark.parametrize(("policy", "event"), [(PAY, "approval_requested"), (ALLOW, "policy_allowed")])
def test_a_rule_that_observes_decides_nothing_and_is_recorded(policy: str, event: str) -> None:
    ledger = world(OBSERVE + policy).ledger()
    ledger.request("a", offset=1)
    (recorded,) = [one for one in ledger.surroundings.log if one.event_type == event]
    assert recorded.model_dump()["observed"] == ({"rule": "would", "would": "deny"},)
    assert ledger.grants if policy == ALLOW else not ledger.grants


def test_of_what_it_would_not_have_touched_nothing_is_said() -> None:
    ledger = world(OBSERVE.replace("400", "40000") + ALLOW).ledger()
    ledger.request("a", offset=1)
    (recorded,) = [one for one in ledger.surroundings.log if isinstance(one, ev.PolicyAllowed)]
    assert recorded.observed is None


def test_what_it_cant_judge_it_would_have_denied_and_denies_nothing() -> None:
    strange = OBSERVE.replace("amount", "sum").replace('"deny"', '"approval"')
    ledger = world(strange + ALLOW).ledger()
    ledger.request("a", offset=1)
    (recorded,) = [one for one in ledger.surroundings.log if isinstance(one, ev.PolicyAllowed)]
    assert recorded.model_dump()["observed"] == ({"rule": "would", "would": "deny"},)
    assert ledger.grants


def test_without_a_condition_it_observes_each_call_and_lets_none_ride_in_a_run() -> None:
    all_of_it = '[[rules]]\nname = "w"\ntools = ["act"]\neffect = "observe"\nwould = "approval"\n'
    policy = parse(all_of_it + ALLOW)
    assert policy.plain("act") is None
    ledger = Surroundings(graph({"id": "a"}), policy).ledger()
    ledger.request("a")
    (recorded,) = [one for one in ledger.surroundings.log if isinstance(one, ev.PolicyAllowed)]
    assert (recorded.rule, recorded.model_dump()["observed"]) == ("all", ({"rule": "w", "would": "approval"},))


def test_a_file_is_tried_on_an_exported_stream_with_no_service_there(tmp_path: Path) -> None:
    policy, stream = tmp_path / "policy.toml", tmp_path / "job.jsonl"
    policy.write_text(PAY)
    write(stream, [RawRecord(one.offset, one.key, one.headers, one.value) for one in records(*allowed())])
    shown = CliRunner().invoke(app, ["policy", "test", str(policy), str(stream), "--data", str(tmp_path / "none")])
    assert shown.exit_code == 0, shown.output
    assert "approval" in shown.stdout
