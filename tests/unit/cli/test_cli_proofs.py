"""`aetheris verify FILE` and `aetheris export`: a stream is checked offline, and what breaks a rule is named."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typer.testing import CliRunner

from aetheris.cli import streamfile
from aetheris.cli.app import app
from aetheris.cli.streamfile import Stream
from aetheris.proofs import bundle_zip, call_proof
from aetheris.proofs.call_proof import AskedCall
from aetheris.proofs.evidence import judge
from aetheris.sdk.client import JobPage
from tests.testkit.evidence import KEY, OTHER_KEY, TRUSTED, bundle_of, inclusion, redacted_of, sealed
from tests.testkit.proof_histories import JOB, A, Log, clean
from tests.testkit.refused import record_json
from tests.testkit.ssh_keys import SshSigner
from tests.testkit.standalone import SCRIPT

PROOFS = ("execution_hash", "event_chain_root_hash", "tool_invocation_ledger_proof", "replay_proof_result")


def pem(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def stream_of(log: Log) -> Stream:
    records = [record_json(record) for record in log.records]
    return streamfile.of_answer({"job_id": JOB, "keys": [key.to_json() for key in TRUSTED], "records": records})


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A clean, sealed job's stream."""
    path = tmp_path / "s.jsonl"
    path.write_text("".join(f"{line}\n" for line in stream_of(sealed(clean())).lines()))
    return path


def check(path: Path, *more: str) -> tuple[int, dict[str, Any]]:
    by = () if "--public-key" in more else ("--self-signed",)
    shown = CliRunner().invoke(app, ["verify", str(path), "--json", *by, *more])
    return shown.exit_code, json.loads(shown.stdout)


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


NOT_FOR_A_FILE = ("aiokafka", "httpx", "structlog", "pydantic_settings", "aetheris.sdk", "aetheris.gateway.tokens")


def test_who_checks_a_file_waits_for_no_client_and_leaves_the_collector_on(exported: Path) -> None:
    code = f"""
import gc, sys
from aetheris.cli.app import app
app(["verify", {str(exported)!r}, "--self-signed"], standalone_mode=False)
print([name for name in {NOT_FOR_A_FILE} if name in sys.modules], gc.isenabled())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] True"


def test_a_clean_sealed_stream_holds(exported: Path) -> None:
    code, report = check(exported)
    assert code == 0
    assert all(name in report for name in PROOFS)
    assert report["seal"]["ok"]
    assert report["violations"] == []
    assert "holds" in CliRunner().invoke(app, ["verify", str(exported), "--self-signed"]).stdout


def test_one_changed_byte_anywhere_is_found_and_an_event_is_named(exported: Path) -> None:
    original = exported.read_text()
    ids = {record.header("ce_id").decode() for record in sealed(clean()).records}
    for number in range(1, len(original.splitlines())):
        exported.write_text(original)

        def flip(lines: list[dict[str, Any]], at: int = number) -> None:
            value = bytearray(base64.b64decode(lines[at]["value"]))
            value[-2] ^= 1
            lines[at]["value"] = b64(bytes(value))

        rewrite(exported, flip)
        code, report = check(exported)
        assert code == 1
        named = report["violations"][0]
        assert named["event_id"] in ids
        shown = CliRunner().invoke(app, ["verify", str(exported), "--self-signed"])
        assert f"event {named['event_id']} at offset {named['offset']}" in shown.stdout


def test_a_record_that_is_gone_is_missed_wherever_it_was(exported: Path) -> None:
    original = exported.read_text()
    for number in range(1, len(original.splitlines())):
        exported.write_text(original)
        rewrite(exported, lambda lines, at=number: lines.pop(at))
        code, report = check(exported)
        assert code == 1
        assert report["violations"]


@pytest.mark.parametrize("tail", [1, 2, 4])
def test_a_stream_without_its_end_does_not_hold(exported: Path, tail: int) -> None:
    """Whatever its first line says of its length."""

    def cut(lines: list[dict[str, Any]]) -> None:
        del lines[-tail:]
        lines[0]["records"] -= tail

    rewrite(exported, cut)
    code, report = check(exported)
    assert (code, report["ok"], report["violations"][0]["rule"]) == (1, False, "not_sealed")
    last = json.loads(exported.read_text().splitlines()[-1])
    assert report["violations"][0]["offset"] == last["offset"]


def test_a_stream_passed_off_as_another_jobs_is_found(exported: Path) -> None:
    rewrite(exported, lambda lines: lines[0].update(job_id="job-2"))
    code, report = check(exported)
    assert (code, report["ok"], report["violations"][0]["rule"]) == (1, False, "other_job")


def test_the_key_that_counts_may_be_ones_own(exported: Path, tmp_path: Path) -> None:
    own, other = tmp_path / "own.pem", tmp_path / "other.pem"
    own.write_text(pem(KEY))
    other.write_text(pem(Ed25519PrivateKey.generate()))
    assert check(exported, "--public-key", str(own))[0] == 0
    assert check(exported, "--public-key", str(other))[0] == 1


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    path = tmp_path / "b.zip"
    path.write_bytes(bundle_of(sealed(clean()).records))
    return path


def script(*argv: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run([sys.executable, "-I", str(SCRIPT), *argv], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def rules(report: dict[str, Any]) -> list[str]:
    return [broken["rule"] for broken in report["violations"]]


WITHOUT_KEY = "unchanged since sealed by whoever holds these keys"


def test_without_a_key_nothing_holds_unless_that_is_enough(exported: Path, bundled: Path, tmp_path: Path) -> None:
    """Whoever made a file can have sealed it by a key of his own, and put that beside it."""
    empty = ["--data", str(tmp_path / "nothing")]
    for path in (exported, bundled):
        shown = CliRunner().invoke(app, ["verify", str(path), *empty])
        assert (shown.exit_code, WITHOUT_KEY in shown.stdout) == (1, True)
        shown = CliRunner().invoke(app, ["verify", str(path), "--json", *empty])
        assert (shown.exit_code, rules(json.loads(shown.stdout))) == (1, ["no_public_key"])
        assert CliRunner().invoke(app, ["verify", str(path), "--self-signed", *empty]).exit_code == 0
    code, report, said = script(str(bundled))
    assert (code, rules(report), WITHOUT_KEY in said) == (1, ["no_public_key"], True)
    assert script(str(bundled), "--self-signed")[0] == 0
    own = tmp_path / "own.pem"
    own.write_text(pem(KEY))
    assert script(str(bundled), "--public-key", str(own))[0] == 0
    assert script(str(bundled), "--public-key", str(own), "--self-signed")[0] == 2
    for at, code in (("2027-01-01T00:00:00+00:00", 0), ("2027-01-01", 2), ("now", 2)):
        assert script(str(bundled), "--public-key", str(own), "--at", at)[0] == code
    for argv in ([str(bundled), "--public-key", str(own)], [JOB], [JOB, "--from-log"]):
        assert CliRunner().invoke(app, ["verify", *argv, "--self-signed", *empty]).exit_code == 2
    nobody = tmp_path / "none.json"
    nobody.write_text('{"keys": []}')
    assert check(bundled, "--public-key", str(nobody)) == (1, ANY)
    assert rules(check(bundled, "--public-key", str(nobody))[1]) == ["envelope_unknown_key"]


def test_the_key_may_be_configured_or_in_the_data_folder(
    exported: Path, bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "data" / "keys"
    keys.mkdir(parents=True)
    other = tmp_path / "other.pem"
    other.write_text(pem(OTHER_KEY))
    for path in (exported, bundled):
        (keys / "seal.pub").write_text(pem(KEY))
        argv = ["verify", str(path), "--data", str(tmp_path / "data")]
        assert CliRunner().invoke(app, argv).exit_code == 0
        with monkeypatch.context() as patched:
            patched.setenv("AETHERIS_SEAL_KEYS", str(other))
            assert CliRunner().invoke(app, argv).exit_code == 1
            patched.setenv("AETHERIS_SEAL_KEYS", str(keys / "seal.pub"))
            assert CliRunner().invoke(app, ["verify", str(path), "--data", str(tmp_path)]).exit_code == 0
        (keys / "seal.pub").write_text(pem(OTHER_KEY))
        assert CliRunner().invoke(app, argv).exit_code == 1


VIEWS = (["effects"], ["ledger"], ["replay"], ["trace"], ["why", "--tool", "pay"])


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_no_view_shows_what_a_broken_signature_is_over(
    view: list[str], bundled: Path, exported: Path, tmp_path: Path
) -> None:
    """And what nobody vouches for whose key is known here, it says."""
    whole, keys = bundled.read_bytes(), tmp_path / "data" / "keys"
    keys.mkdir(parents=True)
    options = ["--data", str(tmp_path / "data"), "--json"]

    def seen(path: Path) -> tuple[int, bool, bool]:
        shown = CliRunner().invoke(app, [view[0], str(path), *view[1:], *options])
        return shown.exit_code, "unvouched" in shown.stderr, "envelope_signature" in shown.stdout + shown.stderr

    code = seen(bundled)[0]
    assert code in (0, 1)
    assert seen(bundled) == seen(exported) == (code, True, False)
    (keys / "seal.pub").write_text(pem(OTHER_KEY))
    assert seen(bundled) == (code, True, False)
    (keys / "seal.pub").write_text(pem(KEY))
    assert seen(bundled) == (code, False, False)
    envelope = bundle_zip.unpack(whole)
    at = envelope.index(b'"sig":"') + 10
    another = b"A" if envelope[at : at + 1] != b"A" else b"B"
    bundled.write_bytes(bundle_zip.pack(envelope[:at] + another + envelope[at + 1 :]))
    assert seen(bundled) == (2, False, True)
    (keys / "seal.pub").unlink()
    assert seen(bundled) == (2, False, True), "nor by a key of its own"


@pytest.mark.parametrize(
    "text",
    ["", "{}\n", "[]\n", '{"format":"aetheris-stream","version":2}\n', "not json\n"],
)
def test_a_file_that_is_no_stream_is_bad_input_that_names_the_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(text)
    code, answer = check(path)
    assert (code, "line 1" in answer["error"]["message"]) == (2, True)


def test_a_record_that_is_none_is_bad_input_that_names_the_line(exported: Path) -> None:
    rewrite(exported, lambda lines: lines[2].update(value="***"))
    code, answer = check(exported)
    assert (code, "line 3" in answer["error"]["message"]) == (2, True)


def part_of(kind: str, folder: Path) -> list[str]:
    """What `verify` takes for a part of a job."""
    path, keys, log = folder / "part", folder / "seal.pub", Log()
    log.start("n1")
    log.finish("n1", external_id="re_1", result=None)
    log.done()
    log.complete()
    records = sealed(log).records
    if kind == "call":
        asked = AskedCall("re_1", ())
        judged = judge(records, TRUSTED, {}.__getitem__)
        path.write_bytes(call_proof.make(records, judged, inclusion(records[-1].value), asked))
    else:
        path.write_bytes(
            redacted_of(records, *(() if kind == "auditor" else (kind,)), audience=kind * (kind == "auditor"))
        )
    keys.write_text(pem(KEY))
    return [str(path), "--public-key", str(keys), *(["--redacted"] if kind != "call" else [])]


@pytest.mark.parametrize(
    ("kind", "option", "ends"),
    [
        ("call", "--openings", 2),
        ("call", "--erasures", 2),
        ("call", "--signers", 2),
        ("job_created", "--openings", 2),
        ("job_created", "--erasures", 2),
        ("job_created", "--signers", 2),
        ("auditor", "--openings", 2),
        ("auditor", "--erasures", 2),
        ("auditor", "--signers", 0),
    ],
)
def test_what_is_not_judged_of_a_part_is_not_asked_for_in_vain(
    tmp_path: Path, kind: str, option: str, ends: int
) -> None:
    argv, given = part_of(kind, tmp_path), tmp_path / "given"
    given.write_text(SshSigner(1).line("ann"))
    assert CliRunner().invoke(app, ["verify", "--json", *argv]).exit_code == 0
    shown = CliRunner().invoke(app, ["verify", "--json", *argv, option, str(given)])
    assert shown.exit_code == ends
    if ends:
        assert json.loads(shown.stdout)["error"]["details"]["field"] == option


def test_a_pending_key_does_not_hold(tmp_path: Path) -> None:
    log = Log()
    log.start("n1")
    path = tmp_path / "s.jsonl"
    path.write_text("".join(f"{line}\n" for line in stream_of(log).lines()))
    code, report = check(path)
    assert (code, report["tool_invocation_ledger_proof"]["pending_idempotency_keys"]) == (1, [A.key])
    assert "none yet" in CliRunner().invoke(app, ["verify", str(path), "--self-signed"]).stdout


class Evidence:
    """A client that has one stream."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __enter__(self) -> "Evidence":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def jobs(self, **_: object) -> JobPage:
        return JobPage(jobs=())

    def raw_stream(self, job_id: str) -> dict[str, Any]:
        stream = stream_of(self._log)
        return {"job_id": job_id, "keys": [key.to_json() for key in stream.keys], "records": stream.records}

    def evidence(self, _job_id: str) -> bytes:
        return bundle_of(self._log.records)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Log], None]:
    def use(log: Log) -> None:
        monkeypatch.setattr("aetheris.cli.commands.exports.connected", lambda _data: Evidence(log))

    return use


@pytest.mark.parametrize(("name", "options"), [("out.zip", ()), ("out.jsonl", ("--stream",))])
def test_an_export_verifies(serve: Callable[[Log], None], tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    serve(sealed(clean()))
    path = tmp_path / name
    shown = CliRunner().invoke(app, ["export", JOB, "--out", str(path), *options])
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert check(path)[0] == 0
    own = tmp_path / "own.pem"
    own.write_text(pem(KEY))
    assert check(path, "--public-key", str(own))[0] == 0


def test_a_stream_that_breaks_a_rule_is_not_exported_unless_forced(
    serve: Callable[[Log], None], tmp_path: Path
) -> None:
    log = clean()
    log.finish("never-started", name="a")
    serve(log)
    path = tmp_path / "out.jsonl"
    export = ["export", JOB, "--stream", "--out", str(path)]
    shown = CliRunner().invoke(app, export)
    assert (shown.exit_code, path.exists()) == (1, False)
    assert "event e" in shown.stderr
    assert CliRunner().invoke(app, [*export, "--force"]).exit_code == 0
    assert check(path)[0] == 1
