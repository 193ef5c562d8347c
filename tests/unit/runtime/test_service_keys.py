"""Keys in files: nobody else reads them, they are made once, and sign in their certificate's time only."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aetheris.protocol.base.ed25519 import verify
from aetheris.protocol.base.signing import SignedPlace, is_signed, read_signed
from aetheris.protocol.base.writers import Party
from aetheris.runtime.keys.files import KeyUnusable, is_private, load_key, load_service_key, make_installation, make_key
from aetheris.runtime.keys.signing import CertificateNotInForce, Signer

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SERVICES = (Party.PLANNER, Party.LEDGER)


def _made(folder: Path) -> str:
    return make_installation(folder, SERVICES, NOW, NOW + timedelta(days=1))


def test_an_installation_is_made_once(tmp_path: Path) -> None:
    first = _made(tmp_path / "keys")
    assert _made(tmp_path / "keys") == first
    planner, ledger = (load_service_key(tmp_path / "keys", service) for service in SERVICES)
    assert planner.certificate.installation == ledger.certificate.installation == first
    assert planner.certificate.key_id != ledger.certificate.key_id
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "keys").iterdir()} == {0o600}
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


def test_what_a_service_signs_holds(tmp_path: Path) -> None:
    installation = _made(tmp_path)
    held = load_service_key(tmp_path, Party.LEDGER)
    place = SignedPlace(installation, "t", "policy_allowed", "job-1", born="b")
    values = Signer(held.private_key, held.certificate).sign([(place, b'{"n":%d}' % n) for n in range(3)], NOW)
    for value in values:
        read = read_signed(value)
        assert read is not None
        assert is_signed(place, *read, held.certificate.public_key, verify)


@pytest.mark.parametrize("moved", [timedelta(seconds=-1), timedelta(days=1, seconds=1)])
def test_nothing_is_signed_outside_of_the_certificates_time(tmp_path: Path, moved: timedelta) -> None:
    _made(tmp_path)
    held = load_service_key(tmp_path, Party.LEDGER)
    with pytest.raises(CertificateNotInForce):
        Signer(held.private_key, held.certificate).sign([(SignedPlace("i", "t", "x", "k"), b'{"n":1}')], NOW + moved)


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.pem"
    make_key(path)
    load_key(path)
    path.chmod(0o640)
    with pytest.raises(KeyUnusable, match="may be read by others"):
        load_key(path)


@pytest.mark.parametrize(
    ("mode", "owner", "private"),
    [
        (0o600, 10001, True),
        (0o400, 10001, True),
        (0o440, 10001, False),
        (0o604, 10001, False),
        (0o440, 0, True),
        (0o400, 0, True),
        (0o460, 0, False),
        (0o444, 0, False),
        (0o600, 10002, False),
    ],
)
def test_a_key_is_its_users_or_roots_for_his_group(mode: int, owner: int, private: bool) -> None:
    assert is_private(mode, owner, 10001) is private


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\n"])
def test_what_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyUnusable, match="no readable private key"):
        load_key(path)
    with pytest.raises(KeyUnusable, match="no readable private key"):
        load_key(tmp_path / "missing.pem")


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.pem"
    path.touch(mode=0o600)
    rsa = generate_private_key(65537, 2048)
    path.write_bytes(rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(KeyUnusable, match="no Ed25519 key"):
        load_key(path)


def test_a_certificate_of_another_service_key_or_root_is_refused(tmp_path: Path) -> None:
    _made(tmp_path)
    mine, ledgers = tmp_path / "planner.cert.json", tmp_path / "ledger.cert.json"
    kept = mine.read_bytes()
    mine.write_bytes(ledgers.read_bytes())
    with pytest.raises(KeyUnusable, match="another key or service"):
        load_service_key(tmp_path, Party.PLANNER)
    mine.write_bytes(json.dumps({**json.loads(kept), "not_after": "2999-01-01T00:00:00+00:00"}).encode())
    with pytest.raises(KeyUnusable, match="not signed by the root"):
        load_service_key(tmp_path, Party.PLANNER)
    mine.write_bytes(b"{}")
    with pytest.raises(KeyUnusable, match="no certificate"):
        load_service_key(tmp_path, Party.PLANNER)
    mine.write_bytes(kept)
    os.unlink(tmp_path / "root.pem")
    with pytest.raises(KeyUnusable, match="another root"):
        _made(tmp_path)
