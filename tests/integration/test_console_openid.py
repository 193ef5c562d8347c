"""People sign in to the console by an OpenID provider that nobody here wrote: the code flow with PKCE, in a browser."""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import RSAKey
from playwright.sync_api import Browser, Page, expect

from aetheris.cli.embedded.ports import free_port
from tests.testkit.consoles import RunningConsole, StandInGateway, console_at, serious
from tests.testkit.system import REPOSITORY

pytestmark = [
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(which("npm") is None, reason="npm is not installed"),
]

VERSION = "9.13.3"
SCRIPT = REPOSITORY / "tests" / "testkit" / "openid_people.mjs"

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("provider")
    install = ["npm", "install", "--no-audit", "--no-fund", f"oidc-provider@{VERSION}"]
    subprocess.run(install, cwd=folder, check=True, capture_output=True)
    return folder


@contextmanager
def provider(folder: Path, port: int, redirect: str) -> Generator[None]:
    keys = folder / "keys.json"
    key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
    keys.write_text(json.dumps({"keys": [key.as_dict(private=True)]}))
    argv = ["node", str(SCRIPT), str(port), str(keys), redirect]
    with (
        (folder / "provider.log").open("w") as log,
        subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n", (folder / "provider.log").read_text()
            yield
        finally:
            process.terminate()


@pytest.fixture
def console(gateway: StandInGateway, installed: Path, tmp_path: Path) -> Generator[RunningConsole]:
    port = free_port()
    made = console_at(tmp_path, gateway.url, login_issuer=f"http://127.0.0.1:{port}", login_client_id="console")
    made.env = {**made.env, "AETHERIS_CONSOLE_URL": made.url, "AETHERIS_LOGIN_SCOPE": "openid use"}
    made.env["AETHERIS_LOGIN_RESOURCE"] = "urn:aetheris"
    with provider(installed, port, f"{made.url}/sign-in/back"), made.up():
        yield made


def at_the_provider(page: Page, who: str) -> None:
    """Sign in there, and let the console have what it asks for."""
    page.locator("[name=login]").fill(who)
    page.locator("[name=password]").fill("any")
    page.locator("button[type=submit]").click()
    page.locator("button[type=submit]").click()


def test_a_person_signs_in_by_the_provider_and_the_gateway_gets_its_token(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.everybody = True
    id_ = gateway.ask()
    page = console.watched(browser.new_context())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{console.url}/inbox/{id_}")
    assert serious(page) == []
    page.get_by_role("link", name="Sign in with").click()
    at_the_provider(page, "bob")
    page.wait_for_url(f"**/inbox/{id_}")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".outcome")).to_contain_text("Approved by bob")
    assert gateway.bearers
    assert all(token.count(".") == 2 for token in gateway.bearers), "the provider's own token, a JWT"
    assert not [url for url in asked if any(token in url for token in gateway.bearers)]
    [begun] = [url for url in asked if "/auth?" in url and "client_id=console" in url]
    said = parse_qs(urlsplit(begun).query)
    assert (said["code_challenge_method"], said["response_type"]) == (["S256"], ["code"])
    back = next(url for url in asked if "/sign-in/back?" in url)
    refused_again(console, browser, back)


def refused_again(console: RunningConsole, browser: Browser, back: str) -> None:
    """What one browser came back with signs in no other, and not twice."""
    other = console.watched(browser.new_context())
    other.goto(back)
    assert other.get_by_role("heading", level=1).inner_text() == "Not signed in"


def test_who_the_gateway_does_not_know_is_not_signed_in(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    assert not gateway.everybody
    page = console.watched(browser.new_context())
    page.goto(f"{console.url}/sign-in/provider")
    at_the_provider(page, "mallory")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not signed in")
    assert page.context.cookies(console.url) == [] or not [
        one for one in page.context.cookies(console.url) if one.get("name") == "aetheris-session"
    ]


def test_a_callback_that_this_browser_did_not_begin_signs_nobody_in(console: RunningConsole, browser: Browser) -> None:
    """Its cookie says which browser began: one that has come to Mallory's callback has another, or none."""
    victim = console.watched(browser.new_context())
    victim.goto(f"{console.url}/sign-in/provider")
    victim.context.clear_cookies(name="aetheris-sign-in")
    at_the_provider(victim, "mallory")
    expect(victim.locator("main")).to_contain_text("begun by another browser")
    assert not [one for one in victim.context.cookies(console.url) if one.get("name") == "aetheris-session"]
