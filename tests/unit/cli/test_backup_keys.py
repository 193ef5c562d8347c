"""A backup's keys: encrypted to whoever is named, opened by nobody else, laid into no folder that has some."""

import io
import tarfile
from pathlib import Path
from typing import Any, cast

import pyrage
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from aetheris.cli.backup import key_copies
from aetheris.cli.console import CommandError

AGE = cast("Any", pyrage)
"""It ships no types."""
SECRET = b"-----BEGIN PRIVATE KEY-----\nseal\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name, content in {
        "keys/seal.pem": SECRET,
        "keys/records/planner.pem": b"planner",
        "keys/checkpoint": b"what was signed last",
        "keys/.seal.pem.123": b"half",
        "tokens/ann": b"token",
        "tokens.toml": b"[[tokens]]",
        "subjects/one": b"a person's key",
        "aetheris.toml": b"",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "keys" / "link").symlink_to("/etc/passwd")
    return folder


@pytest.fixture
def me(tmp_path: Path) -> tuple[str, Path]:
    identity = AGE.x25519.Identity.generate()
    path = tmp_path / "me"
    path.write_text(f"# age's\n{identity}\n")
    return str(identity.to_public()), path


def backup(folder: Path, sealed: bytes) -> Path:
    folder.mkdir()
    (folder / key_copies.KEYS).write_bytes(sealed)
    return folder


def sealed_to(data: Path, *named: str) -> bytes:
    policy = data / "aetheris.toml"
    return key_copies.sealed(data, {"policy.toml": policy}, key_copies.recipients(named))


def test_keys_tokens_and_policy_come_back_and_nothing_else(data: Path, me: tuple[str, Path], tmp_path: Path) -> None:
    found = backup(tmp_path / "backup", sealed_to(data, me[0]))
    assert SECRET not in (found / key_copies.KEYS).read_bytes()
    held = key_copies.opened(found, me[1])
    assert set(held) == {
        "keys/seal.pem",
        "keys/records/planner.pem",
        "tokens/ann",
        "tokens.toml",
        "restored-settings/policy.toml",
    }, "neither persons' keys nor what is no key"
    new = tmp_path / "new"
    key_copies.lay(held, new)
    assert (new / "keys" / "seal.pem").read_bytes() == SECRET
    assert (new / "keys" / "seal.pem").stat().st_mode & 0o077 == 0
    with pytest.raises(CommandError) as refused:
        key_copies.lay(held, new)
    assert refused.value.code == "not_empty"


def test_a_key_of_ssh_opens_it_too_and_each_of_several(data: Path, me: tuple[str, Path], tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "ssh").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    (tmp_path / "both").write_text(f"# who may\n{me[0]}\n{public} ann@example.org\n")
    found = backup(tmp_path / "backup", sealed_to(data, str(tmp_path / "both")))
    assert key_copies.opened(found, tmp_path / "ssh") == key_copies.opened(found, me[1])


@pytest.mark.parametrize("named", ["age1nobody", "ssh-ed25519 AAAA", "no such file", "/dev/null"])
def test_who_is_no_recipient_is_named(named: str) -> None:
    with pytest.raises(CommandError) as refused:
        key_copies.recipients([named])
    assert refused.value.code == "no_recipient"


def test_others_open_nothing(data: Path, me: tuple[str, Path], tmp_path: Path) -> None:
    found = backup(tmp_path / "backup", sealed_to(data, me[0]))
    other = tmp_path / "other"
    other.write_text(str(AGE.x25519.Identity.generate()))
    for path, code in (
        (other, "not_a_recipient"),
        (data / "keys" / "seal.pem", "no_identity"),
        (tmp_path, "no_identity"),
    ):
        with pytest.raises(CommandError) as refused:
            key_copies.opened(found, path)
        assert refused.value.code == code
    changed = bytearray((found / key_copies.KEYS).read_bytes())
    changed[-1] ^= 1
    (found / key_copies.KEYS).write_bytes(bytes(changed))
    with pytest.raises(CommandError):
        key_copies.opened(found, me[1])
    (found / key_copies.KEYS).unlink()
    with pytest.raises(CommandError) as refused:
        key_copies.opened(found, me[1])
    assert refused.value.code == "no_keys"


@pytest.mark.parametrize("name", ["../keys/seal.pem", "keys/../../x", "/keys/x", "kafka/log", "keys", "tokens.toml/x"])
def test_who_packs_something_else_has_nothing_written(me: tuple[str, Path], tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    found = backup(tmp_path / "backup", AGE.encrypt(packed.getvalue(), key_copies.recipients([me[0]])))
    with pytest.raises(CommandError) as refused:
        key_copies.opened(found, me[1])
    assert refused.value.code == "backup_damaged"


def test_a_folder_without_keys_says_so(tmp_path: Path, me: tuple[str, Path]) -> None:
    with pytest.raises(CommandError) as refused:
        key_copies.sealed(tmp_path, {}, key_copies.recipients([me[0]]))
    assert refused.value.code == "no_keys"
