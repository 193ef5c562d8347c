"""Dead letters in the console, in a real browser: why, the bytes as they are, and a redrive, by keyboard alone."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, expect

from tests.testkit.consoles import DEAD_LETTERS, RunningConsole, StandInGateway, serious, stand_in_gateway

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(120)]

expect.set_options(timeout=30_000)

COMMAND, GRANT = (one for one, _ in DEAD_LETTERS)
PATHS = [f"{one['topic']}/{one['partition']}/{one['offset']}" for one in (COMMAND, GRANT)]


@pytest.fixture
def gateway() -> Generator[StandInGateway]:
    with stand_in_gateway() as running:
        running.say_operations()
        yield running


def test_a_letter_is_found_read_and_redriven_by_keyboard(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/operations")
    page.get_by_role("link", name="Why, and redriving them").press("Enter")
    page.wait_for_url("**/operations/dead-letters")
    assert serious(page) == []
    expect(page.locator("main")).to_contain_text("Cancel: <b>payload</b> is invalid")
    expect(page.locator("main")).to_contain_text("not needed")
    page.get_by_role("link", name=PATHS[0]).press("Enter")
    page.wait_for_url(f"**/{PATHS[0]}")
    assert serious(page) == []
    dump = page.get_by_role("heading", name="Its bytes").locator("xpath=following-sibling::pre").inner_text()
    assert dump.splitlines()[0] == '000000  7b 22 72 65 61 73 6f 6e  22 3a 20 22 3c 73 63 72  {"reason": "<scr'
    assert "ff 00" in dump
    assert gateway.said == []
    reason = page.get_by_label("Reason")
    reason.focus()
    page.keyboard.type("upgraded")
    gateway.say(
        f"/dead-letters/{PATHS[0]}",
        {**COMMAND, **DEAD_LETTERS[0][1], "redriven_at": COMMAND["at"], "redriven_by": "bob"},
    )
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("by bob")
    assert page.get_by_role("button", name="Redrive it").count() == 0
    assert [(who, said) for who, said, _ in gateway.said] == [
        ("bob", {"path": f"/dead-letters/{PATHS[0]}/redrive", "reason": "upgraded"})
    ]


def test_what_is_not_redriven_says_why_and_has_no_button(console: RunningConsole, browser: Browser) -> None:
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/operations/dead-letters/{PATHS[1]}")
    expect(page.locator("main")).to_contain_text("says it again by itself")
    assert page.get_by_role("button", name="Redrive it").count() == 0
    with page.expect_download() as download:
        page.get_by_role("link", name="Its bytes, as a file").click()
    assert download.value.path().read_bytes().endswith(b"\xff\x00")


def test_without_a_script_and_refused_it_says_why(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = console.signed_in(browser, "bob", java_script_enabled=False)
    page.goto(f"{console.url}/operations/dead-letters/{PATHS[0]}")
    gateway.refused_posts[f"/dead-letters/{PATHS[0]}/redrive"] = "this version can't decode it either"
    page.get_by_label("Reason").fill("upgraded")
    page.get_by_role("button", name="Redrive it").click()
    expect(page.get_by_role("alert")).to_contain_text("can't decode it either")
