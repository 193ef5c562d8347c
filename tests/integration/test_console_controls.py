"""Pausing, cancelling and undoing in the console, in a browser: what will happen is told before it is sent."""

from collections.abc import Generator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.testkit.consoles import JOB, TIME, RunningConsole, StandInGateway, serious, stand_in_gateway

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

expect.set_options(timeout=30_000)

STEPS: tuple[dict[str, Any], ...] = (
    {"node_id": "find", "tool": "invoices.find", "state": "completed", "attempts": 1, "effect": "none"},
    {
        "node_id": "pay",
        "tool": "bank.<b>payout</b>",
        "state": "completed",
        "effect": "confirmed",
        "external_id": "re_1",
    },
    {"node_id": "send", "tool": "mail.send", "state": "running", "attempts": 1},
    {"node_id": "lost", "tool": "bank.payout", "state": "waiting", "attempts": 2, "execution_id": "x"},
    {"node_id": "ask", "tool": "bank.payout", "state": "waiting", "request_id": "r-1"},
    {"node_id": "later", "tool": "mail.send", "state": "pending"},
)


def effect(node: str, standing: str, **more: Any) -> dict[str, Any]:
    return {"node_id": node, "tool": "bank.payout", "at": TIME, "external_id": "re_1", "standing": standing, **more}


def undo_job(job_id: str, *effects: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "status": "completed", "submitted_by": "agent-7", "effects": list(effects), **more}


@pytest.fixture
def gateway() -> Generator[StandInGateway]:
    with stand_in_gateway() as running:
        running.say_operations()
        running.hold("running", *STEPS)
        yield running


def test_a_cancel_says_what_becomes_of_each_step_before_it_is_sent_by_keyboard(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/jobs/{JOB}")
    page.get_by_role("link", name="Cancel…").press("Enter")
    page.wait_for_url(f"**/jobs/{JOB}/control/cancel")
    assert serious(page) == []
    text = page.locator("main").inner_text()
    order = [
        "Has started (1)",
        "send:",
        "In doubt",
        "failed, not sure, in your name",
        "lost:",
        "ask:",
        "later:",
        "pay:",
    ]
    assert [text.index(one) for one in order] == sorted(text.index(one) for one in order)
    assert "bank.<b>payout</b>" in text
    assert gateway.said == []
    box = page.get_by_role("checkbox", name="Undo what took effect")
    assert not box.is_checked()
    box.press("Space")
    page.get_by_label("Reason").press("a")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{JOB}")
    assert [(who, said) for who, said, _ in gateway.said] == [
        ("bob", {"path": f"/jobs/{JOB}/cancel", "reason": "a", "compensate": True})
    ]


def test_a_pause_and_its_end_without_a_script(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = console.signed_in(browser, "bob", java_script_enabled=False)
    page.goto(f"{console.url}/jobs/{JOB}/control/pause")
    expect(page.locator("main")).to_contain_text("It may be answered; what follows starts when the job is resumed.")
    assert page.get_by_role("checkbox").count() == 0
    page.get_by_role("button", name="Pause it").click()
    gateway.hold("paused", *STEPS)
    page.goto(f"{console.url}/jobs/{JOB}")
    page.get_by_role("link", name="Resume…").click()
    gateway.refused_posts[f"/jobs/{JOB}/resume"] = "the job is not paused"
    page.get_by_role("button", name="Resume it").click()
    expect(page.get_by_role("alert")).to_contain_text("the job is not paused")
    assert [said["path"] for _, said, _ in gateway.said] == [f"/jobs/{JOB}/pause"]


def test_of_a_job_that_has_ended_there_is_nothing_to_cancel(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold("completed", *STEPS[:2])
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/jobs/{JOB}/control/cancel")
    expect(page.locator("main")).to_contain_text("there is nothing to cancel")
    assert page.get_by_role("button", name="Cancel it").count() == 0


def test_an_undo_shows_each_effect_and_sends_what_was_chosen_as_it_was_meant(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    done = effect("one", "undoable", undo_tool="bank.return")
    gone = effect("two", "not_undoable", why="its step declares <i>nothing</i>")
    jobs = [undo_job("job-a", done, gone), undo_job("job-b", effect("one", "undone", job_id="job-u"))]
    gateway.say("/undo", {"jobs": jobs, "cursor": None})
    gateway.answers["/jobs/job-a/undo"] = {"job_id": "undo-of-a", "status": "submitted"}
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/operations/undo")
    page.get_by_label("Agent").fill("agent-7")
    page.keyboard.press("Enter")
    page.wait_for_url("**/operations/undo?agent=agent-7**")
    assert serious(page) == []
    for text in ("by bank.return", "its step declares <i>nothing</i>", "is undone", "Nothing of it can be undone now"):
        expect(page.locator("main")).to_contain_text(text)
    assert gateway.said == []
    boxes = page.get_by_role("checkbox")
    assert (boxes.count(), boxes.first.is_checked()) == (1, False)
    (asked,) = [one for one in gateway.queries if one.startswith("/undo?")]
    boxes.first.press("Space")
    page.get_by_role("button", name="Undo what is chosen").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("is undone by undo-of-a")
    ((who, said, _),) = gateway.said
    assert (who, said["path"]) == ("bob", "/jobs/job-a/undo")
    assert said["since"].split("+")[0].replace(":", "%3A") in asked  # the time that was shown, not one later
    assert "tool" not in said


def test_an_undo_that_is_refused_says_why_and_keeps_no_other_back(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    jobs = [undo_job(name, effect("one", "undoable", undo_tool="bank.return")) for name in ("job-a", "job-b")]
    gateway.say("/undo", {"jobs": jobs, "cursor": "more"})
    gateway.refused_posts["/jobs/job-a/undo"] = "the job lives"
    gateway.answers["/jobs/job-b/undo"] = {"job_id": "undo-of-b", "status": "submitted"}
    page = console.signed_in(browser, "bob", java_script_enabled=False)
    page.goto(f"{console.url}/operations/undo?tool=bank.payout&age=1d")
    expect(page.get_by_role("link", name="Earlier jobs")).to_be_visible()
    page.get_by_role("button", name="Undo what is chosen").click()
    expect(page.locator("main")).to_contain_text("Choose the jobs that you mean")
    page.go_back()
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Undo what is chosen").click()
    expect(page.get_by_role("status")).to_contain_text("job-a: refused: the job lives")
    expect(page.get_by_role("status")).to_contain_text("is undone by undo-of-b")
