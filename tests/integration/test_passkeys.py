"""On the real system, with a real browser and its virtual authenticator: an approver signs with his passkey."""

import json
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.testkit.approvers import TENANTS
from tests.testkit.attempts import fresh
from tests.testkit.browser import PageCommand, page_with_authenticator, running_chromium
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.ssh_keys import allowed, keygen
from tests.testkit.standalone import SCRIPT
from tests.testkit.tokens import write_tokens

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

POLICY = f"""
[[rules]]
name = "two"
tools = ["poke_probeable"]
effect = "approval"
approvals = 2
signed = true
{ALLOW_REST}"""


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with running_chromium() as running:
        yield running


@dataclass(frozen=True)
class PasskeyRig(Rig):
    """Ann submits; Bob has a passkey in a browser, Carol an SSH key."""

    keys: Path
    signers: Path
    page: Page

    def cli(self, *argv: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(self.system.data)]
        return subprocess.run(call, capture_output=True, text=True, check=False)

    def ask(self, tag: str) -> tuple[str, str]:
        """A job that waits, and the request's id."""
        job = self.system.submit({"id": "pay", "tool": "poke_probeable", "args": {"tag": tag}})
        until(lambda: any(step.get("request_id") for step in self.system.job(job)["steps"]), 60.0)
        return job, self.system.job(job)["steps"][0]["request_id"]

    def say(self, who: str, request: str, action: str = "approve", *argv: str) -> PageCommand:
        return PageCommand(self.system.data, action, request, "--as", who, "--passkey", *argv)

    def rules(self, job: str, *argv: str) -> list[str]:
        shown = self.cli("verify", job, "--from-log", "--json", *argv)
        return [one["rule"] for one in json.loads(shown.stdout)["violations"]]


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
    keys = folder / "keys"
    keys.mkdir()
    keygen(keys, "carol")
    signers = allowed(folder, {"carol": keys / "carol"})
    signers.write_text(signers.read_text() + line + "\n")
    env = ruled_by(folder, POLICY) | {"AETHERIS_SIGNERS": str(signers)}
    with running_rig(folder, env) as running:
        yield PasskeyRig(running.system, running.external, keys, signers, page)


def test_a_passkey_and_an_ssh_key_approve_a_call_which_takes_effect_once(rig: PasskeyRig, tmp_path: Path) -> None:
    tag = fresh("passkey")
    job, request = rig.ask(tag)
    command = rig.say("bob", request)
    rig.page.goto(command.url)
    shown = rig.page.locator("pre").all_inner_texts()
    assert json.loads(shown[0])["tag"] == tag
    text = rig.cli("approve", request, "--as", "bob", "--text").stdout
    assert shown[1].strip() == text.strip()
    assert 'rule: "two"' in text
    rig.page.locator("#use").click()
    code, said = command.ended()
    assert code == 0, said
    assert rig.external.count(tag) == 0
    assert rig.cli("approve", request, "--as", "carol", "--sign-with", str(rig.keys / "carol")).returncode == 0
    rig.system.wait_ended([job])
    assert rig.external.count(tag) == 1
    rig.system.wait_sealed(job)
    assert rig.rules(job, "--signers", str(rig.signers)) == []
    others = tmp_path / "others"
    others.write_text(rig.signers.read_text().replace("bob namespaces", "dan namespaces"))
    assert set(rig.rules(job, "--signers", str(others))) == {"votes_missing"}
    voted = rig.system.data_of(job, "approval_voted")[0]["signature"]["armored"]
    check_openssh(rig, tmp_path, voted, text)
    check_bundle(rig, job, tmp_path, others)


def check_openssh(rig: PasskeyRig, folder: Path, armored: str, text: str) -> None:
    (folder / "signature").write_text(armored)
    argv = ["ssh-keygen", "-Y", "verify", "-n", "aetheris-approval", "-I", "bob", "-f", str(rig.signers)]
    argv += ["-s", str(folder / "signature")]
    assert subprocess.run(argv, input=text.encode(), capture_output=True, check=False).returncode == 0


def check_bundle(rig: PasskeyRig, job: str, folder: Path, others: Path) -> None:
    """A stranger's Python, the script that stands alone and two files of signers."""
    file = folder / "job.zip"
    assert rig.cli("export", job, "--out", str(file)).returncode == 0
    public = str(rig.system.data / "keys" / "seal.pub")
    for signers, wanted in ((rig.signers, 0), (others, 1)):
        argv = [sys.executable, str(SCRIPT), str(file), "--public-key", public, "--signers", str(signers)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == wanted, done.stdout + done.stderr


def test_a_yes_to_another_request_is_none(rig: PasskeyRig, tmp_path: Path) -> None:
    """Neither for the page of another, nor for the gateway: what the browser made is of what that page showed."""
    (job, one), (_, two) = rig.ask(fresh("one")), rig.ask(fresh("two"))
    first, second = rig.say("bob", one), rig.say("bob", two)
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
        refused = rig.cli(action, request, "--as", "bob", "--signature", str(signature))
        assert (refused.returncode, "of something else" in " ".join(refused.stderr.split())) == (1, True), (
            refused.stderr
        )


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
