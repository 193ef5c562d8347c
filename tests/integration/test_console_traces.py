"""In the console: a job and each of its calls lead to their traces, and what each call has come to is told."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from aetheris.protocol.base.keys import job_key, trace_id
from tests.testkit.consoles import JOB, TIME, RunningConsole, StandInGateway, console_at, serious

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

HOSTILE = "</ol><script>window.pwned=1</script>\u202e"
KEY = "0123456789abcdef" * 4
WHERE = "https://traces.example/at/{trace_id}?wide=1"

expect.set_options(timeout=30_000)


def held(gateway: StandInGateway) -> None:
    gateway.hold("running", {"node_id": "pay", "tool": "bank.payout", "state": "running", "attempts": 1})
    graph: dict[str, Any] = {"nodes": [{"node_id": "pay", "kind": "tool", "tool": "bank.payout"}], "edges": []}
    step = {"node_id": "pay", "keys": [{"idempotency_key": KEY, "trace_id": trace_id(KEY)}]}
    gateway.say(f"/jobs/{JOB}/trace", {"job": {}, "decisions": None, "graph": graph, "steps": [step], "step_count": 1})


def test_a_job_and_each_of_its_calls_lead_to_their_traces(
    gateway: StandInGateway, tmp_path: Path, browser: Browser
) -> None:
    held(gateway)
    console = console_at(tmp_path, gateway.url, trace_url=WHERE)
    with console.up():
        page = console.opened(browser, f"/jobs/{JOB}")
        own = page.get_by_role("link", name=trace_id(job_key(JOB)))
        expect(own).to_have_attribute("href", WHERE.replace("{trace_id}", trace_id(job_key(JOB))))
        page.goto(f"{console.url}/jobs/{JOB}/plan")
        expect(page.get_by_role("link", name=trace_id(KEY))).to_have_attribute(
            "href", WHERE.replace("{trace_id}", KEY[:32])
        )
        assert serious(page) == []
    assert console.trouble == []


def test_where_nobody_said_where_traces_are_their_ids_are_shown(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    held(gateway)
    page = console.opened(browser, f"/jobs/{JOB}")
    expect(page.locator(".facts")).to_contain_text(trace_id(job_key(JOB)))
    page.goto(f"{console.url}/jobs/{JOB}/plan")
    expect(page.locator("tbody")).to_contain_text(KEY[:32])
    assert page.get_by_role("link", name=KEY[:32]).count() == 0


def test_what_each_call_came_to_is_told_move_by_move_a_page_at_a_time(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    held(gateway)
    told = {"execution_id": "x", "action_type": "tool_call", "status": "failed", "has_effect": "none"}
    moves = [
        {"from": "pending", "to": "running", "trigger": "start", "timestamp": TIME, "actor": "executor"},
        {"from": "running", "to": "failed", "trigger": "fail", "timestamp": TIME, "actor": HOSTILE},
    ]
    first = {**told, "node_id": HOSTILE, "error_message": HOSTILE, "transitions": moves}
    others = [{**told, "node_id": f"n-{at}", "transitions": [], "duplicate_of": None} for at in range(120)]
    gateway.say(f"/jobs/{JOB}/contracts", {"contracts": [first, *others]})
    page = console.opened(browser, f"/jobs/{JOB}")
    page.get_by_role("link", name="What each call came to").click()
    assert f"/jobs/{JOB}/contracts?level=transition" in gateway.queries
    row = page.locator("tbody tr").first
    row.locator("summary").press("Enter")
    expect(row.locator("li")).to_have_count(2)
    expect(row).to_contain_text("fail, running to failed")
    assert serious(page) == []
    assert page.evaluate("window.pwned") is None
    page.get_by_role("link", name="Those behind").click()
    expect(page.locator("tbody tr")).to_have_count(21)
