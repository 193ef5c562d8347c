"""The console on a real system: a payout approved on a phone, while services are killed, is made once."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, FloatRect, Locator, Page, expect

from aetheris.protocol.base.keys import trace_id
from tests.testkit.approvers import running_approvers
from tests.testkit.attempts import fresh
from tests.testkit.consoles import RunningConsole, running_console, serious
from tests.testkit.external_server import ExternalServer
from tests.testkit.policies import ALLOW_REST
from tests.testkit.rig import Rig
from tests.testkit.system import System
from tests.testkit.tokens import token_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

POLICY = """
[[rules]]
name = "ask"
tools = ["poke_irreversible"]
effect = "approval"
"""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
FINGER = 24
"""CSS pixels that WCAG 2.2 asks for of what is pressed, at least (2.5.8)."""

expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_approvers(tmp_path_factory.mktemp("console"), POLICY + ALLOW_REST) as rig:
        yield rig


@pytest.fixture
def console(system: System, tmp_path: Path) -> Generator[RunningConsole]:
    with running_console(tmp_path, system.state().gateway) as console:
        yield console


def ask(system: System, tag: str) -> tuple[str, str]:
    """A job that waits for an approval: its id, and the request's."""
    job = system.submit({"id": "pay", "tool": "poke_irreversible", "args": {"tag": tag}})
    return job, system.wait_asked(job)["request_id"]


class PhoneHand(NamedTuple):
    """How somebody opens a request, and approves it."""

    opens: Callable[[Page, RunningConsole, str], None]
    approves: Callable[[Page], None]


def by_keyboard(page: Page, console: RunningConsole, request: str) -> None:
    """Open a request, as somebody with a keyboard before a small screen."""
    page.goto(f"{console.url}/inbox/{request}")


def by_touch(page: Page, console: RunningConsole, request: str) -> None:
    """Find it in the list with a finger, for which each thing to press is large enough."""
    one = page.locator(f'#list a[href="/inbox/{request}"]')
    small = [part for part in (one, page.locator(".bar nav a").first) if box_of(part)["height"] < FINGER]
    assert small == []
    one.tap()
    page.wait_for_url(f"{console.url}/inbox/{request}")
    approve, reject = (page.get_by_role("button", name=name) for name in ("Approve", "Reject"))
    assert min(box_of(one)["height"] for one in (approve, reject)) >= FINGER
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing lies beside the screen"


def box_of(part: Locator) -> FloatRect:
    box = part.bounding_box()
    assert box is not None, "it is to be seen"
    return box


def press_keys(page: Page) -> None:
    page.keyboard.press("a")
    page.keyboard.press("Enter")


def tap(page: Page) -> None:
    page.get_by_role("button", name="Approve").tap()


HANDS = {"keyboard": PhoneHand(by_keyboard, press_keys), "touch": PhoneHand(by_touch, tap)}


@pytest.mark.parametrize("hand", HANDS.values(), ids=HANDS)
def test_a_payout_is_approved_on_a_phone_with_services_killed_in_between(
    system: System,
    external: ExternalServer,
    console: RunningConsole,
    browser: Browser,
    hand: PhoneHand,
) -> None:
    tag = fresh("phone")
    job, request = ask(system, tag)
    page = console.signed_in(browser, "bob", **PHONE)
    assert serious(page) == []
    hand.opens(page, console, request)
    assert json.loads(page.locator("#arguments").inner_text())["tag"] == tag
    assert "ask" in page.locator(".facts").inner_text()
    expect(page.locator(".context table")).to_contain_text("poke_irreversible")
    assert serious(page) == []
    for service in ("ledger-0", "executor-0", "gateway-0"):
        system.kill(service)
    system.wait_ready()
    hand.approves(page)
    expect(page.locator(".outcome")).to_contain_text("Approved by bob")
    for service in ("ledger-0", "executor-0"):
        system.kill(service)
    system.wait_ended([job])
    assert system.job(job)["status"] == "completed"
    assert external.count(tag) == 1
    (decided,) = system.data_of(job, "approval_decided")
    assert decided["approver"] == "bob"
    page.reload()
    expect(page.locator(".outcome")).to_contain_text("The step is completed")
    system.verified(job)
    page.goto(f"{console.url}/jobs/{job}/contracts")
    page.locator("tbody summary").click()
    told = page.locator("tbody li").all_inner_texts()
    moves = ("start, pending to running", "suspend, running to waiting", "succeed, running to completed")
    assert [move for move in moves if not any(move in one for one in told)] == [], told
    page.goto(f"{console.url}/jobs/{job}/plan")
    traces = [trace_id(one["idempotency_key"]) for one in system.data_of(job, "tool_invocation_started")]
    expect(page.locator("tr#step-pay")).to_contain_text(traces[-1])


def test_who_submitted_it_is_refused_and_another_s_edit_asks_anew(
    system: System, external: ExternalServer, console: RunningConsole, browser: Browser
) -> None:
    before, after = fresh("before"), fresh("after")
    job, request = ask(system, before)
    ann = console.signed_in(browser, "ann")
    ann.goto(f"{console.url}/inbox/{request}")
    ann.get_by_role("button", name="Approve").click()
    expect(ann.get_by_role("alert")).to_contain_text("who submitted the job may not approve this")
    bob = console.signed_in(browser, "bob")
    bob.goto(f"{console.url}/inbox/{request}")
    bob.get_by_text("Edit the arguments").click()
    bob.get_by_label("tag", exact=False).first.fill(after)
    bob.get_by_role("button", name="Show what changes").click()
    bob.get_by_role("button", name="Send this edit").click()
    expect(bob.get_by_role("status")).to_contain_text("needs its own approval")
    bob.get_by_role("button", name="Approve").click()
    expect(bob.get_by_role("alert")).to_be_visible()
    carol = console.signed_in(browser, "carol")
    carol.goto(bob.url.partition("?")[0])
    expect(carol.locator(".context table.diff")).to_contain_text(before)
    carol.get_by_role("button", name="Approve").click()
    expect(carol.locator(".outcome")).to_contain_text("Approved by carol")
    system.wait_ended([job])
    assert (external.count(before), external.count(after)) == (0, 1)
    system.verified(job)


def test_eve_of_another_tenant_sees_nothing_of_it(system: System, console: RunningConsole, browser: Browser) -> None:
    _, request = ask(system, fresh("hidden"))
    page = console.signed_in(browser, "eve")
    assert page.locator("#list li").count() == 0
    page.goto(f"{console.url}/inbox/{request}")
    assert page.get_by_role("heading", level=1).inner_text() == "Not here"


def test_the_command_makes_a_link_and_says_no_token(system: System, console: RunningConsole) -> None:
    def said(at: str, *more: str, token: str = token_of("bob")) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "aetheris.cli", "console", "--at", at, *more, "--data", str(system.data)]
        env = os.environ | {"AETHERIS_TOKEN": token}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    done = said(console.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{console.url}/sign-in/links/")
    assert "goes by https" in " ".join(said("http://192.0.2.1:80").stderr.split())
    assert "AETHERIS_TOKEN" in said(console.url, "--as", "bob").stderr, "a token of the folder goes nowhere else"
    assert said(console.url, token="nobody-s-token".ljust(40, "0")).returncode != 0


def until_indexed(system: System, params: dict[str, str]) -> list[dict[str, Any]]:
    """What a search finds, once the log is read for it."""
    while (answer := system.api.get("/search", params=params)).status_code == 503:
        assert answer.json()["error"]["code"] == "jobs_indexing", answer.text
    assert answer.status_code == 200, answer.text
    return answer.json()["jobs"]


def test_a_job_is_found_by_its_labels_which_are_in_its_birth(
    system: System, console: RunningConsole, browser: Browser
) -> None:
    labels, tag = {"order": fresh("order"), "env": "test \u00e4"}, fresh("look")
    job = system.completed({"id": "look", "tool": "poke_pure", "args": {"tag": tag}}, labels=labels)
    other = system.completed({"id": "look", "tool": "poke_pure", "args": {"tag": fresh("look")}})
    (born,) = system.data_of(job, "job_created")
    assert born["labels"] == labels
    wanted = {"label": f"order={labels['order']}"}
    assert [one["labels"] for one in system.api.get("/jobs", params=wanted).json()["jobs"]] == [labels]
    assert system.api.get("/jobs", params={"label": "order"}).status_code == 400
    found = {"q": labels["order"], "argument": f"tag={tag}", "tool": "poke_pure"}
    assert [one["job_id"] for one in until_indexed(system, found)] == [job]
    system.kill("gateway-0")
    system.wait_ready()
    assert [one["job_id"] for one in until_indexed(system, found)] == [job], "as the gateway before this one knew it"
    eve = {"authorization": f"Bearer {token_of('eve')}"}
    for asked in (found, {"q": tag}, {"job_id": job}, {"label": wanted["label"]}, {}):
        answer = system.api.get("/search", params=asked, headers=eve)
        assert job not in answer.text, "another tenant finds nothing of it, whatever it asks"
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/jobs")
    page.get_by_label("Label").fill(wanted["label"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?**label=order**")
    expect(page.locator("#rows")).to_contain_text(job)
    assert other not in page.locator("#rows").inner_text()
    page.get_by_role("link", name=job).click()
    expect(page.locator(".facts")).to_contain_text("env=test ä")
    assert serious(page) == []
    system.verified(job)
