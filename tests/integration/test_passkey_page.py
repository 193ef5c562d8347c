"""The page that asks a passkey, in a real browser: what is signed is shown as it is, and nothing of it is markup."""

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from aetheris.cli import passkey_signatures
from aetheris.cli.page import passkey_page
from aetheris.cli.page_server import PersonalPage, served
from aetheris.cli.passkey_signatures import KnownPasskey
from aetheris.console.core.passkey_answers import OwnPasskey
from aetheris.protocol.base.sshsig import read_key
from tests.testkit.passkeys import Passkey

KEY = Passkey(1)
HOSTILE = (
    "</pre><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    '"\' onclick="window.pwned = 3" {{ 7 * 7 }} ${8 * 8} &lt;b&gt; \\u202e'
)
SEEN = "\u202eevil\u2066\u200b\x00\x07\x7f\x85\u2028\ufeff\U000e0041\r\n\t"
RIGHT_TO_LEFT = "\u05d0\u05d1 1000 \u05d2\u05d3 2"


def opened(browser: Browser, arguments: Any, asked: list[str]) -> Page:
    """The page on which somebody would sign."""
    asks: list[Any] = []

    def page_of(page: PersonalPage, *, opens: bool) -> str:
        asks.append(page)
        return "" if opens else "by nobody"

    own = [KnownPasskey("bob", OwnPasskey(read_key(KEY.key), "AA"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passkey_signatures, "answer", page_of)
        passkey_signatures.signed(b'aetheris approval 1\nrule: "\xe2\x80\xaex"\n', arguments, own, opens=False)
    shown = browser.new_page()
    shown.on("request", lambda request: asked.append(request.url))
    with served(asks[0]) as page:
        shown.goto(page.url)
    return shown


def test_hostile_arguments_are_shown_as_they_are(browser: Browser) -> None:
    asked: list[str] = []
    arguments = {HOSTILE: HOSTILE, "seen": SEEN, "rtl": RIGHT_TO_LEFT}
    page = opened(browser, arguments, asked)
    text = page.locator("pre").first.inner_text()
    assert json.loads(text) == arguments
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "\\u202eevil\\u2066\\u200b\\u0000" in text
    assert "\\\\u202e" in text, "what only looks like an escape is another text"
    assert "\\u202e" in page.locator("pre").nth(1).inner_text()
    assert page.evaluate("window.pwned") is None
    assert page.locator("img, iframe, a, form, input").count() == 0
    assert page.locator("script").count() == 1
    assert len(asked) == 1


def test_letters_from_right_to_left_stand_in_the_order_that_they_have(browser: Browser) -> None:
    page = opened(browser, {"a": RIGHT_TO_LEFT}, [])
    at = """() => { const text = document.querySelector('pre').firstChild, from = text.data.indexOf('\\u05d0');
        return [...Array(12).keys()].map(i => { const r = document.createRange(); r.setStart(text, from + i);
            r.setEnd(text, from + i + 1); return r.getBoundingClientRect().left; }); }"""
    places = page.evaluate(at)
    assert places == sorted(places)


def test_a_megabyte_is_shown_whole(browser: Browser) -> None:
    long = "x" * 999_999 + "!"
    page = opened(browser, {"text": long}, [])
    assert json.loads(page.locator("pre").first.text_content() or "") == {"text": long}
    box = page.locator("#use").bounding_box()
    above = page.locator("pre").first.bounding_box()
    assert box is not None
    assert above is not None
    assert box["y"] > above["y"] + above["height"], "the button stands below what it signs"
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_no_script_but_the_page_s_own_runs_even_where_one_got_in(browser: Browser) -> None:
    asks = {"title": "t", "what": "w", "shown": {}, "button": "b", "options": {}}
    evil = "<script>window.pwned = 1</script><img src='x' onerror='window.pwned = 2'>"
    page = PersonalPage(lambda nonce: passkey_page(asks, nonce).replace("<h1>", f"{evil}<h1>"), lambda _: None)
    heard: list[str] = []
    elsewhere = PersonalPage(lambda nonce: heard.append(nonce) or nonce, lambda _: None)
    with served(page), served(elsewhere):
        shown = browser.new_page()
        shown.goto(page.url)
        assert shown.locator("script").count() == 2
        assert shown.evaluate("window.pwned") is None
        outside = "url => fetch(url, {mode: 'no-cors'}).then(() => 'sent', () => 'refused')"
        assert shown.evaluate(outside, elsewhere.url) == "refused"
    assert heard == []


def test_no_other_page_shows_it_or_answers_on_it(browser: Browser) -> None:
    asks = {"title": "t", "what": "w", "shown": {}, "button": "b", "options": {}}
    taken: list[bytes] = []
    page = PersonalPage(lambda nonce: passkey_page(asks, nonce), taken.append)
    with served(page):
        shown = browser.new_page()
        with shown.expect_response(page.url):
            shown.set_content(f"<iframe src='{page.url}'></iframe>")
        assert shown.frames[-1].locator("#use").count() == 0
        send = """url => fetch(url, {method: 'POST', mode: 'no-cors', body: '{}'}).then(() => 'read', () => 'kept')"""
        assert shown.evaluate(send, page.url) == "kept"
        assert (taken, page.answered.is_set()) == ([], False)
