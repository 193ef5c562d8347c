"""check_bundle.py, the verifier to read: short, of the standard library alone, on every Python that is here."""

import ast
import base64
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.cli import streamfile
from aetheris.proofs.trust import TrustedKey
from tests.replay.test_tamperings import BASES, CORPUS, honest
from tests.testkit import standalone
from tests.testkit.evidence import OTHER_KEY, TRUSTED, bundle_of, redacted_of, sealed
from tests.testkit.golden import FOLDER
from tests.testkit.proof_histories import clean
from tests.testkit.tamperings import Records, drop, edit, forged, history, kind_of, sealed_anew

spec = importlib.util.find_spec("aetheris_check.check_bundle")
assert spec is not None
assert spec.origin is not None
SCRIPT = Path(spec.origin)
STREAMS = sorted(path for path in FOLDER.glob("*/*.jsonl") if not path.stem.startswith("simulated"))
"""Which real systems wrote, and sealed."""
EVIDENCE = Path(__file__).parents[3] / "docs" / "evidence.md"
ORDER = 2**252 + 27742317777372353535851937790883648493


def checked(path: Path, *options: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    run = [python, "-I", str(SCRIPT), str(path), *options]
    return subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "seal.pub"
    path.write_text(TRUSTED[0].to_json()["public_key"])
    return path


def saved(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "job.zip"
    path.write_bytes(data)
    return path


def test_it_can_be_read_in_one_sitting() -> None:
    lines = SCRIPT.read_text().splitlines()
    assert len(lines) <= 250
    assert max(map(len, lines)) <= 120


def test_it_needs_nothing_but_the_standard_library() -> None:
    imports = [one for one in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(one, (ast.Import, ast.ImportFrom))]
    names = {alias.name for one in imports if isinstance(one, ast.Import) for alias in one.names}
    names |= {one.module or "" for one in imports if isinstance(one, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names


def interpreter(minor: int) -> str | None:
    """A Python 3.minor of this machine; where pyenv stands in for it, the one behind that."""
    found = shutil.which(f"python3.{minor}")
    behind = sorted(Path(found).parent.parent.glob(f"versions/3.{minor}.*/bin/python")) if found else []
    return str(behind[-1]) if behind else found


@pytest.mark.parametrize("minor", range(8, 15))
def test_each_python_that_is_here_runs_it(minor: int, tmp_path: Path, pem: Path) -> None:
    found = interpreter(minor)
    if found is None:
        pytest.skip(f"no Python 3.{minor} here: not run")
    answer = checked(saved(tmp_path, bundle_of(sealed(clean()).records)), "--public-key", str(pem), python=found)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("holds: job-1, 11 records, sealed 2026-01-01")
    assert "not checked here" in answer.stdout


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_what_real_systems_sealed_holds(stream: Path, tmp_path: Path) -> None:
    read = streamfile.read(stream)
    keys = (*TRUSTED, *read.keys)
    trusted = tmp_path / "keys.json"
    trusted.write_text(json.dumps({"keys": [key.to_json() for key in keys]}))
    data = bundle_of(list(read.raw()), keys=keys)
    answer = checked(saved(tmp_path, data), "--public-key", str(trusted))
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize(("names", "calls"), [("reasons", ""), ("arguments", " not"), ("results", " not")])
def test_what_is_left_out_is_said(stream: Path, names: str, calls: str, tmp_path: Path) -> None:
    read = streamfile.read(stream)
    keys = (*TRUSTED, *read.keys)
    trusted = tmp_path / "keys.json"
    trusted.write_text(json.dumps({"keys": [key.to_json() for key in keys]}))
    data = redacted_of(list(read.raw()), names, keys=keys)
    path = saved(tmp_path, data)
    answer = checked(path, "--public-key", str(trusted), "--redacted")
    assert answer.returncode == 0, answer.stderr
    assert "; left out: " in answer.stdout
    assert (f"calls{calls} checked" in answer.stdout) or not calls, answer.stdout
    answer = checked(path, "--public-key", str(trusted))
    assert (answer.returncode, answer.stdout, answer.stderr.split()[1]) == (1, "", "redacted")


def test_without_a_key_it_is_only_unchanged(tmp_path: Path) -> None:
    path = saved(tmp_path, bundle_of(sealed(clean()).records))
    answer = checked(path)
    assert (answer.returncode, answer.stderr.partition(":")[0]) == (
        1,
        "unchanged since sealed by whoever holds these keys",
    )
    assert checked(path, "--self-signed").returncode == 0


def test_wrong_usage_ends_with_2(tmp_path: Path) -> None:
    assert checked(tmp_path / "none.zip").returncode == 2


def test_another_root_is_refused(tmp_path: Path, pem: Path) -> None:
    path = saved(tmp_path, bundle_of(sealed(clean()).records))
    answer = checked(path, "--public-key", str(pem), "--installation", "0" * 64)
    assert answer.returncode == 1


def load() -> Any:
    return importlib.import_module("aetheris_check.check_bundle")


def test_its_ed25519_is_the_one_of_everybody() -> None:
    """Signatures of OpenSSL's hold, changed ones don't, and both say the same of what was made up."""
    seed = int(os.environ.get("AETHERIS_TEST_SEED", "1"))
    print(f"seed {seed}; AETHERIS_TEST_SEED sets another")  # noqa: T201  whoever sees it fail needs it
    random, script = Random(seed), load()  # noqa: S311  a test's choice
    for length in range(60):
        key = Ed25519PrivateKey.from_private_bytes(random.randbytes(32))
        public, message = key.public_key(), random.randbytes(length)
        raw, signature = public.public_bytes_raw(), bytearray(key.sign(message))
        assert script.is_signed(raw, bytes(signature), message)
        other = (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(33, "little")[:32]
        assert not script.is_signed(raw, bytes(signature[:32]) + other, message), "s is below the order"
        signature[random.randrange(64)] ^= 1 << random.randrange(8)
        try:
            public.verify(bytes(signature), message)
            holds = True
        except InvalidSignature:
            holds = False
        assert script.is_signed(raw, bytes(signature), message) == holds


def test_vectors_of_rfc_8032() -> None:
    script = load()
    raw = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert script.is_signed(raw, signature, b"\x72")
    assert not script.is_signed(raw, signature, b"\x73")


def test_another_keys_seal_is_none(tmp_path: Path, pem: Path) -> None:
    data = bundle_of(sealed(clean(), OTHER_KEY).records, keys=(*TRUSTED, TrustedKey(OTHER_KEY.public_key())))
    answer = checked(saved(tmp_path, data), "--public-key", str(pem))
    assert (answer.returncode, answer.stderr.split()[1]) == (1, "not_sealed")


@pytest.mark.parametrize("base", BASES)
def test_what_nobody_touched_holds(base: str, tmp_path: Path, pem: Path) -> None:
    answer = checked(saved(tmp_path, honest(base)), "--public-key", str(pem))
    assert (answer.returncode, answer.stderr) == (0, "")


def test_of_the_corpus_it_refuses_what_needs_no_rules_of_a_job(tmp_path: Path, pem: Path) -> None:
    refused = set[str]()
    for name, tampering in CORPUS.items():
        answer = checked(saved(tmp_path, tampering.bundle), "--public-key", str(pem), "--redacted")
        refused |= {name} if answer.returncode == 1 else set()
        assert answer.stderr.startswith("refused: ") if answer.returncode else "not checked here" in answer.stdout
        assert ("holds" in answer.stdout) == (answer.returncode == 0), "nothing is said to hold before all does"
    assert len(refused) >= 110
    assert f"corpus of {len(CORPUS)} tamperings](" in EVIDENCE.read_text()
    assert f"refuse all, it refuses {len(refused)}:" in EVIDENCE.read_text()
    strangers = {name for name, tampering in CORPUS.items() if tampering.power == "stranger"}
    assert strangers <= refused, "who has no key gets nothing past it"


def approved_by_nobody(node: str) -> Records:
    """A call that can't be undone succeeds; nobody permitted it, and what started is said to be another node's."""
    records = history("approved")
    for kind in ("approval_requested", "approval_decided"):
        while any(kind_of(one) == kind and json.loads(one.value)["node_id"] == "a" for one in records):
            drop(records, kind, 0, node_id="a")
    job = json.loads(records[0].value)["job_id"]
    about = {"node_id": node, "external_key": f"aetheris:{job}:{node}:0"}
    edit(records, "tool_invocation_started", 0, {"node_id": "a"}, **about)
    return records


@pytest.mark.parametrize("node", ["a", "d", "nobodys"])
def test_what_can_not_be_undone_needs_a_permission_whatever_its_start_names(
    node: str, tmp_path: Path, pem: Path
) -> None:
    data = forged(sealed_anew(approved_by_nobody(node)))
    answer = checked(saved(tmp_path, data), "--public-key", str(pem))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.split()[1] == "success_without_valid_start"


@pytest.mark.parametrize("rules", [0, 2, "1", True, 1.0, [1]])
def test_a_job_under_rules_that_it_does_not_know_is_refused(rules: object, tmp_path: Path, pem: Path) -> None:
    records = history("approved")
    edit(records, "job_created", 0, {}, rules=rules)
    answer = checked(saved(tmp_path, forged(sealed_anew(records))), "--public-key", str(pem))
    assert (answer.returncode, answer.stderr.split()[1]) == (1, "not_born")


def test_how_a_report_was_learnt_says_nothing_of_who_may_plan() -> None:
    signed_by = load().SIGNED_BY
    assert signed_by["plan_generated"] == signed_by["job_completed"] == signed_by["job_created"] == "planner"
    assert {signed_by["tool_invocation_finished", via] for via in ("probe", "human", "ledger")} == {"ledger"}


@pytest.mark.parametrize(
    "body",
    [
        {"key_id": [1]},
        {"key_id": {}},
        {"key_id": TRUSTED[0].key_id, "event_count": 1},
        {"key_id": TRUSTED[0].key_id, "event_count": "x", "signature": 1},
    ],
)
@pytest.mark.parametrize("kind", ["job_sealed", "decision_snapshot"])
def test_what_a_stranger_appended_refuses_nothing(kind: str, body: dict[str, Any], tmp_path: Path, pem: Path) -> None:
    log = clean()
    log.add(kind, **body)
    answer = checked(saved(tmp_path, forged(sealed(log).records)), "--public-key", str(pem))
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_key_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    key, keys = TRUSTED[0].to_json(), tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key | {"revoked_at": "2020-01-01T00:00:00+00:00"}, key]}))
    answer = checked(saved(tmp_path, bundle_of(sealed(clean()).records)), "--public-key", str(keys))
    assert answer.returncode == 1


WITNESS = "w.example/1+00000000+" + base64.b64encode(b"\4" + bytes(32)).decode()
ITS_KEY_AGAIN = WITNESS.replace("1+", "2+", 1)
OF_ITS_NAME = "w.example/1+00000000+" + base64.b64encode(b"\4" + bytes(31) + b"\1").decode()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (("--witness", WITNESS), "no_quorum"),
        (("--witness", WITNESS, "--quorum", "2"), "bad_witnesses"),
        (("--witness", WITNESS, "--quorum", "-1"), "bad_witnesses"),
        (("--witness", WITNESS, "--witness", ITS_KEY_AGAIN), "bad_witnesses"),
        (("--witness", WITNESS, "--witness", OF_ITS_NAME), "undecodable"),
    ],
)
def test_witnesses_are_several_and_as_many_as_asked_for(
    options: tuple[str, ...], rule: str, tmp_path: Path, pem: Path
) -> None:
    path = saved(tmp_path, bundle_of(sealed(clean()).records))
    answer = checked(path, "--public-key", str(pem), *options)
    assert (answer.returncode, answer.stderr.split()[1]) == (1, rule)


@pytest.mark.parametrize("script", [SCRIPT, standalone.SCRIPT], ids=lambda path: path.name)
def test_the_published_hash_is_the_files(script: Path) -> None:
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    assert f"{digest}  {script.name}\n" in EVIDENCE.read_text()
