"""Jobs are searched in the console, in a real browser: what is asked is in the URL, and can be kept under a name."""

from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, expect

from tests.testkit.consoles import JOB, TIME, RunningConsole, StandInGateway, serious

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(120)]

expect.set_options(timeout=30_000)


def listed(*ids: str) -> list[dict[str, Any]]:
    more = {"status": "running", "created_at": TIME, "submitted_by": "a", "tenant": "t", "labels": {"env": "x\u202e"}}
    return [{"job_id": one, **more} for one in ids]


def asked(gateway: StandInGateway) -> dict[str, list[str]]:
    return parse_qs([one for one in gateway.queries if one.startswith("/search?")][-1].partition("?")[2])


def test_words_and_what_is_in_a_job_are_searched_by_keyboard_and_the_url_says_them(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.listed = listed(JOB)
    page = console.opened(browser, "/jobs")
    assert serious(page) == []
    assert not [one for one in gateway.queries if one.startswith("/search?")], "the list alone is no search"
    page.keyboard.press("/")
    page.keyboard.type('invoice "4711" & <b>')
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=invoice**")
    assert asked(gateway) == {"q": ['invoice "4711" & <b>'], "limit": ["100"]}
    assert page.get_by_label("Search").input_value() == 'invoice "4711" & <b>'
    expect(page.locator("#rows")).to_contain_text("env=x\\u202e")
    page.get_by_text("By what is in them").click()
    page.get_by_label("Tool").fill("bank.payout")
    page.get_by_label("Argument").fill("to.name=M\u00fcller")
    page.get_by_label("Created before").fill("2026-03-02")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**tool=bank.payout**")
    found = asked(gateway)
    assert (found["tool"], found["argument"], found["until"]) == (
        ["bank.payout"],
        ["to.name=M\u00fcller"],
        ["2026-03-02T00:00:00Z"],
    )
    assert serious(page) == []
    page.go_back()
    assert page.get_by_label("Search").input_value() == 'invoice "4711" & <b>'


def test_a_search_follows_by_itself(gateway: StandInGateway, console: RunningConsole, browser: Browser) -> None:
    page = console.opened(browser, "/jobs?q=invoice")
    assert "No such job" in page.locator("#rows").inner_text()
    gateway.listed = listed("job-9")
    expect(page.locator("#rows")).to_contain_text("job-9")


def test_a_search_that_is_refused_says_why_and_keeps_what_was_asked(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.refused["/search"] = "must be PATH=VALUE"
    page = console.opened(browser, "/jobs?argument=nonsense&label=a")
    assert page.get_by_label("Argument").input_value() == "nonsense"
    assert page.get_by_role("alert").inner_text() == "must be PATH=VALUE"
    assert "No such job" not in page.locator("#rows").inner_text()


def test_a_view_is_kept_under_its_name_opened_and_forgotten(console: RunningConsole, browser: Browser) -> None:
    page = console.opened(browser, "/jobs")
    assert page.locator("#views").is_hidden(), "nothing is asked, and nothing kept"
    page.goto(f"{console.url}/jobs?q=invoice&status=failed&agent=")
    page.get_by_label("Name of this view").fill("<b>failed</b> invoices")
    page.keyboard.press("Enter")
    view = page.get_by_role("link", name="<b>failed</b> invoices")
    expect(view).to_be_visible()
    assert serious(page) == []
    page.goto(f"{console.url}/jobs")
    view.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=invoice&status=failed")
    page.get_by_role("button", name="Forget").click()
    expect(view).to_have_count(0)


def test_what_another_page_put_among_the_views_opens_nothing_but_the_list(
    console: RunningConsole, browser: Browser
) -> None:
    page = console.opened(browser, "/jobs")
    page.evaluate("""() => localStorage.setItem("aetheris-views", JSON.stringify([
        {name: "x", query: "javascript:alert(1)"}, {name: 1}, null, {name: "y", query: "//evil.example"},
    ]))""")
    page.reload()
    links = page.locator("#views a").evaluate_all("all => all.map(one => [one.origin, one.pathname])")
    assert links == [[console.url, "/jobs"]] * 2
