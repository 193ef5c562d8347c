"""Every page of the console, by its routes: used by keyboard alone, without a serious finding of axe, in the light, in
the dark and on a phone, and with no script or style of its own in it. A route that nobody visits here is an error.
"""

import re
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

import httpx
import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect
from starlette.routing import Mount, Route

from aetheris.console.app import ROUTES
from tests.operations_pictures import OTHER_POLICY, STEPS, UNDOABLE, say_policies
from tests.testkit.browser import with_authenticator
from tests.testkit.console_answers import say_all
from tests.testkit.consoles import JOB, TIME, RunningConsole, StandInGateway, running_console, serious, stand_in_gateway

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

expect.set_options(timeout=30_000)

PHONE: ViewportSize = {"width": 390, "height": 780}
WIDE: ViewportSize = {"width": 1180, "height": 900}
LETTER = "aetheris.jobs.commands.v1/2/7"


class Visit(NamedTuple):
    """A page: where it is, and what leads from there to what is looked at, by keyboard."""

    path: str
    press: Callable[[Page], None] | None = None
    who: str | None = "bob"


def _filled(**given: str) -> Callable[[Page], None]:
    """Fill in the form that has these, and send it by Enter."""

    def press(page: Page) -> None:
        for label, text in given.items():
            page.get_by_label(label.replace("_", " "), exact=True).first.fill(text)
        page.keyboard.press("Enter")

    return press


def _pressed(button: str, *first: Callable[[Page], None]) -> Callable[[Page], None]:
    def press(page: Page) -> None:
        for one in first:
            one(page)
        page.get_by_role("button", name=button).first.press("Enter")

    return press


def _checked(page: Page) -> None:
    page.get_by_role("checkbox").first.press("Space")


def _edited(page: Page) -> None:
    page.keyboard.press("e")
    page.get_by_label("Amount").fill("7.10")


def _settled(page: Page) -> None:
    page.get_by_role("radio").first.press("Space")
    page.get_by_label("How you know").fill("looked")


def _activated(page: Page) -> None:
    page.get_by_label("The whole policy").fill(OTHER_POLICY)
    page.get_by_role("button", name="Show what it changes").press("Enter")
    page.wait_for_url("**/preview")
    page.get_by_role("button", name="Let it decide").press("Enter")
    page.wait_for_url("**/operations/policy*")


VISITS: Mapping[str, Visit] = {
    "GET /sign-in": Visit("/sign-in", who=None),
    "GET /sign-in/provider": Visit("/sign-in/provider", who=None),
    "GET /sign-in/back": Visit("/sign-in/back", who=None),
    "GET /sign-in/links/{code}": Visit("LINK", who=None),
    "POST /sign-in/links/{code}": Visit("LINK", _pressed("Sign in"), who=None),
    "POST /sign-out": Visit("/inbox", _pressed("Sign out")),
    "GET /inbox": Visit("/inbox"),
    "GET /inbox/{request_id}": Visit("/inbox/REQUEST"),
    "POST /inbox/{request_id}": Visit("/inbox/REQUEST", _pressed("Show what changes", _edited)),
    "GET /inbox/together": Visit("/inbox/together"),
    "POST /inbox/together": Visit("/inbox/together", _pressed("Approve what is chosen", _checked)),
    "GET /jobs": Visit("/jobs"),
    "GET /jobs/{job_id}": Visit(f"/jobs/{JOB}"),
    "GET /jobs/{job_id}/plan": Visit(f"/jobs/{JOB}/plan"),
    "GET /jobs/{job_id}/contracts": Visit(f"/jobs/{JOB}/contracts"),
    "GET /jobs/{job_id}/compare": Visit(f"/jobs/{JOB}/compare?with={JOB}"),
    "GET /jobs/{job_id}/steps": Visit(f"/jobs/{JOB}/steps"),
    "GET /jobs/{job_id}/effects": Visit(f"/jobs/{JOB}/effects"),
    "GET /jobs/{job_id}/events/{seq:int}": Visit(f"/jobs/{JOB}/events/1"),
    "GET /jobs/{job_id}/control/{action}": Visit(f"/jobs/{JOB}/control/cancel"),
    "POST /jobs/{job_id}/control/{action}": Visit(f"/jobs/{JOB}/control/pause", _pressed("Pause it")),
    "POST /jobs/{job_id}/steps/{execution_id}/resolve": Visit(f"/jobs/{JOB}", _pressed("Settle it", _settled)),
    "GET /operations": Visit("/operations"),
    "GET /operations/freeze": Visit("/operations/freeze?scope=agent&name=agent-7"),
    "POST /operations/freeze": Visit("/operations/freeze?scope=agent&name=agent-7", _filled(Reason="odd")),
    "GET /operations/policy": Visit("/operations/policy"),
    "POST /operations/policy/preview": Visit("/operations/policy", _pressed("Show what it changes")),
    "POST /operations/policy/activate": Visit("/operations/policy", _activated),
    "GET /operations/dead-letters": Visit("/operations/dead-letters"),
    "GET /operations/dead-letters/{topic}/{partition:int}/{offset:int}": Visit(f"/operations/dead-letters/{LETTER}"),
    "POST /operations/dead-letters/{topic}/{partition:int}/{offset:int}/redrive": Visit(
        f"/operations/dead-letters/{LETTER}", _filled(Reason="upgraded")
    ),
    "GET /operations/undo": Visit(f"/operations/undo?agent=agent-7&age=2h&since={TIME}"),
    "POST /operations/undo": Visit(
        f"/operations/undo?agent=agent-7&age=2h&since={TIME}", _pressed("Undo what is chosen", _checked)
    ),
    "GET /operations/schedules": Visit("/operations/schedules"),
    "GET /operations/budgets": Visit("/operations/budgets"),
    "GET /operations/quotas": Visit("/operations/quotas"),
    "GET /passkey": Visit("/passkey"),
    "POST /passkey": Visit("/passkey", _pressed("Make a passkey", with_authenticator)),
}
NO_PAGES = frozenset(
    {
        *("GET /", "GET /livez", "GET /readyz", "GET /static/htmx.js", "POST /sign-in/links"),
        *("GET /inbox/list", "GET /inbox/together/news", "GET /jobs/rows", "GET /operations/parts/{name}"),
        *(f"GET /inbox/{{request_id}}/{part}" for part in ("news", "context", "earlier")),
        *(f"GET /jobs/{{job_id}}/{part}" for part in ("state", "rows", "follow", "leases", "verify", "evidence")),
        *("GET /jobs/{job_id}/events/{seq:int}/record", "GET /jobs/{job_id}/steps/{execution_id}/evidence"),
        "GET /operations/dead-letters/{topic}/{partition:int}/{offset:int}/record",
    }
)
"""Where a browser is led on, or parts of pages that others show, JSON, and files."""


def test_every_route_is_visited_or_is_no_page() -> None:
    served = {
        f"{method} {route.path}"
        for route in ROUTES
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert {route.path for route in ROUTES if isinstance(route, Mount)} == {"/static"}
    assert served == {*VISITS, *NO_PAGES}


@pytest.fixture(scope="module")
def gateway() -> Generator[StandInGateway]:
    with stand_in_gateway() as gateway:
        say_policies(gateway)
        say_all(gateway)
        _hold(gateway)
        yield gateway
        gateway.away = True


@pytest.fixture(scope="module")
def console(gateway: StandInGateway, tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningConsole]:
    with running_console(tmp_path_factory.mktemp("console"), gateway.url) as running:
        yield running


@pytest.fixture(autouse=True)
def _closed(browser: Browser) -> Generator[None]:
    """An open page goes on to ask, also once the console has gone."""
    yield
    for context in browser.contexts:
        context.close()


def _hold(gateway: StandInGateway) -> None:
    gateway.hold("running", *STEPS, why="pay-again is parked")
    gateway.tell("job_created")
    gateway.tell("tool_invocation_started", node_id="pay", worker_id="executor-0", token=1)
    gateway.tell("invocation_in_doubt", node_id="pay", error_class="lease_lost")
    gateway.tell("worker_ended", worker_id="executor-0", how="lock")
    gateway.say(f"/jobs/{JOB}/effects", {"effects": [], "effect_count": 0})
    root = {"what": "goal", "title": "pay", "facts": {}, "leads_to": []}
    trace = {"job": {"status": "running"}, "decisions": root, "graph": {"nodes": [], "edges": []}}
    gateway.say(f"/jobs/{JOB}/trace", {**trace, "steps": [], "step_count": 0})
    moved = {"from": "pending", "to": "running", "trigger": "start", "timestamp": TIME, "actor": "executor"}
    contract = {"execution_id": "x", "node_id": "pay", "action_type": "tool_call", "status": "running"}
    gateway.say(
        f"/jobs/{JOB}/contracts", {"contracts": [{**contract, "has_effect": "possible", "transitions": [moved]}]}
    )
    gateway.say("/effects", {"effects": [], "cursor": None})
    gateway.say("/undo", {"jobs": UNDOABLE, "cursor": None})
    gateway.listed = [
        {"job_id": JOB, "status": "running", "created_at": TIME, "submitted_by": "agent-7", "tenant": "default"}
    ]
    gateway.answers["/jobs/job-4711/undo"] = {"job_id": "undo-of-4711", "status": "submitted"}


@pytest.mark.parametrize("route", sorted(VISITS))
def test_a_page_is_used_by_keyboard_alone_and_axe_finds_nothing_serious(
    gateway: StandInGateway, console: RunningConsole, browser: Browser, route: str
) -> None:
    page = visited(gateway, console, browser, VISITS[route])
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert serious(page) == [], (route, scheme)
    assert unreachable(page) == [], route
    page.set_viewport_size(PHONE)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0, f"{route} is wider than a phone"


@pytest.mark.parametrize("route", [route for route in sorted(VISITS) if route.startswith("GET ")])
def test_an_answer_lets_run_our_own_script_alone_and_has_none_in_it(
    gateway: StandInGateway, console: RunningConsole, browser: Browser, route: str
) -> None:
    visit = VISITS[route]
    page = visited(gateway, console, browser, Visit("/inbox") if visit.who else Visit("/sign-in", who=None))
    cookies = {str(one.get("name")): str(one.get("value")) for one in page.context.cookies()}
    path = _path(gateway, console, visit).removeprefix(console.url)
    answer = httpx.get(f"{console.url}{path}", cookies=cookies, trust_env=False)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'nonce-"), route
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert answer.headers["cache-control"] == "no-store"
    nonce = re.search(r"'nonce-([^']+)'", policy)
    assert nonce is not None
    scripts = re.findall(r"<script[^>]*>", answer.text)
    assert scripts, route
    assert all(f'nonce="{nonce[1]}"' in one and 'src="/static/' in one for one in scripts), scripts
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", answer.text) == []


def visited(gateway: StandInGateway, console: RunningConsole, browser: Browser, visit: Visit) -> Page:
    """The page, once nothing more of it comes."""
    page = (
        console.watched(browser.new_context(viewport=WIDE))
        if visit.who is None
        else console.signed_in(browser, visit.who, viewport=WIDE)
    )
    page.goto(_path(gateway, console, visit))
    if visit.press is not None:
        page.wait_for_load_state("load")
        with page.expect_response(lambda answer: answer.request.method == "POST"):
            visit.press(page)
        page.wait_for_load_state("load")
    page.locator("main").wait_for()
    page.wait_for_function("() => document.querySelectorAll('.htmx-request').length === 0")
    return page


def _path(gateway: StandInGateway, console: RunningConsole, visit: Visit) -> str:
    if visit.path == "LINK":
        return console.link("bob")
    if "REQUEST" in visit.path or visit.path.startswith("/inbox/together"):
        first = gateway.ask()
        gateway.ask("pay-2")
        return f"{console.url}{visit.path.replace('REQUEST', first)}"
    return f"{console.url}{visit.path}"


_REACHABLE = """() => [...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled && one.type !== "hidden"
    && !(one.type === "radio" && one !== one.form?.querySelector(`input[name="${one.name}"]`))
    && !one.closest(".timeline .rows"))"""


def unreachable(page: Page) -> list[str]:
    """What can be used, and Tab does not lead to, or leads to without that it shows."""
    count = page.evaluate(f"() => {{ window.missed = new Set(({_REACHABLE})()); return window.missed.size; }}")
    page.locator("body").evaluate("one => { one.tabIndex = -1; one.focus(); one.removeAttribute('tabindex'); }")
    unseen: list[str] = []
    for _ in range(2 * count + 20):
        page.keyboard.press("Tab")
        text = page.evaluate(
            """() => {
              const at = document.activeElement;
              window.missed.delete(at);
              if (at === document.body || at.type === "date") return ""; // a date's parts show it themselves
              const style = getComputedStyle(at);
              const shows = style.outlineStyle !== "none" && style.outlineWidth !== "0px";
              return shows ? "" : at.outerHTML.slice(0, 120);
            }"""
        )
        if text:
            unseen.append(text)
        if page.evaluate("() => window.missed.size") == 0:
            break
    return [*page.evaluate("() => [...window.missed].map((one) => one.outerHTML.slice(0, 120))"), *unseen]
