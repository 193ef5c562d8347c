"""Operations in the console, in a real browser: what runs, what decides, and a freeze, shown before it is ordered."""

import json
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, expect

from tests.operations_pictures import OTHER_POLICY, say_policies
from tests.testkit.consoles import TIME, RunningConsole, StandInGateway, serious, stand_in_gateway

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(120)]

expect.set_options(timeout=30_000)


HEALTH = (
    "lost <b>for good</b>",
    "3 in aetheris.tools.grants.v1.dlq",
    "<i>0.1.0</i>",
    "nobody is there",
    "bank.payout@1.2",
)


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
    for text in (
        "executor-0",
        "bank.payout",
        "until 1 Mar 2026",
        "too many",
        "submissions",
        "there is no such thing",
        *HEALTH,
    ):
        expect(page.locator("main")).to_contain_text(text)
    row = page.get_by_role("region", name="Jobs that stand still").locator("tbody tr").first
    assert row.locator("td.number").all_inner_texts() == ["", "1"]
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


def test_a_policy_is_tried_compared_and_activated_in_the_place_of_the_one_that_was_shown(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    say_policies(gateway)
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/operations/policy")
    assert serious(page) == []
    page.get_by_label("The whole policy").fill(OTHER_POLICY)
    page.get_by_role("button", name="Show what it changes").click()
    page.wait_for_url("**/preview")
    assert serious(page) == []
    expect(page.locator("main")).to_contain_text("3 of 112 calls, in 48 jobs of your tenant")
    assert 'when = "args.amount > 250"' in page.locator(".added").all_inner_texts()[0]
    assert page.locator(".added mark").inner_text() == "b\u043eb"
    page.get_by_role("button", name="Look further back").click()
    expect(page.locator("main")).to_contain_text("Further back, 3 of 112 calls")
    page.get_by_label("Reason").fill("less")
    page.get_by_role("button", name="Let it decide").click()
    page.wait_for_url("**/operations/policy")
    tried, further, activated = (said for _, said, _ in gateway.said)
    assert (tried["policy"], "cursor" in tried, further["cursor"]) == (OTHER_POLICY, False, "further")
    assert activated == {"path": "/policies", "policy": OTHER_POLICY, "instead_of": 2, "reason": "less"}
