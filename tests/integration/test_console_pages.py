"""The console in a real browser, before a stand-in for the gateway: what is shown is what is sent."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.testkit.consoles import RunningConsole, StandInGateway, console_at, serious
from tests.testkit.tokens import token_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

expect.set_options(timeout=30_000)

HOSTILE = {
    "to": "p\u0430yroll@example.com",
    "file": "invoice\u202efdp.exe",
    "html": "</pre><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>",
    "attribute": '"\' onfocus="window.pwned = 3" autofocus \u200b {{ 7 * 7 }}',
}


def opened(console: RunningConsole, browser: Browser, id_: str, who: str = "bob", **options: Any) -> Page:
    page = console.signed_in(browser, who, **options)
    page.goto(f"{console.url}/inbox/{id_}")
    return page


def test_a_call_is_approved_by_keyboard_alone(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    first, second = gateway.ask(), gateway.ask("refund", {"amount": 1})
    page = console.signed_in(browser, "bob")
    assert serious(page) == []
    page.keyboard.press("j")
    page.wait_for_url(f"**/inbox/{first}")
    page.keyboard.press("j")
    page.wait_for_url(f"**/inbox/{second}")
    page.keyboard.press("k")
    page.wait_for_url(f"**/inbox/{first}")
    assert serious(page) == []
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Approve")).to_be_focused()
    assert gateway.said == [], "the key alone decides nothing"
    page.keyboard.press("Enter")
    expect(page.locator(".outcome")).to_contain_text("Approved by bob")
    assert [(who, said) for who, said, _ in gateway.said] == [("bob", {"request_id": first, "action": "approve"})]
    expect(page.locator("#list li")).to_have_count(1)


def test_a_call_is_rejected_with_a_comment(gateway: StandInGateway, console: RunningConsole, browser: Browser) -> None:
    page = opened(console, browser, gateway.ask())
    page.get_by_label("Comment").first.fill("not this month")
    page.keyboard.press("Escape")
    page.keyboard.press("r")
    page.keyboard.press("Enter")
    expect(page.locator(".outcome")).to_contain_text("Rejected by bob")
    assert gateway.said[0][1]["comment"] == "not this month"


@pytest.mark.parametrize(("button", "outcome"), [("Approve", "Approved by bob"), ("Reject", "Rejected by bob")])
def test_it_works_without_a_script(
    gateway: StandInGateway, console: RunningConsole, browser: Browser, button: str, outcome: str
) -> None:
    page = opened(console, browser, gateway.ask(), java_script_enabled=False)
    page.get_by_role("button", name=button).click()
    assert outcome in page.locator(".outcome").inner_text()


def test_hostile_arguments_are_shown_as_they_are(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    id_ = gateway.ask("mail", HOSTILE, tool="mail.send", fields=[
        {"name": name, "type": "text", "label": name, "default": text} for name, text in HOSTILE.items()
    ])  # fmt: skip
    gateway.requests[id_]["request"]["title"] = HOSTILE["html"]
    gateway.requests[id_]["request"]["context"]["submitted_by"] = HOSTILE["attribute"]
    page = opened(console, browser, id_)
    text = page.locator("#arguments").inner_text()
    assert json.loads(text) == HOSTILE
    assert "\\u202e" in text
    assert "\u202e" not in page.locator("main").inner_text()
    assert page.locator("#arguments mark.mixed").inner_text() == "p\u0430yroll"
    assert page.locator("#arguments mark.unseen").count() == 2
    expect(page.get_by_text("Letters of other scripts are in it: Cyrillic")).to_be_visible()
    assert page.evaluate("window.pwned") is None
    assert page.locator("main script, main img, main iframe").count() == 0
    page.keyboard.press("e")
    assert page.get_by_label("file", exact=True).input_value() == HOSTILE["file"], "an edit begins at what is there"
    assert page.evaluate("window.pwned") is None


def test_numbers_keep_their_digits_and_what_no_call_can_have_is_not_approved(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    id_ = gateway.ask(fields=[])
    gateway.raw[id_] = json.dumps(gateway.requests[id_]).replace("12.5", "9007199254740993").encode()
    page = opened(console, browser, id_)
    assert '"amount": 9007199254740993' in page.locator("#arguments").inner_text()
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    expect(page.get_by_role("alert")).to_contain_text("not the arguments that the request is about")
    page.locator("#approve").evaluate("one => one.disabled = false")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("alert").first).to_contain_text("nothing was sent")
    assert gateway.said == []


def test_a_megabyte_is_shown_whole(gateway: StandInGateway, console: RunningConsole, browser: Browser) -> None:
    long = "x" * 999_999 + "!"
    page = opened(console, browser, gateway.ask(args={"text": long}))
    assert json.loads(page.locator("#arguments").text_content() or "") == {"text": long}
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".outcome")).to_contain_text("Approved by bob")


def test_what_changed_since_somebody_looked_is_told_before_a_press_counts(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    id_ = gateway.ask(votes={"given": [], "needed": 2})
    page = opened(console, browser, id_)
    gateway.requests[id_]["votes"] = {"given": ["carol"], "needed": 2}
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("alert").first).to_contain_text("changed since you looked: nothing was sent")
    assert gateway.said == []
    assert "1 of 2: carol" in page.locator(".facts").inner_text()
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".outcome")).to_contain_text("Approved by bob")


def test_of_two_approvers_one_is_told_that_the_other_was_first(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    id_ = gateway.ask()
    bob, carol = opened(console, browser, id_), opened(console, browser, id_, "carol")
    bob.get_by_role("button", name="Reject").click()
    expect(bob.locator(".outcome")).to_contain_text("Rejected by bob")
    expect(carol.get_by_role("alert")).to_contain_text("Changed since you looked: it is rejected, by bob")
    carol.get_by_role("button", name="Approve").click()
    expect(carol.locator(".outcome")).to_contain_text("Rejected by bob")
    assert len(gateway.said) == 1


def test_an_edit_is_shown_before_it_is_sent_and_makes_a_request_of_its_own(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    id_ = gateway.ask()
    page = opened(console, browser, id_)
    page.keyboard.press("e")
    expect(page.get_by_label("Amount")).to_be_focused()
    page.get_by_label("Amount").fill("7.10")
    page.get_by_role("button", name="Show what changes").click()
    assert page.locator("pre.was").all_inner_texts() == ["12.5"]
    assert page.locator("pre.now").all_inner_texts() == ["7.10"]
    assert serious(page) == []
    assert gateway.said == []
    page.get_by_role("button", name="Send this edit").click()
    expect(page.get_by_role("status")).to_contain_text("needs its own approval")
    (_, said, raw) = gateway.said[0]
    assert (said["request_id"], said["action"]) == (id_, "edit")
    assert b'"data": {"amount": 7.10}' in raw, "as it was typed"
    assert "Edited by" in page.locator(".facts").inner_text()
    assert f"/inbox/{id_}" not in page.url


def test_an_edit_that_is_no_number_is_refused_where_it_stands(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = opened(console, browser, gateway.ask())
    page.keyboard.press("e")
    page.get_by_label("Amount").fill("7,10")
    page.get_by_role("button", name="Show what changes").click()
    expect(page.get_by_role("alert")).to_contain_text("amount: must be a number")
    assert page.get_by_label("Amount").input_value() == "7,10", "what was typed is kept"
    assert gateway.said == []


def test_a_form_of_a_plan_is_answered(gateway: StandInGateway, console: RunningConsole, browser: Browser) -> None:
    id_ = gateway.ask_form(
        {"name": "amount", "type": "number", "label": "Amount", "required": True, "min": 1, "max": 5000},
        {"name": "way", "type": "radio", "label": "Way", "options": [{"value": "card", "label": "Card"}]},
        {"name": "tags", "type": "multiselect", "label": "Tags", "options": [{"value": 1, "label": "One"}]},
    )
    page = opened(console, browser, id_)
    assert serious(page) == []
    page.get_by_label("Amount").fill("20")
    page.get_by_label("Way").select_option(label="Card")
    page.get_by_label("One").check()
    page.get_by_role("button", name="Answer").click()
    expect(page.locator(".outcome")).to_be_visible()
    assert gateway.said[0][1] == {
        "request_id": id_,
        "action": "approve",
        "data": {"amount": 20, "way": "card", "tags": [1]},
    }


def test_who_may_not_approve_is_shown_no_button(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = opened(console, browser, gateway.ask(), "ann")
    assert page.locator("main button").count() == 0
    assert "needs the role approve" in page.locator("main").inner_text()


def test_an_ended_session_sends_nothing_and_says_so(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = opened(console, browser, gateway.ask())
    del gateway.people[token_of("bob")]
    expect(page.locator("#news")).to_contain_text("Your session has ended")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")
    assert gateway.said == []


def test_behind_a_sign_out_the_back_button_shows_nothing(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = opened(console, browser, gateway.ask())
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    page.go_back()
    page.wait_for_url("**/sign-in**")
    assert page.locator("#arguments").count() == 0


def test_the_back_button_behind_an_answer_shows_what_has_become_of_it(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    page = opened(console, browser, gateway.ask())
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".outcome")).to_contain_text("Approved by bob")
    page.go_back()
    expect(page.locator("body")).to_contain_text("Approved by bob")
    assert len(gateway.said) == 1


def test_a_console_that_starts_anew_beneath_an_open_page_loses_nothing_but_the_session(
    gateway: StandInGateway, tmp_path: Path, browser: Browser
) -> None:
    console, id_ = console_at(tmp_path, gateway.url), gateway.ask()
    with console.up():
        page = opened(console, browser, id_)
    with console.up():
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("status")).to_contain_text("Your session has ended")
        assert gateway.said == []
        page.goto(console.link("bob"))
        page.get_by_role("button", name="Sign in").click()
        page.goto(f"{console.url}/inbox/{id_}")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator(".outcome")).to_contain_text("Approved by bob")


def test_a_gateway_that_is_away_is_told(gateway: StandInGateway, console: RunningConsole, browser: Browser) -> None:
    page = opened(console, browser, gateway.ask())
    gateway.away = True
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading")).to_contain_text("The gateway does not answer")
    gateway.away = False
    page.go_back()
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".outcome")).to_contain_text("Approved by bob")


def test_a_link_signs_in_once_and_fetching_it_uses_nothing_up(console: RunningConsole, browser: Browser) -> None:
    link = console.link("bob")
    assert httpx.get(link, trust_env=False).status_code == 200
    page = console.watched(browser.new_context())
    page.goto(link)
    assert page.get_by_role("heading").inner_text() == "Sign in as bob?"
    assert serious(page) == []
    page.keyboard.press("Enter")
    page.wait_for_url("**/inbox")
    other = console.watched(browser.new_context())
    other.goto(link)
    assert "was used" in other.locator("main").inner_text()
    assert token_of("bob") not in link


def test_no_other_page_sends_a_form_or_shows_the_console(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    id_ = gateway.ask()
    page = opened(console, browser, id_)
    cookies: list[Any] = [*page.context.cookies()]
    [cookie] = cookies
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
    seen = page.locator("#answer [name=seen]").input_value()
    csrf = page.locator("#answer [name=csrf]").input_value()
    body = {"action": "approve", "seen": seen, "csrf": csrf}
    own = {"origin": console.url, "sec-fetch-site": "same-origin"}
    with httpx.Client(cookies={cookie["name"]: cookie["value"]}, trust_env=False) as http:
        at = f"{console.url}/inbox/{id_}"
        for headers in (
            {},
            {"origin": "https://evil.example"},
            {"origin": "null"},
            own | {"sec-fetch-site": "same-site"},
            {"origin": "http://localhost:1"},
        ):
            assert http.post(at, data=body, headers=headers).status_code == 403, headers
        for given in (body | {"csrf": "x"}, body | {"csrf": ""}, {"action": "approve", "seen": seen}):
            assert http.post(at, data=given, headers=own).status_code == 403
        assert http.get(at, headers={"host": "evil.example"}).status_code == 421
        assert http.post(f"{console.url}/sign-in/links", headers=own).status_code == 403, "links are for programs"
        shown = http.get(at)
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert shown.headers["cache-control"] == "no-store"
    assert gateway.said == []


def test_what_browsers_are_given_of_script_is_small() -> None:
    import gzip

    from tests.testkit.system import REPOSITORY

    scripts = (REPOSITORY / "services/console/src/aetheris/console/static").rglob("*.js")
    assert sum(len(gzip.compress(path.read_bytes())) for path in scripts) <= 60 * 1024
