"""What is shown of a job to who may not see all of it: one call, and bundles from which records are left out."""

import base64
import hashlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.forged_bundles import statement_in
from tests.testkit.standalone import SCRIPT
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class SealedCall:
    """A system, and a sealed job of it with a call that the external system has an id of."""

    system: System
    folder: Path
    job: str
    external_id: str
    email: str
    text: str
    """What another call of the job was given."""

    @property
    def keys(self) -> str:
        return str(self.system.data / "keys" / "seal.pub")

    def aetheris(self, *argv: str, ends: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(self.system.data)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
        assert done.returncode == ends, f"{argv}: {done.stdout}{done.stderr}"
        return done

    def asked(self, disclose: str) -> tuple[str, ...]:
        return ("receipt", "--external-id", self.external_id, "--disclose", disclose)

    def receipt(self, name: str, disclose: str) -> Path:
        file = self.folder / name
        self.aetheris(*self.asked(disclose), "--out", str(file))
        assert file.stat().st_mode & 0o077 == 0
        return file

    def export(self, name: str, *options: str) -> Path:
        file = self.folder / name
        self.aetheris("export", self.job, *options, "--out", str(file))
        return file

    def verified(self, file: Path, *options: str, ends: int = 0) -> dict[str, Any]:
        return json.loads(self.aetheris("verify", str(file), "--json", *options, ends=ends).stdout)

    def by_script(self, file: Path, *options: str) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, str(SCRIPT), str(file), "--public-key", self.keys, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Generator[SealedCall]:
    folder = tmp_path_factory.mktemp("disclosed")
    (folder / "seen").touch()
    email, text = f"ann.{secrets.token_hex(8)}@example.org", f"told-{secrets.token_hex(8)}"
    env = {"AETHERIS_TOOLS": "tests.testkit.personal_tools", "PERSONAL_SEEN": str(folder / "seen")}
    with running_system(folder / "data", env) as system:
        args = {"customer": "c-17", "email": email, "amount": 250}
        job = system.completed(
            {"id": "hello", "tool": "greet", "args": {"text": text}},
            {"id": "refund", "tool": "pay", "args": args, "depends_on": ["hello"]},
        )
        system.wait_sealed(job)
        external_id = f"re_{hashlib.sha256(email.encode()).hexdigest()[:12]}"
        yield SealedCall(system, folder, job, external_id, email, text)


def test_one_call_is_shown_by_itself_with_what_was_asked_for(sealed: SealedCall) -> None:
    file = sealed.receipt("call.json", "tool,amount")
    shown = sealed.verified(file)
    assert (shown["job_id"], shown["step"], shown["tool"]) == (sealed.job, "refund", "pay")
    assert (shown["args"], shown["all_args"], shown["external_id"]) == ({"amount": 250}, False, sealed.external_id)
    everything = file.read_text() + base64.b64decode(json.loads(file.read_text())["seal"]).decode()
    for other in ("c-17", "customer", "email", sealed.email, sealed.text):
        assert other not in everything
    assert "holds: this call" in sealed.aetheris("verify", str(file), "--public-key", sealed.keys).stdout
    ends, by_script = sealed.by_script(file)
    assert (ends, by_script["args"], by_script["not_shown"]) == (0, {"amount": 250}, shown["not_shown"])


def test_all_arguments_are_shown_as_such(sealed: SealedCall) -> None:
    shown = sealed.verified(sealed.receipt("args.json", "args"))
    assert shown["args"] == {"amount": 250, "customer": "c-17", "email": sealed.email}
    assert (shown["all_args"], shown["opened_values"]) == (True, 1)
    assert "no_such_field" in sealed.aetheris(*sealed.asked("price"), ends=1).stdout


def test_what_is_hidden_is_opened_alone(sealed: SealedCall) -> None:
    file = sealed.receipt("opened.json", "tool,email")
    assert sealed.verified(file)["args"]["email"] == sealed.email
    parsed = json.loads(file.read_text())
    assert [one["value"] for one in parsed["openings"]] == [sealed.email]
    parsed["openings"][0]["value"] = "bob@example.org"
    file.write_text(json.dumps(parsed))
    assert [one["rule"] for one in sealed.verified(file, ends=1)["violations"]] == ["opening_differs"]


def test_a_call_that_is_not_there_is_not_shown(sealed: SealedCall) -> None:
    assert "unknown_call" in sealed.aetheris("receipt", "--external-id", "re_none", ends=1).stdout


def test_who_looks_into_who_looked_is_told(sealed: SealedCall) -> None:
    sealed.receipt("told.json", "tool")
    sealed.export("told.zip", "--for", "auditor")
    rows = json.loads(sealed.aetheris("audit", "--json").stdout)["records"]
    told = {(row.get("action"), row.get("route"), row.get("subject")) for row in rows}
    for route in ("call-proof", "evidence"):
        assert ("export", f"GET /api/jobs/{{job_id}}/{route}", sealed.job) in told


@pytest.mark.parametrize(
    ("options", "ruled", "hides"),
    [
        (("--for", "auditor"), True, False),
        (("--redact", "arguments,results"), False, True),
        (("--redact", "tool_invocation_finished"), False, False),
    ],
)
def test_of_a_redacted_bundle_the_rest_is_proved_and_the_gaps_are_named(
    sealed: SealedCall, options: tuple[str, ...], ruled: bool, hides: bool
) -> None:
    file = sealed.export("redacted.zip", *options)
    assert [one["rule"] for one in sealed.verified(file, ends=1)["violations"]] == ["redacted"]
    report = sealed.verified(file, "--redacted", "--installation", sealed.verified(file, ends=1)["installation"])
    whole = sealed.verified(sealed.export("whole.zip"))
    assert (report["ok"], report["redacted"]["rules_checked"], report["unproven"]) == (True, ruled, [])
    for name in ("event_tree_root_hash", "event_count", "installation"):
        assert report[name] == whole[name]
    ends, other = sealed.by_script(file, "--redacted")
    assert (ends, other["redacted"]) == (0, report["redacted"])
    ends, other = sealed.by_script(file)
    assert (ends, [one["rule"] for one in other["violations"]]) == (1, ["redacted"])
    values = [one["value"] for one in statement_in(file.read_bytes())["predicate"]["records"] if "value" in one]
    assert any(sealed.text.encode() in base64.b64decode(value) for value in values) != hides
    for command in ("effects", "ledger", "trace"):
        assert "redacted" in sealed.aetheris(command, str(file), "--json", ends=2).stdout


def test_what_can_not_be_left_out_is_refused_by_name(sealed: SealedCall) -> None:
    refused = sealed.aetheris("export", sealed.job, "--redact", "job_sealed", "--out", str(sealed.folder / "x"), ends=2)
    assert "job_sealed is always shown" in refused.stderr
    assert not (sealed.folder / "x").exists()
