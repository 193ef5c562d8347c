"""On the real system, with a real browser and its virtual authenticator: an approver signs with his passkey."""

import json
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.testkit.approvers import TENANTS
from tests.testkit.attempts import fresh
from tests.testkit.browser import PageCommand, page_with_authenticator
from tests.testkit.signing_rig import SigningRig, running_signing_rig
from tests.testkit.tokens import write_tokens

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@dataclass(frozen=True)
class PasskeyRig(SigningRig):
    """Bob has a passkey in a browser, Carol an SSH key."""

    page: Page

    def on_page(self, who: str, request: str) -> PageCommand:
        return PageCommand(self.system.data, "approve", request, "--as", who, "--passkey")


def made(page: Page, data: Path, name: str) -> str:
    """The line of a passkey that the browser makes."""
    command = PageCommand(data, "passkey", "add", name)
    page.goto(command.url)
    page.locator("#use").click()
    code, said = command.ended()
    assert code == 0, said
    return next(line for line in said.splitlines() if line.startswith(f"{name} namespaces"))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Generator[PasskeyRig]:
    folder = tmp_path_factory.mktemp("passkeys")
    write_tokens(folder / "data", TENANTS)
    page = page_with_authenticator(browser)
    line = made(page, folder / "data", "bob")
    with running_signing_rig(folder, ("carol",), ("carol",), (line,)) as running:
        yield PasskeyRig(running.system, running.external, running.keys, running.signers, page)


def test_a_passkey_and_an_ssh_key_approve_a_call_which_takes_effect_once(rig: PasskeyRig, tmp_path: Path) -> None:
    tag = fresh("passkey")
    job, request = rig.ask(tag)
    command = rig.on_page("bob", request)
    rig.page.goto(command.url)
    shown = rig.page.locator("pre").all_inner_texts()
    assert json.loads(shown[0])["tag"] == tag
    text = rig.say("bob", request, "--text").stdout
    assert shown[1].strip() == text.strip()
    assert 'rule: "two"' in text
    rig.page.locator("#use").click()
    code, said = command.ended()
    assert code == 0, said
    assert rig.external.count(tag) == 0
    assert rig.signed("carol", request).exit_code == 0
    rig.system.wait_ended([job])
    assert rig.external.count(tag) == 1
    rig.system.wait_sealed(job)
    assert rig.rules(job, "--signers", str(rig.signers)) == []
    others = tmp_path / "others"
    others.write_text(rig.signers.read_text().replace("bob namespaces", "dan namespaces"))
    assert set(rig.rules(job, "--signers", str(others))) == {"votes_missing"}
    voted = rig.system.data_of(job, "approval_voted")[0]["signature"]["armored"]
    check_openssh(rig, tmp_path, voted, text)
    rig.check_bundle(job, tmp_path, others)


def check_openssh(rig: PasskeyRig, folder: Path, armored: str, text: str) -> None:
    (folder / "signature").write_text(armored)
    argv = ["ssh-keygen", "-Y", "verify", "-n", "aetheris-approval", "-I", "bob", "-f", str(rig.signers)]
    argv += ["-s", str(folder / "signature")]
    assert subprocess.run(argv, input=text.encode(), capture_output=True, check=False).returncode == 0


def test_a_yes_to_another_request_is_none(rig: PasskeyRig, tmp_path: Path) -> None:
    """Neither for the page of another, nor for the gateway: what the browser made is of what that page showed."""
    (job, one), (_, two) = rig.ask(fresh("one")), rig.ask(fresh("two"))
    first, second = rig.on_page("bob", one), rig.on_page("bob", two)
    rig.page.goto(first.url)
    with rig.page.expect_request(lambda one: one.method == "POST") as posted:
        rig.page.locator("#use").click()
    body = posted.value.post_data
    assert first.ended()[0] == 0
    rig.page.goto(second.url)
    send = "body => fetch(location.pathname, {method: 'POST', headers: {'Content-Type': 'application/json'}, body})"
    answered = rig.page.evaluate(f"async body => (await ({send})(body)).text()", body)
    assert answered == "the passkey signed something else than was asked"
    second.stop()
    signature = tmp_path / "signature"
    signature.write_text(rig.system.data_of(job, "approval_voted")[0]["signature"]["armored"])
    for request, action in ((two, "approve"), (one, "reject")):
        refused = rig.say("bob", request, "--signature", str(signature), action=action)
        told = "of something else" in " ".join(refused.output.split())
        assert (refused.exit_code, told) == (1, True), refused.output


def test_who_was_not_verified_makes_no_passkey(browser: Browser, tmp_path: Path) -> None:
    page = page_with_authenticator(browser, is_verified=False)
    command = PageCommand(tmp_path, "passkey", "add", "bob")
    page.goto(command.url)
    page.locator("#use").click()
    page.wait_for_function("document.getElementById('said').textContent !== ''")
    assert "NotAllowedError" in page.locator("#said").inner_text()
    assert command.process.poll() is None
    command.stop()
    assert not (tmp_path / "passkeys").exists()
