"""A running system whose approvers sign, each with his own key: Ann submits, Bob and the others have keys."""

import json
import subprocess
import sys
from collections.abc import Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from aetheris.cli.app import app
from tests.testkit.approvers import TENANTS
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.ssh_keys import allowed, keygen
from tests.testkit.standalone import SCRIPT
from tests.testkit.tokens import write_tokens

POLICY = f"""
[[rules]]
name = "one"
tools = ["poke_probeable"]
effect = "approval"
signed = true
[[rules]]
name = "two"
tools = ["poke_irreversible"]
effect = "approval"
approvals = 2
signed = true
{ALLOW_REST}"""


@dataclass(frozen=True)
class SigningRig(Rig):
    keys: Path
    """A folder with an SSH key of each, by his name."""
    signers: Path

    def cli(self, *argv: str) -> Result:
        """In a thread of its own: a test's may have a loop that runs."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(CliRunner().invoke, app, [*argv, "--data", str(self.system.data)]).result()

    def say(self, who: str, request: str, *argv: str, action: str = "approve") -> Result:
        return self.cli(action, request, "--as", who, *argv)

    def signed(self, who: str, request: str, *argv: str, key: str = "", action: str = "approve") -> Result:
        return self.say(who, request, "--sign-with", str(self.keys / (key or who)), *argv, action=action)

    def ask(self, tag: str, tool: str = "poke_irreversible") -> tuple[str, str]:
        """A job that waits, and the request's id."""
        job = self.system.submit({"id": "pay", "tool": tool, "args": {"tag": tag}, "irreversible": True})
        until(lambda: any(step.get("request_id") for step in self.system.job(job)["steps"]), 60.0)
        return job, self.system.job(job)["steps"][0]["request_id"]

    def from_log(self, job: str, *argv: str) -> dict[str, Any]:
        """What somebody finds who has the log, and perhaps knows the signers."""
        shown = self.cli("verify", job, "--from-log", "--json", *argv)
        return json.loads(shown.stdout)

    def rules(self, job: str, *argv: str) -> list[str]:
        return [one["rule"] for one in self.from_log(job, *argv)["violations"]]

    def check_bundle(self, job: str, folder: Path, others: Path) -> None:
        """It holds by the signers, and not by `others`: with a stranger's Python, and the script that stands alone."""
        file = folder / "job.zip"
        assert self.cli("export", job, "--out", str(file)).exit_code == 0
        public = str(self.system.data / "keys" / "seal.pub")
        for signers, wanted in ((self.signers, 0), (others, 1)):
            argv = [sys.executable, str(SCRIPT), str(file), "--public-key", public, "--signers", str(signers)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == wanted, done.stdout + done.stderr
            shown = self.cli("verify", str(file), "--signers", str(signers))
            assert (shown.exit_code == 0) is (wanted == 0), shown.output


@contextmanager
def running_signing_rig(
    folder: Path, having: Collection[str], allowing: Collection[str], more: Sequence[str] = ()
) -> Generator[SigningRig]:
    """Up, and down again.

    Args:
        having: who has an SSH key.
        allowing: whose counts.
        more: lines of other keys that do.
    """
    keys = folder / "keys"
    keys.mkdir()
    for who in having:
        keygen(keys, who)
    signers = allowed(folder, {who: keys / who for who in allowing})
    signers.write_text(signers.read_text() + "".join(f"{line}\n" for line in more))
    write_tokens(folder / "data", TENANTS)
    env = ruled_by(folder, POLICY) | {"AETHERIS_SIGNERS": str(signers)}
    with running_rig(folder, env) as running:
        yield SigningRig(running.system, running.external, keys, signers)
