"""How a job came to its steps, and two jobs compared, in a real browser."""

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.testkit.consoles import JOB, RunningConsole, StandInGateway, serious

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(120)]

expect.set_options(timeout=30_000)


def step(node_id: str, args: dict[str, Any], state: str = "completed", tool: str = "bank.payout") -> dict[str, Any]:
    return {"node_id": node_id, "tool": tool, "state": state, "keys": [{"args": args}]}


def trace(*steps: dict[str, Any], status: str = "completed") -> bytes:
    """As GET /jobs/{id}/trace has it."""
    plans = [
        {"what": "plan", "title": f"revision {at}", "facts": {}, "nodes": [one], "leads_to": []}
        for at, one in enumerate(steps)
    ]
    decided = {
        "what": "decision",
        "title": "pay",
        "facts": {"reasoning_summary": "<b>due</b>\u202e"},
        "leads_to": plans,
    }
    nodes = [{"kind": "tool", "irreversible": True, **one} for one in steps]
    edges = [{"from": "find", "to": "pay", "carries": "result"}]
    root = {"what": "goal", "title": "Pay it", "facts": {}, "leads_to": [decided]}
    said = {"job": {"status": status}, "decisions": root, "graph": {"nodes": nodes, "edges": edges}, "steps": steps}
    return json.dumps(said).encode()


def test_decisions_revisions_and_what_depends_on_what_are_shown(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    find = {"node_id": "find", "tool": "bank.find", "state": "completed"}
    gateway.hold("completed", find, {**find, "node_id": "pay", "depends_on": ["find"]})
    gateway.raw[f"/jobs/{JOB}/trace"] = trace(step("find", {}), step("pay", {"amount": 1}))
    page = console.opened(browser, f"/jobs/{JOB}")
    page.get_by_role("link", name="How it came to its steps").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{JOB}/plan")
    assert serious(page) == []
    tree = page.locator(".tree").first.inner_text()
    assert "<b>due</b>\\u202e" in tree
    assert tree.index("revision 0") < tree.index("+ find") < tree.index("revision 1") < tree.index("+ pay")
    assert "find (its result)" in page.locator("#step-pay").inner_text()


def test_two_jobs_are_compared_step_by_step_exactly(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold("completed")
    gateway.raw[f"/jobs/{JOB}/trace"] = trace(
        step("find", {}), step("pay", {"amount": 9007199254740993, "to": "a", "n": 1})
    )
    other = trace(
        step("find", {}), step("pay", {"amount": 9007199254740992, "to": "a", "n": "1"}, "failed"), step("x", {})
    )
    gateway.raw["/jobs/job-2/trace"] = other
    page = console.opened(browser, f"/jobs/{JOB}/compare")
    page.get_by_label("The other job's id").fill("job-2")
    page.keyboard.press("Enter")
    page.wait_for_url("**compare?with=job-2")
    assert serious(page) == []
    rows = [" ".join(text.split()) for text in page.locator("tbody tr").all_inner_texts()]
    assert rows == [
        "find the same",
        "pay state completed failed",
        "pay args.amount 9007199254740993 9007199254740992",
        'pay args.n 1 "1"',
        "x the step itself (not there) bank.payout",
    ]
    page.get_by_label("The other job's id").fill("nobody")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not here")
