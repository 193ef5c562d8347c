"""Keys of subjects that a Vault wraps: bound to what they are for; one that is away, lies, or binds nothing."""

import os
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aetheris.runtime.keys import vault as transit
from aetheris.runtime.subjects.kms import HiddenCorrupt, KmsRefused, SubjectErased, SubjectKeysAway
from aetheris.runtime.subjects.subject_keys import SubjectKeys
from aetheris.runtime.subjects.vault_kms import VaultKms
from tests.testkit.vault import TOKEN, Vault, running_vault

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = bytes(range(32))


class KmsWatch:
    """A clock that a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def vault() -> Generator[Vault]:
    with running_vault() as vault:
        yield vault


@pytest.fixture
def uri(vault: Vault, tmp_path: Path) -> str:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return f"vault+{vault.url}/transit/subjects?token-source=file:{tmp_path}/token"


async def test_the_store_is_opened_by_the_vault_alone_and_asks_it_once(vault: Vault, uri: str, tmp_path: Path) -> None:
    keys = SubjectKeys(tmp_path / "subjects", VaultKms(uri), lambda: NOW)
    found = (await keys.enrolled("acme", ["ann"]))["ann"]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "subjects").rglob("*") if path.is_file())
    assert found.key.hex().encode() not in kept
    again = SubjectKeys(tmp_path / "subjects", VaultKms(uri), lambda: NOW)
    assert await again.enrolled("acme", ["ann"]) == {"ann": found}
    asked = len(vault.asked)
    assert await again.known([found.k]) == {found.k: found.key}
    assert len(vault.asked) == asked
    await keys.erase("acme", "ann")
    with pytest.raises(SubjectErased):
        await again.known([found.k])


def test_what_is_wrapped_opens_for_what_it_is_for_alone(vault: Vault, uri: str) -> None:
    kms = VaultKms(uri)
    wrapped = kms.wrap(KEY, b"subject a")
    assert kms.unwrap(wrapped, b"subject a") == KEY
    for other in (wrapped[:-8] + "AAAAAAA=", "00" * 60, ""):
        with pytest.raises(HiddenCorrupt):
            kms.unwrap(other, b"subject a")
    with pytest.raises(HiddenCorrupt):
        kms.unwrap(wrapped, b"subject b")
    assert kms.unwrap(wrapped, b"subject a") == KEY, "who says no is not away"
    vault.wrapping = os.urandom(32)
    with pytest.raises(HiddenCorrupt):
        kms.unwrap(wrapped, b"subject a")


@pytest.mark.parametrize("status", [301, 403, 404, 429, 500, 503])
def test_one_that_is_away_says_nothing_of_a_key(vault: Vault, uri: str, status: int) -> None:
    watch = KmsWatch()
    kms = VaultKms(uri, watch)
    wrapped = kms.wrap(KEY, b"a")
    vault.status = status
    with pytest.raises(SubjectKeysAway, match=f"HTTP {status}"):
        kms.unwrap(wrapped, b"a")
    asked = len(vault.asked)
    with pytest.raises(SubjectKeysAway, match="a moment ago"):
        kms.wrap(KEY, b"a")
    assert len(vault.asked) == asked
    vault.status = 200
    watch.now_s += transit.AWAY_S
    assert kms.unwrap(wrapped, b"a") == KEY


@pytest.mark.parametrize(
    "body", [b"{", b'{"data": {}}', b'{"data": {"ciphertext": "x", "plaintext": "?"}}', b" " * (2 * 1024 * 1024)]
)
def test_one_that_lies_is_away(vault: Vault, uri: str, body: bytes) -> None:
    watch = KmsWatch()
    kms = VaultKms(uri, watch)
    wrapped = kms.wrap(KEY, b"a")
    vault.body = body
    with pytest.raises(SubjectKeysAway, match="vault: "):
        kms.wrap(KEY, b"a")
    watch.now_s += transit.AWAY_S
    with pytest.raises(SubjectKeysAway, match="vault: "):
        kms.unwrap(wrapped, b"a")


def test_a_key_that_does_not_bind_or_is_not_there_is_refused_at_start(vault: Vault, uri: str) -> None:
    with pytest.raises(KmsRefused, match="HTTP 404"):
        VaultKms(uri.replace("/subjects?", "/other?"))
    with pytest.raises(KmsRefused, match="token-source"):
        VaultKms(f"vault+{vault.url}/transit/subjects")
    vault.binds = False
    with pytest.raises(KmsRefused, match="aes256-gcm96"):
        VaultKms(uri)
    vault.binds, vault.token = True, "another"
    with pytest.raises(KmsRefused, match="HTTP 403") as refused:
        VaultKms(uri)
    assert "hvs." not in str(refused.value)
