"""Operations in the console, in a real browser: what runs, what decides, and a freeze, shown before it is ordered."""

import json
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, expect

from tests.testkit.consoles import TIME, RunningConsole, StandInGateway, serious, stand_in_gateway

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

expect.set_options(timeout=30_000)


@pytest.fixture
def gateway() -> Generator[StandInGateway]:
    with stand_in_gateway() as running:
        running.say_operations()
        yield running


def test_every_part_is_shown_and_one_that_may_not_be_seen_says_so(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    del gateway.raw["/audit"]
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/operations")
    for text in ("executor-0", "bank.payout", "until 1 Mar 2026", "too many", "submissions", "there is no such thing"):
        expect(page.locator("main")).to_contain_text(text)
    page.get_by_text("The policy", exact=True).click()
    assert "\\u202e" in page.get_by_label("The policy").inner_text()
    assert serious(page) == []


def test_a_freeze_shows_what_it_holds_before_it_is_ordered(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.listed = [
        {"job_id": f"job-{status}", "status": status, "created_at": TIME, "submitted_by": "agent-7", "tenant": "t"}
        for status in ("running", "completed")
    ]
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/operations")
    page.get_by_label("Name").fill("agent-7")
    page.keyboard.press("Enter")
    page.wait_for_url("**/operations/freeze?scope=agent&name=agent-7")
    assert page.locator("main li").all_inner_texts() == ["job-running running"]
    assert "/jobs?limit=100&agent=agent-7" in gateway.queries
    assert serious(page) == []
    assert gateway.said == []
    page.get_by_label("Reason").fill("it pays twice")
    page.keyboard.press("Enter")
    page.wait_for_url("**/operations")
    page.get_by_role("link", name="Let it go on").click()
    page.get_by_role("button", name="Let it go on").click()
    page.wait_for_url("**/operations")
    assert [json.loads(raw) for _, _, raw in gateway.said] == [
        {"agent": "agent-7", "reason": "it pays twice"},
        {"tool": "bank.payout"},
    ]
    assert [said["path"] for _, said, _ in gateway.said] == ["/freezes", "/freezes/end"]
