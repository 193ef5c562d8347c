"""Which facts are told, in which words, by which job; and what ends that."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from aetheris.notifier.core import notices
from aetheris.notifier.core.notice_routes import NoticeRoutes, parsed
from aetheris.notifier.core.notices import HumanMatter, JobFacts, matter_of, notice_jobs, over
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision, Outcome, RejectReason, Via
from aetheris.protocol.planning.approvals import request_id

SINCE = "2026-01-01T00:00:00+00:00"
CHANNELS = "".join(f'[[channels]]\nname = "{one}"\nkind = "slack"\nsecret = "room@1"\n' for one in ("room", "lead"))
FACTS = JobFacts("acme", "agent", frozenset({"payout"}), {"i-1": "payout"})
OF_A_NOTICE = JobFacts("notices", "notifier", frozenset({"notify.mail"}), {"i-1": "notify.mail"})
HIDDEN = {"$hidden": {"c": "a" * 64, "d": "b" * 64, "k": "c" * 32}}


def routes(more: str = "") -> NoticeRoutes:
    return parsed(f'{CHANNELS}[[routes]]\nname = "all"\ntell = ["room"]\n{more}')


def asked(tool: str = "payout", token: int | None = None, expires_at: str | None = None, **args: Any) -> ev.Event:
    context = {"tenant": "acme", "submitted_by": "agent", "tool": tool, "arguments": args}
    return ev.ApprovalRequested(
        job_id="j-1",
        node_id="pay",
        idempotency_key="k",
        args_hash="h",
        tool_version="1",
        rule="large",
        form={"title": "Pay me at evil.example", "context": context},
        token=token,
        expires_at=expires_at,
    )


def parked() -> ev.Event:
    return ev.InvocationParked(job_id="j-1", node_id="pay", idempotency_key="k", invocation_id="i-1", reason="opaque")


def waiting(kind: str, **more: Any) -> ev.Event:
    return ev.JobWaiting(job_id="j-1", wait_type=kind, **more)  # pyright: ignore[reportArgumentType]


def matter(event: ev.Event, facts: JobFacts | None = None) -> HumanMatter:
    found = matter_of(event, facts)
    assert found is not None
    return found


def told(event: ev.Event, more: str = "", facts: JobFacts | None = None) -> list[dict[str, Any]]:
    return [one.plan for one in notice_jobs(matter(event, facts), SINCE, routes(more), "https://console.example.org/")]


def test_an_approval_is_told_with_a_link_and_without_its_arguments() -> None:
    (plan,) = told(asked(to="ada", amount=5))
    (node,) = plan["nodes"]
    assert node["tool"] == "notify.slack"
    assert node["args"]["secret"] == {"$secret": "room@1"}
    notice = node["args"]["notice"]
    assert notice["title"] == "Approval asked: payout"
    assert notice["link"] == f"https://console.example.org/inbox/{request_id('j-1', 'pay', 'k').replace(':', '%3A')}"
    text = json.dumps(notice)
    assert "ada" not in text
    assert "evil" not in text, "nothing that who asks has worded"


def test_a_route_shows_what_it_names_on_one_line_and_nothing_hidden() -> None:
    show = 'show = ["/amount", "/iban", "/note", "/to/nested", "/long", "/none"]\n'
    (plan,) = told(
        asked(amount=5, iban=HIDDEN, note="a\r\nBcc: b\u202e\x00", to={"nested": [HIDDEN, 1]}, long="x" * 10**6), show
    )
    lines = plan["nodes"][0]["args"]["notice"]["lines"]
    assert "/amount: 5" in lines
    assert '/iban: "(hidden)"' in lines
    assert '/to/nested: ["(hidden)", 1]' in lines
    assert "/none: null" in lines
    assert not any(ord(one) < 32 or one == "\u202e" for line in lines for one in line)
    assert max(map(len, lines)) < 300
    assert "a" * 64 not in json.dumps(plan)


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        (asked("notify.mail"), None),
        (parked(), OF_A_NOTICE),
        (waiting("confirmation", correlation_key="confirm-7"), OF_A_NOTICE),
        (waiting("upgrade"), OF_A_NOTICE),
    ],
)
def test_nothing_about_a_notice_is_told(event: ev.Event, facts: JobFacts | None) -> None:
    assert matter_of(event, facts) is None


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (asked(), "approval"),
        (waiting("human", node_id="ask", idempotency_key="k", form={"context": {"tenant": "acme"}}), "form"),
        (parked(), "parked"),
        (waiting("confirmation", correlation_key="confirm-7"), "confirmation"),
        (waiting("upgrade"), "stuck"),
        (waiting("verifier", correlation_key="confirm-7"), "stuck"),
    ],
)
def test_each_kind_is_told(event: ev.Event, kind: str) -> None:
    found = matter(event, FACTS if notices.needs_facts(event) else None)
    assert (found.kind, found.tenant) == (kind, "acme")


@pytest.mark.parametrize("kind", ["timer", "signal", "approval", "resolve", "duplicate"])
def test_who_waits_for_no_person_is_told_of_by_nobody(kind: str) -> None:
    assert matter_of(waiting(kind, node_id="n", idempotency_key="k", correlation_key="c"), FACTS) is None


def test_a_job_id_that_is_none_is_told_of_by_nobody() -> None:
    assert matter_of(asked().model_copy(update={"job_id": "../../x\n"}), None) is None


def test_each_matter_channel_and_step_has_a_key_of_its_own_and_keeps_it() -> None:
    later = 'escalate = [{after_s = 60, tell = ["room", "lead"]}]\n'
    found = [
        one.key
        for event, facts in ((asked(), None), (asked(token=2), None), (parked(), FACTS))
        for one in notice_jobs(matter(event, facts), SINCE, routes(later), None)
    ]
    assert len(found) == len(set(found)) == 9
    assert (
        found[:3]
        == [one.key for one in notice_jobs(matter(asked(amount=1)), "later", routes(later), None)] + found[1:3]
    )


def test_an_escalation_is_due_by_the_log_and_none_behind_the_request_s_end() -> None:
    later = 'escalate = [{after_s = 60, tell = ["lead"]}, {after_s = 7200, tell = ["room"]}]\n'
    first, second = told(asked(expires_at="2026-01-01T01:00:00Z"), later)
    assert [node["id"] for node in first["nodes"]] == ["tell"]
    wait, tell = second["nodes"]
    assert datetime.fromisoformat(wait["wait"]["until"]) == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert tell["depends_on"] == ["due"]
    assert tell["args"]["notice"]["title"].startswith("Still open: ")


@pytest.mark.parametrize("since", ["", "yesterday", "2026-01-01T00:00:00", "9999-12-31T23:59:59Z"])
def test_a_time_that_is_none_has_no_escalation_and_is_told_all_the_same(since: str) -> None:
    later = 'escalate = [{after_s = 86400, tell = ["lead"]}]\n'
    assert len(notice_jobs(matter(asked()), since, routes(later), None)) == 1


def test_what_ends_a_matter_names_it() -> None:
    key: Any = {"job_id": "j-1", "node_id": "pay", "idempotency_key": "k"}
    decided: Any = {"args_hash": "h", "tool_version": "1", "rule": "r", "approver": "carol"}
    for event, facts, ends in (
        (asked(), None, ev.ApprovalDecided(**key, **decided, decision=Decision.APPROVE)),
        (asked(), None, ev.InvocationRejected(**key, reason=RejectReason.EXPIRED)),
        (asked(token=3), None, ev.ApprovalDecided(**key, **decided, decision=Decision.REJECT, token=3)),
        (parked(), FACTS, ev.InvocationReopened(**key, invocation_id="i-1", next_token=2, by="human")),
        (
            parked(),
            FACTS,
            ev.ToolInvocationFinished(**key, invocation_id="i-1", outcome=Outcome.SUCCESS, via=Via.HUMAN),
        ),
        (
            waiting("confirmation", correlation_key="c-1"),
            FACTS,
            ev.WaitCompleted(job_id="j-1", wait_type="confirmation", correlation_key="c-1"),
        ),
        (waiting("upgrade"), FACTS, ev.WaitCompleted(job_id="j-1", wait_type="upgrade")),
    ):
        assert matter(event, facts).subject in over(ends)
    by_itself = ev.ToolInvocationFinished(**key, invocation_id="i-1", outcome=Outcome.SUCCESS, via=Via.EXECUTOR)
    assert over(by_itself) == (), "most calls end so: they cost no request"
