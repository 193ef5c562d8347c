"""`aetheris up` starts what the project asks for: scheduler and notifier by their files, the archiver by its folder."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from aetheris.cli.embedded import lifecycle
from tests.testkit.external_server import until
from tests.testkit.notice_receivers import WebReceiver, web_receiver

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

WITHIN_S = 120
TOOLS = """
from aetheris.sdk import Result, tool

@tool(effect_class="opaque", irreversible=True)
def payout(to: str) -> Result:
    return Result(to, external_id=to)
"""
PROJECT = 'tools = ["shop"]\nnotices = "notices.toml"\nstarts = "starts.toml"\nparquet = "rows"\n'
STARTS = '[[schedules]]\nname = "minutely"\ncron = "* * * * *"\nplan = "pay.json"\nwithin_s = 3600\n'
PLAN = {"nodes": [{"id": "pay", "tool": "payout", "args": {"to": "ada"}}]}


@dataclass(frozen=True)
class Shop:
    """A project with both files, up; `web` is where its notices go."""

    folder: Path
    web: WebReceiver

    def aetheris(self, *argv: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AETHERIS_")}
        command = [sys.executable, "-m", "aetheris.cli", *argv]
        return subprocess.run(
            command, env=env, cwd=self.folder, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with web_receiver() as web:
        (folder / "aetheris.toml").write_text(PROJECT)
        (folder / "shop.py").write_text(TOOLS)
        (folder / "starts.toml").write_text(STARTS)
        (folder / "pay.json").write_text(json.dumps(PLAN))
        (folder / "notices.toml").write_text(
            f'[[channels]]\nname = "phone"\nkind = "ntfy"\nurl = "{web.url}/ok/ntfy"\ntopic = "t"\nprivate = true\n'
            '[[routes]]\nname = "all"\ntell = ["phone"]\n'
        )
        shop = Shop(folder, web)
        try:
            up = shop.aetheris("up")
            assert up.returncode == 0, up.stderr
            yield shop
        finally:
            if lifecycle.supervisor_pid(folder / ".aetheris") is not None:
                lifecycle.down(folder / ".aetheris")


def test_a_schedule_starts_a_job_and_who_must_approve_it_is_told(shop: Shop) -> None:
    until(lambda: bool(shop.web.at("/ok/ntfy")), WITHIN_S)
    told = shop.web.at("/ok/ntfy")[0].body.decode()
    listed = json.loads(shop.aetheris("jobs", "--status", "waiting", "--json").stdout)
    ours: Sequence[str] = [one["job_id"] for one in listed if one["submitted_by"] == "scheduler"]
    assert any(job in told for job in ours)
    assert "http://localhost:" in told, "a link into the console"


def test_a_query_sees_what_was_started(shop: Shop) -> None:
    asked = shop.aetheris("sql", "--json", "SELECT DISTINCT submitted_by FROM jobs WHERE status = 'waiting'")
    assert (asked.returncode, json.loads(asked.stdout)) == (0, [{"submitted_by": "scheduler"}]), asked.stderr
    assert lifecycle.status(shop.folder / ".aetheris").parts["archiver-0"].ready


def test_their_tokens_submit_and_no_more(shop: Shop) -> None:
    listed = json.loads(shop.aetheris("token", "ls", "--json").stdout)
    rights = {one["name"]: (one["tenant"], one["roles"]) for one in listed if one["kind"] == "service"}
    assert rights == {"notifier": ("notices", ["submit"]), "scheduler": ("default", ["submit"])}


def test_up_again_says_what_has_changed_and_keeps_the_tokens(shop: Shop) -> None:
    token = shop.folder / ".aetheris" / "tokens" / "notifier"
    before = token.read_text()
    assert shop.aetheris("up").returncode == 0
    (shop.folder / "starts.toml").write_text(STARTS.replace("minutely", "each-minute"))
    again = shop.aetheris("up")
    assert again.returncode == 1
    assert "starts.toml has changed" in again.stderr
    assert token.read_text() == before


def test_a_file_that_can_not_be_used_starts_nothing(shop: Shop) -> None:
    (shop.folder / "starts.toml").write_text("[[schedules]]\nname = 1\n")
    refused = shop.aetheris("up", "--restart")
    assert refused.returncode == 78
    assert "starts.toml" in refused.stderr
    assert lifecycle.supervisor_pid(shop.folder / ".aetheris") is not None, "what runs goes on"
