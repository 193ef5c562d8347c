"""`aetheris root`: a root and its word for services, in files that nobody else reads."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.ed25519 import verify
from aetheris.protocol.base.signing import is_revocation, read_revocation
from aetheris.protocol.base.writers import Party
from aetheris.runtime.keys.files import KeyUnusable, load_service_key


def run(*args: object, ends: int = 0) -> dict[str, Any]:
    shown = CliRunner().invoke(app, ["root", *map(str, args), "--json"])
    assert shown.exit_code == ends, shown.output
    return json.loads(shown.stdout)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    run("new", tmp_path / "root.pem")
    return tmp_path / "root.pem"


def test_a_root_is_made_once_and_for_its_owner_alone(root: Path) -> None:
    assert root.stat().st_mode & 0o777 == 0o600
    before = root.read_bytes()
    assert run("new", root, ends=1)["error"]["code"] == "key_exists"
    assert root.read_bytes() == before
    assert len(run("show", root)["key_id"]) == 64


@pytest.mark.parametrize("service", ["planner", "ledger", "prober", "auditor"])
def test_a_service_gets_a_key_and_a_certificate_that_it_can_start_with(root: Path, service: str) -> None:
    folder = root.parent / "keys"
    made = run("certify", service, "--root", root, "--folder", folder, "--days", 30)
    held = load_service_key(folder, Party(service))
    assert made["installation"] == held.certificate.installation == run("show", root)["key_id"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    left = datetime.fromisoformat(made["not_after"]) - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)
    assert datetime.fromisoformat(made["not_before"]) < datetime.now(UTC)


def test_a_certificate_is_renewed_for_the_same_key_and_a_key_is_rotated(root: Path) -> None:
    folder = root.parent / "keys"
    first, renewed = (run("certify", "ledger", "--root", root, "--folder", folder, "--days", d) for d in (1, 9))
    assert first["key_id"] == renewed["key_id"]
    assert first["not_after"] < renewed["not_after"]
    rotated = run("certify", "ledger", "--root", root, "--folder", folder, "--new-key")
    assert rotated["key_id"] != first["key_id"]
    assert load_service_key(folder, Party.LEDGER).certificate.key_id == rotated["key_id"]


def test_a_key_that_never_leaves_its_machine_is_certified_by_its_public_half(root: Path) -> None:
    key = Ed25519PrivateKey.generate()
    public, folder = root.parent / "planner.pub", root.parent / "out"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    run("certify", "planner", "--root", root, "--folder", folder, "--public-key", public)
    assert [path.name for path in folder.iterdir()] == ["planner.cert.json"]
    with pytest.raises(KeyUnusable):
        load_service_key(folder, Party.PLANNER)


def test_a_revocation_is_the_roots_and_names_a_key_or_its_certificate(root: Path) -> None:
    folder, out = root.parent / "keys", root.parent / "revoked.json"
    made = run("certify", "ledger", "--root", root, "--folder", folder)
    for named in (made["key_id"], folder / "ledger.cert.json"):
        said = run("revoke", named, "--root", root, "--reason", "its disk was lost", "--out", out)
        assert said == json.loads(out.read_text())
        revocation = read_revocation(said)
        assert revocation is not None
        assert (revocation.key_id, revocation.reason) == (made["key_id"], "its disk was lost")
        assert is_revocation(revocation, made["installation"], verify)


def test_what_names_no_key_or_is_the_root_is_not_revoked(root: Path) -> None:
    itself = run("show", root)["key_id"]
    for named, reason in (("ledger", "r"), (root, "r"), (itself, "r"), ("0" * 64, ""), ("0" * 64, "a\nb")):
        assert run("revoke", named, "--root", root, "--reason", reason, ends=2)["error"]["code"] == "bad_request"


@pytest.mark.parametrize("service", ["executor", "gateway", "nobody"])
def test_who_signs_nothing_gets_no_certificate(root: Path, service: str) -> None:
    found = run("certify", service, "--root", root, "--folder", root.parent / "keys", ends=2)
    assert service in found["error"]["message"]
    assert not (root.parent / "keys").exists()


def test_what_is_no_root_or_no_public_key_is_named(root: Path) -> None:
    none = root.parent / "none.pem"
    for args in (("show", none), ("certify", "ledger", "--root", none, "--folder", root.parent)):
        assert str(none) in run(*args, ends=2)["error"]["message"]
    none.write_text("-----BEGIN PUBLIC KEY-----\n")
    args = ("certify", "ledger", "--root", root, "--folder", root.parent, "--public-key", none)
    assert run(*args, ends=2)["error"]["code"] == "bad_public_key"
    assert run(*args, "--new-key", ends=2)["error"]["code"] == "bad_request"
    root.chmod(0o644)
    assert "read by others" in run("show", root, ends=2)["error"]["message"]
