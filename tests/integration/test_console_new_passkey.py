"""A passkey made in the console, in a real browser with a virtual authenticator; what is no answer to it makes none."""

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from aetheris.protocol.base.allowed_signers import parse_signers
from tests.testkit.browser import page_with_authenticator
from tests.testkit.consoles import RunningConsole, StandInGateway, serious

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(120)]

expect.set_options(timeout=30_000)


def opened(console: RunningConsole, page: Page, who: str = "bob") -> Page:
    page.goto(console.link(who))
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/inbox")
    page.goto(f"{console.url}/passkey")
    return page


def make(page: Page) -> None:
    page.get_by_role("button", name="Make a passkey").press("Enter")


def test_who_approves_makes_one_by_keyboard_and_is_told_what_an_administrator_must_do(
    console: RunningConsole, browser: Browser
) -> None:
    page = opened(console, page_with_authenticator(browser))
    assert serious(page) == []
    make(page)
    line = page.locator("#line").inner_text()
    (signer,) = parse_signers(f"{line}\n").lines
    assert signer.key.application == b"localhost"
    assert signer.key.fingerprint in page.locator("main").inner_text()
    expect(page.get_by_role("status")).to_contain_text("does not count yet")
    assert serious(page) == []


@pytest.mark.parametrize("change", ["challenge", "again", "other_session", "garbage", "nothing", "sign_of_nobody"])
def test_what_was_not_made_just_now_for_this_page_is_none(
    console: RunningConsole, browser: Browser, change: str
) -> None:
    page = opened(console, page_with_authenticator(browser))
    if change == "challenge":
        page.locator("#make").evaluate("form => { form.dataset.challenge = 'A'.repeat(43); }")
        make(page)
        expect(page.get_by_role("alert").first).to_contain_text("can't be used")
        return
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.post_data or "") if one.method == "POST" else None)
    make(page)
    page.locator("#line").wait_for()
    said = sent[-1]
    if change == "other_session":
        page = opened(console, page_with_authenticator(browser), "carol")
    elif change != "again":
        page.goto(f"{console.url}/passkey")
    assert answered(page, said, change) in (400, 409)


def answered(page: Page, said: str, change: str) -> int:
    """What becomes of what was sent before, or of what nobody made, sent by the page that is open now."""
    csrf = page.locator("form.who [name=csrf]").input_value()
    made: Any = {
        "garbage": "{",
        "nothing": "",
        "sign_of_nobody": json.dumps({"id": "x", "rawId": "x", "type": "public-key", "response": {}}),
    }
    sends = """async ([said, made, csrf]) => {
        const body = new URLSearchParams(said);
        body.set("csrf", csrf);
        if (made !== null) body.set("made", made);
        return (await fetch("/passkey", { method: "POST", body })).status;
    }"""
    return page.evaluate(sends, [said, made.get(change), csrf])


def test_who_was_not_verified_makes_none(console: RunningConsole, browser: Browser) -> None:
    page = opened(console, page_with_authenticator(browser, is_verified=False))
    make(page)
    expect(page.locator("#making")).to_contain_text("Nothing was made")
    assert page.locator("#line").count() == 0


def test_who_approves_nothing_or_can_not_be_named_makes_none(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = opened(console, page_with_authenticator(browser), "ann")
    assert page.get_by_role("button", name="Make a passkey").count() == 0
    gateway.say("/caller", {"id": "bob, carol", "tenant": "default", "kind": "person", "roles": ["approve"]})
    page = opened(console, page_with_authenticator(browser))
    assert page.get_by_role("button", name="Make a passkey").count() == 0
    assert "without spaces" in page.locator("main").inner_text()


def test_without_a_script_the_page_says_where_else_one_is_made(console: RunningConsole, browser: Browser) -> None:
    page = console.signed_in(browser, "bob", java_script_enabled=False)
    page.goto(f"{console.url}/passkey")
    assert "aetheris passkey add" in page.locator("main").inner_text()
    page.get_by_role("button", name="Make a passkey").click()
    expect(page.get_by_role("alert").first).to_contain_text("Nothing was made")
