"""Two processes that subscribe as one member of one group, on a real Kafka: one reads, the other is refused by name."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli.embedded.processes import spawn
from aetheris.runtime.kafka.members import members
from aetheris.sdk.received import GROUPS
from tests.integration.test_subscribe import write
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(180)]

PATIENCE_S = 60.0
SESSION_S = 6.0


@dataclass(frozen=True)
class Process:
    """`aetheris subscribe`, and where its output goes."""

    process: subprocess.Popen[bytes]
    log: Path

    def read(self) -> list[str]:
        """The ids of the events that it has printed, in their order."""
        return [json.loads(line)["id"] for line in self.log.read_text().splitlines() if line.startswith("{")]


@dataclass(frozen=True)
class SubscriptionMembers:
    """A group of its own, on the shared broker."""

    kafka: str
    folder: Path
    group: str
    job: str

    @contextmanager
    def subscribed(self, member: str) -> Generator[Process]:
        log = self.folder / f"{fresh(member)}.log"
        argv = ["subscribe", "--group", self.group, "--member", member, "--job", self.job]
        kept = {key: value for key, value in os.environ.items() if not key.startswith("AETHERIS_")}
        process = spawn(
            (sys.executable, "-m", "aetheris.cli", *argv), log=log, env=kept | {"AETHERIS_KAFKA": self.kafka}
        )
        try:
            yield Process(process, log)
        finally:
            process.kill()
            process.wait()

    def say(self, *numbers: int) -> None:
        asyncio.run(write(self.kafka, self.job, *numbers))

    def places(self) -> list[str]:
        return sorted(asyncio.run(members(self.kafka, GROUPS + self.group)))


@pytest.fixture
def session_members(kafka: str, tmp_path: Path) -> SubscriptionMembers:
    session_members = SubscriptionMembers(kafka, tmp_path, fresh("group"), fresh("subscribed"))
    session_members.say(1)
    return session_members


def test_a_second_of_one_member_is_refused_and_takes_nothing(session_members: SubscriptionMembers) -> None:
    with session_members.subscribed("twin") as first:
        until(lambda: first.read() == ["e-1"], PATIENCE_S)
        places = session_members.places()
        with session_members.subscribed("twin") as second:
            assert second.process.wait(PATIENCE_S) == 1
        assert (
            f"another process reads as member twin of the group {session_members.group}: give each"
            in second.log.read_text()
        )
        session_members.say(2)
        until(lambda: first.read() == ["e-1", "e-2"], PATIENCE_S)
        assert (session_members.places(), len(places), second.read()) == (places, 1, [])


def test_who_comes_after_one_that_was_killed_goes_on_when_its_session_has_ended(
    session_members: SubscriptionMembers,
) -> None:
    with session_members.subscribed("twin") as first:
        until(lambda: first.read() == ["e-1"], PATIENCE_S)
        with session_members.subscribed("twin") as second:
            first.process.kill()
            first.process.wait()
            session_members.say(2)
            until(lambda: bool(second.read()), 5 * SESSION_S)
            assert second.read()[-1] == "e-2"


def test_of_two_that_start_at_once_one_reads(session_members: SubscriptionMembers) -> None:
    """Both may have joined before either could see the other; who lost its place says so, and does not take it back."""
    with session_members.subscribed("twin") as one, session_members.subscribed("twin") as two:
        until(lambda: ended(one) or ended(two), PATIENCE_S)
        lives, gone = (two, one) if ended(one) else (one, two)
        text = gone.log.read_text()
        assert "another process reads as member twin" in text or "membership_lost" in text
        session_members.say(2)
        until(lambda: "e-2" in lives.read(), PATIENCE_S)
        assert not ended(lives)


def ended(one: Process) -> bool:
    return one.process.poll() is not None


def test_who_ends_in_good_order_leaves_its_place_at_once(session_members: SubscriptionMembers) -> None:
    argv = ["subscribe", "--group", session_members.group, "--until-now", "--job", session_members.job]
    env: dict[str, Any] = {**os.environ, "AETHERIS_KAFKA": session_members.kafka}
    subprocess.run([sys.executable, "-m", "aetheris.cli", *argv], env=env, check=True, capture_output=True)
    assert session_members.places() == []
