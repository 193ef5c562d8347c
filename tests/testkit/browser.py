"""A real Chromium with an authenticator of its own, which answers by itself, as a person with a passkey does."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@contextmanager
def running_chromium() -> Generator[Browser]:
    """Skips the test where there is none, but in CI."""
    chromium = shutil.which("chromium")
    if chromium is None and not os.environ.get("CI"):
        pytest.skip("no chromium here: `make system-deps` installs it")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


def page_with_authenticator(browser: Browser, *, is_verified: bool = True) -> Page:
    """A page whose passkeys live as long as it does."""
    page = browser.new_page()
    with_authenticator(page, is_verified=is_verified)
    return page


def with_authenticator(page: Page, *, is_verified: bool = True) -> None:
    """Give it one of its own."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": {**AUTHENTICATOR, "isUserVerified": is_verified}})


class PageCommand:
    """An `aetheris` command that waits on its page."""

    def __init__(self, data: Path, *argv: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "aetheris.cli", *argv, "--no-browser", "--data", str(data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("open "):
                self.url = line.split()[1]
                return
        raise AssertionError("".join(self.said))

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what it printed."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out + "".join(self.said) + err

    def stop(self) -> None:
        """Nobody answers it any more."""
        self.process.kill()
        self.process.communicate()
