"""The trace as a page, in a real browser: what tools returned, and models said, stays text."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from aetheris.cli.page import page_of
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages import events as ev
from aetheris.views.job_history import job_history
from aetheris.views.trace import trace_of
from tests.testkit import histories as h
from tests.testkit.job_histories import records, refunded

HOSTILE = (
    "</pre></details></title></style><script>window.pwned = 1</script>"
    "<img src=x onerror='window.pwned = 2'><svg onload='window.pwned = 3'>"
    '"\' onmouseover="window.pwned = 4" javascript:alert(5) {{ 7 * 7 }} &lt;b&gt; \u202e\x00'
)


def hostile_job() -> list[Record]:
    """A job in which whatever may come from outside is an attack."""
    created = h.created().model_copy(update={"goal": HOSTILE, "submitted_by": HOSTILE, "agent": HOSTILE})
    events = refunded({HOSTILE: HOSTILE}, external_id=HOSTILE)
    failed = ev.JobFailed(job_id=h.JOB, error=HOSTILE)
    log = records(created, *events[1:-1], failed)
    odd = (("ce_id", HOSTILE.encode()), ("ce_type", f"io.{HOSTILE}.x.v1".encode()), ("ce_time", HOSTILE.encode()))
    return [*log, Record(log[0].topic, 0, 10**6, 0, log[0].key, odd, b"{}")]


def opened(browser: Browser, path: Path, html: str, scheme: str = "light") -> tuple[Page, list[str]]:
    """The page, loaded from a file; and whatever it asked the network for."""
    path.write_text(html, encoding="utf-8")
    page = browser.new_page(color_scheme="dark" if scheme == "dark" else "light")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    page.goto(path.as_uri())
    return page, [url for url in asked if url != path.as_uri()]


@pytest.mark.parametrize("with_policy", [True, False], ids=["as it is", "even without its security policy"])
def test_a_hostile_result_stays_text(browser: Browser, tmp_path: Path, with_policy: bool) -> None:
    html = page_of(trace_of(job_history(hostile_job())))
    if not with_policy:
        html, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
        assert count == 1
    page, asked = opened(browser, tmp_path / "trace.html", html)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.mouse.move(200, 200)
    assert page.evaluate("window.pwned") is None
    assert page.locator("script, img, iframe, object, embed, link, form").count() == 0
    assert (
        page.evaluate(
            "[...document.querySelectorAll('*')].some(one => [...one.attributes].some(a => /^on/.test(a.name)))"
        )
        is False
    )
    assert all(
        href.startswith("#step-")
        for href in page.eval_on_selector_all("a", "all => all.map(one => one.getAttribute('href'))")
    )
    assert asked == []
    assert "<script>window.pwned = 1</script>" in page.locator("body").inner_text()
    assert "\u202e" not in page.content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_the_job_and_its_graph(browser: Browser, tmp_path: Path, scheme: str) -> None:
    page, asked = opened(browser, tmp_path / "trace.html", page_of(trace_of(job_history(records(*refunded())))), scheme)
    assert asked == []
    assert page.locator("h1").inner_text() == h.JOB
    assert page.locator("svg rect").count() == 2
    assert page.locator("svg path.result").count() == 1
    page.locator("svg a").nth(1).click()
    assert page.url.endswith("#step-pay")
    page.locator("#step-pay summary").click()
    assert '"amount": 250' in page.locator("#step-pay pre").first.inner_text()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(21, 24, 28)" if scheme == "dark" else "rgb(251, 251, 250)")
    page.screenshot(path=str(tmp_path / f"{scheme}.png"), full_page=True)
