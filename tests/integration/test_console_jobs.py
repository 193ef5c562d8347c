"""Jobs in the console, in a real browser: the list, a job and its timeline, what a parked step became, a proof."""

import json
import re

import pytest
from playwright.sync_api import Browser, expect

from tests.testkit.consoles import (
    JOB,
    TIME,
    RunningConsole,
    StandInGateway,
    painted_ms,
    serious,
    slowest_ms,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PARKED = {
    "node_id": "pay",
    "tool": "bank.payout",
    "state": "waiting",
    "attempts": 2,
    "effect": "possible",
    "execution_id": "x-1",
    "external_id": "aetheris:job-1:pay:0",
}

expect.set_options(timeout=30_000)


def test_the_list_is_filtered_by_its_url_and_walked_by_keyboard(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold()
    gateway.listed = [
        {"job_id": one, "status": "running", "created_at": TIME, "submitted_by": "agent\u202e7", "tenant": "default"}
        for one in (JOB, "job-2")
    ]
    page = console.opened(browser, "/jobs?status=running&agent=agent-7&since=2026-03-01")
    assert serious(page) == []
    assert "/jobs?status=running&agent=agent-7&since=2026-03-01T00%3A00%3A00Z&limit=100" in gateway.queries
    assert page.get_by_label("Status").input_value() == "running"
    assert "agent\\u202e7" in page.locator("table").inner_text()
    page.get_by_label("Status").select_option("failed")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("status=failed&agent=agent-7&label=&since=2026-03-01"))
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{JOB}")


def test_a_list_that_is_open_follows(gateway: StandInGateway, console: RunningConsole, browser: Browser) -> None:
    page = console.opened(browser, "/jobs")
    assert "No such job" in page.locator("#rows").inner_text()
    gateway.listed = [{"job_id": JOB, "status": "waiting", "created_at": TIME, "submitted_by": "a", "tenant": "t"}]
    expect(page.locator("#rows")).to_contain_text(JOB)


def test_a_job_leads_to_those_that_it_has_begun_and_to_the_one_that_began_it(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    children = [
        {
            "job_id": "child-1",
            "node_id": "n",
            "workflow": "ship\u202e",
            "status": "completed",
            "continued_as": "child-2",
        },
        {"job_id": "child-3", "node_id": "m", "workflow": "ship", "detached": True},
    ]
    gateway.hold("running", begun={"job_id": "parent", "node_id": "w.a"}, children=children, continued_as="next")
    page = console.opened(browser, f"/jobs/{JOB}")
    assert serious(page) == []
    linked = ["parent", "next", "child-1", "child-2", "child-3"]
    assert [page.locator(f'#state a[href="/jobs/{one}"]').inner_text() for one in linked] == linked
    assert "\u202e" not in page.locator("#state").inner_text()


def test_a_parked_step_is_settled_by_keyboard_with_its_evidence(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold("waiting", PARKED, why="nobody knows whether pay took effect: look, then say so")
    page = console.opened(browser, f"/jobs/{JOB}")
    assert serious(page) == []
    assert "nobody knows whether pay took effect" in page.locator("#state").inner_text()
    page.get_by_role("radio", name="It happened").focus()
    page.keyboard.press("Space")
    page.get_by_label("How you know").fill("the bank's statement, line 7")
    page.get_by_label("Its result, as JSON").fill('{"paid": 9007199254740991, "fee": 1.10}')
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{JOB}")
    expect(page.locator(".parked")).to_be_visible()
    (who, said, raw) = gateway.said[0]
    assert (who, said["path"]) == ("bob", f"/jobs/{JOB}/contracts/x-1/resolve")
    assert (said["verdict"], said["evidence"]) == ("happened", "the bank's statement, line 7")
    assert b'"fee": 1.10' in raw
    page.get_by_role("radio", name="It happened").check()
    page.get_by_label("How you know").fill("x")
    page.get_by_label("Its result, as JSON").fill("{no json")
    page.get_by_role("button", name="Settle it").click()
    expect(page.get_by_role("alert")).to_contain_text("is no JSON")
    assert len(gateway.said) == 1


def test_a_parked_step_shows_what_is_known_of_it_and_what_each_way_means(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold("waiting", PARKED)
    gateway.tell("tool_invocation_started", node_id="other", worker_id="executor-9")
    gateway.tell("tool_invocation_started", node_id="pay", worker_id="executor-0")
    gateway.tell(
        "invocation_in_doubt", node_id="pay", error_class="timeout", evidence=[{"why": "<script>\u202e", "n": 1}]
    )
    gateway.tell("invocation_probed", node_id="pay", answer="unknown", ask="a1")
    gateway.tell("invocation_parked", node_id="pay", reason="no probe")
    gateway.story[-2]["void"] = True
    page = console.opened(browser, f"/jobs/{JOB}")
    known = page.locator("section.parked div.evidence")
    expect(known.locator("li")).to_have_count(3)
    assert "executor-9" not in known.inner_text()
    known.get_by_text("its evidence").click()
    assert "<script>\\u202e" in known.locator("pre").inner_text()
    assert "is not made again" in page.locator(".parked form").first.inner_text()
    assert page.get_by_role("button", name="Accept this code").count() == 0
    assert serious(page) == []


def test_a_workflow_that_parted_from_what_it_did_may_have_its_code_accepted(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold("waiting", PARKED)
    code = "ab" * 32
    said = {"unasked": ["pay-1"], "held": ["pay-2"], "changed": None, "code": {"hash": code}}
    gateway.tell("invocation_in_doubt", node_id="pay", error_class="diverged", evidence=[said])
    gateway.tell("invocation_parked", node_id="pay", reason="diverged", evidence=[said])
    page = console.opened(browser, f"/jobs/{JOB}")
    note = page.get_by_role("note")
    expect(note).to_contain_text("not asked for any more: pay-1")
    expect(note).to_contain_text("Asked for instead, and not made: pay-2")
    assert serious(page) == []
    page.get_by_label("How you know that it may").fill("reviewed the change")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{JOB}")
    expect(page.get_by_role("note")).to_be_visible()
    (_, sent, _) = gateway.said[0]
    assert (sent["verdict"], sent["accept_code"], sent["evidence"]) == ("retry", code, "reviewed the change")


def test_events_come_into_an_open_page_and_each_is_shown_exactly(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold("running")
    gateway.tell("job_created")
    gateway.tell("tool_invocation_started", node_id="pay", worker_id="</span><script>window.pwned=1</script>\u202e")
    page = console.opened(browser, f"/jobs/{JOB}")
    expect(page.locator("#timeline a")).to_have_count(2)
    gateway.hold("completed")
    gateway.tell("job_completed", result={"amount": 1.5})
    expect(page.locator("#timeline a")).to_have_count(3)
    expect(page.locator("#state")).to_contain_text("completed")
    assert page.evaluate("window.pwned") is None
    assert "\\u202e" in page.locator("#timeline").inner_text()
    assert serious(page) == []
    page.locator("#timeline a").nth(2).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{JOB}/events/3")
    assert json.loads(page.get_by_label("The event").inner_text()) == gateway.story[2]
    assert serious(page) == []


@pytest.mark.nightly  # figures, which a busy machine spoils
def test_forty_thousand_events_scroll_and_are_painted_at_once(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    """Beside a plain page of the same console, since this machine may be busy."""
    gateway.hold("running")
    for number in range(40_000):
        gateway.tell("tool_invocation_started", node_id=f"step-{number}", worker_id="executor-0")
    page = console.opened(browser, "/jobs")
    plain_ms = painted_ms(page)
    page.goto(f"{console.url}/jobs/{JOB}")
    expect(page.locator("#timeline a").first).to_be_visible()
    job_ms = painted_ms(page)
    assert job_ms < 1000 or job_ms < 2 * plain_ms, (job_ms, plain_ms)
    box = page.locator("#timeline")
    for rows in range(2_000, 40_001, 2_000):
        page.wait_for_function(
            """least => {
                const box = document.getElementById("timeline");
                box.scrollTop = box.scrollHeight;
                return box.firstChild.offsetHeight >= least * 28;
            }""",
            arg=rows,
            polling=50,
        )
        assert box.locator("a").count() < 80, "only what is in sight is in the page"
    expect(page.locator("#timeline-said")).to_have_text("40000 events")
    slow_ms = min(slowest_ms(page, "timeline") for _ in range(3))  # what else the machine does only adds to it
    page.goto(f"{console.url}/jobs")
    page.evaluate("""() => {
        const box = document.createElement("div"), inner = document.createElement("div");
        box.id = "plain";
        box.style.cssText = "height: 500px; overflow: auto";
        inner.style.height = "1120000px";
        box.append(inner);
        document.body.append(box);
    }""")
    plain_ms = slowest_ms(page, "plain")
    assert slow_ms <= 100 or slow_ms <= 3 * plain_ms, (slow_ms, plain_ms)


def test_a_job_is_verified_in_place_and_its_evidence_taken_along(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold("completed")
    gateway.raw[f"/jobs/{JOB}/verify"] = b'{"ok": true, "ended": true, "seal": {"root": "r"}, "violations": []}'
    gateway.raw[f"/jobs/{JOB}/evidence"] = b"PK-bundle"
    gateway.raw[f"/jobs/{JOB}/effects"] = b'{"effects": [{"command_id": "pay", "tool_name": "t", "amount": 1.10}]}'
    page = console.opened(browser, f"/jobs/{JOB}")
    page.get_by_role("button", name="Verify it now").click()
    expect(page.locator("#proof")).to_contain_text("Every rule holds.")
    page.get_by_text("show", exact=True).click()
    assert '"amount": 1.10' in page.get_by_label("The effect").inner_text()
    gateway.raw[f"/jobs/{JOB}/verify"] = b'{"ok": false, "ended": true, "violations": [{"rule": "double_success"}]}'
    page.get_by_role("button", name="Verify it now").click()
    expect(page.locator("#proof")).to_contain_text("1 rule is broken.")
    assert serious(page) == []
    with page.expect_download() as taken:
        page.get_by_role("link", name="Export the evidence").click()
    assert taken.value.suggested_filename == f"{JOB}.zip"
    assert taken.value.path().read_bytes() == b"PK-bundle"


def test_a_job_that_is_not_there_is_told(console: RunningConsole, browser: Browser) -> None:
    page = console.opened(browser, "/jobs/nobody")
    assert page.get_by_role("heading", level=1).inner_text() == "Not here"
