"""On the real system, in a real browser with a virtual authenticator: in the console a passkey signs an approval."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.test_passkeys import PasskeyRig
from tests.testkit.approvers import TENANTS
from tests.testkit.attempts import fresh
from tests.testkit.browser import page_with_authenticator
from tests.testkit.consoles import RunningConsole, running_console, serious, stand_in_gateway
from tests.testkit.signing_rig import running_signing_rig
from tests.testkit.tokens import write_tokens

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(240)]

expect.set_options(timeout=60_000)


def made_in(console: RunningConsole, page: Page, name: str) -> str:
    """The line of a passkey that somebody makes in the console, as he is told it."""
    page.goto(console.link(name))
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Passkey").click()
    page.get_by_role("button", name="Make a passkey").click()
    return page.locator("#line").inner_text()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Generator[PasskeyRig]:
    folder = tmp_path_factory.mktemp("console-passkeys")
    write_tokens(folder / "data", TENANTS)
    page = page_with_authenticator(browser)
    with stand_in_gateway() as gateway, running_console(folder, gateway.url) as console:
        line = made_in(console, page, "bob")
    with running_signing_rig(folder, ("carol",), ("carol",), (line,)) as running:
        yield PasskeyRig(running.system, running.external, running.keys, running.signers, page)


@pytest.fixture
def console(rig: PasskeyRig, tmp_path: Path) -> Generator[RunningConsole]:
    with running_console(tmp_path, rig.system.state().gateway) as console:
        yield console


def test_a_passkey_signs_in_the_console_what_was_shown_and_the_call_takes_effect_once(
    rig: PasskeyRig, console: RunningConsole
) -> None:
    tag = fresh("console-passkey")
    job, request = rig.ask(tag)
    page = rig.page
    page.goto(console.link("bob"))
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/inbox")
    page.goto(f"{console.url}/inbox/{request}")
    assert json.loads(page.locator("#arguments").inner_text())["tag"] == tag
    assert serious(page) == []
    page.get_by_text("What you sign when you approve").click()
    assert page.locator("#signed-text").inner_text().strip() == rig.say("bob", request, "--text").stdout.strip()
    page.locator("#approve").click()
    expect(page.locator(".facts")).to_contain_text("1 of 2: bob")
    (voted,) = rig.system.data_of(job, "approval_voted")
    assert voted["signature"]["armored"].startswith("-----BEGIN SSH SIGNATURE-----")
    assert rig.external.count(tag) == 0
    assert rig.signed("carol", request).exit_code == 0
    rig.system.wait_ended([job])
    assert rig.external.count(tag) == 1
    rig.system.wait_sealed(job)
    assert rig.rules(job, "--signers", str(rig.signers)) == []


def test_a_rejection_is_signed_too_and_an_assertion_of_another_answer_is_none(
    rig: PasskeyRig, console: RunningConsole
) -> None:
    tag = fresh("console-no")
    job, request = rig.ask(tag)
    page = rig.page
    page.goto(console.link("bob"))
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/inbox")
    page.goto(f"{console.url}/inbox/{request}")
    page.evaluate("const form = document.getElementById('answer'); form.dataset.approve = form.dataset.reject;")
    page.locator("#approve").click()
    expect(page.get_by_role("alert").first).to_contain_text("signed something else than was asked")
    assert rig.system.data_of(job, "approval_voted", "approval_decided") == []
    page.goto(f"{console.url}/inbox/{request}")
    page.locator("#reject").click()
    expect(page.locator(".outcome")).to_contain_text("Rejected by bob")
    rig.system.wait_ended([job])
    assert rig.external.count(tag) == 0
    (decided,) = rig.system.data_of(job, "approval_decided")
    assert decided["signature"]["armored"].startswith("-----BEGIN SSH SIGNATURE-----")


def test_who_has_no_passkey_is_told_and_sends_nothing(
    rig: PasskeyRig, console: RunningConsole, browser: Browser
) -> None:
    job, request = rig.ask(fresh("console-none"))
    page = console.signed_in(browser, "carol")
    page.goto(f"{console.url}/inbox/{request}")
    expect(page.locator("#answer")).to_contain_text("no passkey of yours for this console is known")
    page.locator("#approve").click()
    expect(page.get_by_role("alert").first).to_contain_text("nothing was signed: nothing was sent")
    assert rig.system.data_of(job, "approval_voted", "approval_decided") == []
