"""A sealing key that stays in a Vault: what the URI may say, and a Vault that is away, slow, another, or lies."""

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs import seals
from aetheris.runtime.keys import vault as transit
from aetheris.runtime.keys.vault import VaultUnusable, VaultUri
from aetheris.verifier.keys import SealKeys, signing_key
from aetheris.verifier.token_key import KeyAway, TokenKeyUnusable
from aetheris.verifier.vault_key import VaultKey
from tests.testkit.evidence import OTHER_KEY
from tests.testkit.vault import TOKEN, Vault, running_vault

WHOLE = "vault+https://vault.example.org/shared/transit/seal?token-source=file:/run/token"


class Watch:
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
    return f"vault+{vault.url}/transit/seal?token-source=file:{tmp_path}/token"


def test_a_uri_names_the_vault_the_mount_the_key_and_the_file_of_its_token() -> None:
    assert VaultUri.parse(WHOLE) == VaultUri(
        "https://vault.example.org:8200", "shared/transit", "seal", Path("/run/token")
    )
    more = VaultUri.parse(f"{WHOLE}&ca=file:/run/ca.pem&namespace=team/a")
    assert (more.ca, more.namespace) == (Path("/run/ca.pem"), "team/a")


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        (WHOLE.replace("?token-source=file:/run/token", ""), "token-source"),
        (WHOLE.replace("token-source=file:/run/token", "token=hvs.1234"), "token"),
        (f"{WHOLE}&ca=a&ca=b", "twice"),
        (WHOLE.replace("/shared/transit/seal", "/seal"), "MOUNT"),
        (WHOLE.replace("vault.example", "me:hvs.1234@vault.example"), "MOUNT"),
        (WHOLE.replace("vault+https", "vault+http"), "https"),
        (WHOLE.replace(".org", ".org:x"), "read"),
    ],
)
def test_a_uri_that_lacks_something_or_says_too_much_is_refused_by_name(uri: str, named: str) -> None:
    with pytest.raises(VaultUnusable, match=named) as refused:
        VaultUri.parse(uri)
    with pytest.raises(TokenKeyUnusable, match=named):
        VaultKey(uri)
    assert "1234" not in str(refused.value)


def test_a_vault_seals_and_its_public_key_verifies(vault: Vault, uri: str, tmp_path: Path) -> None:
    keys = SealKeys(signing_key(None, uri, tmp_path, dev=False), OTHER_KEY)
    sealed = keys.sign({"tenant": "t", "job_id": "j"})
    assert keys.is_elsewhere
    assert keys.current.public_key == vault.versions[0].public_key()
    assert seals.verify(sealed, keys.current.public_key)
    assert not seals.verify({**sealed, "job_id": "k"}, keys.current.public_key)


def test_a_newer_version_signs_from_the_next_start_on(vault: Vault, uri: str) -> None:
    key = VaultKey(uri)
    vault.versions.append(Ed25519PrivateKey.generate())
    key.public_key().verify(key.sign(b"still the first"), b"still the first")
    again = VaultKey(uri)
    assert again.public_key() == vault.versions[1].public_key()
    again.public_key().verify(again.sign(b"the second"), b"the second")


def test_the_token_is_read_anew_and_goes_into_no_message(vault: Vault, uri: str, tmp_path: Path) -> None:
    watch = Watch()
    key = VaultKey(f"{uri}&namespace=team", watch)
    vault.token = TOKEN[::-1] + "hvs."
    with pytest.raises(KeyAway, match="HTTP 403") as away:
        key.sign(b"x")
    assert "hvs." not in str(away.value)
    (tmp_path / "token").write_text(vault.token)
    watch.now_s += transit.AWAY_S
    key.sign(b"x")
    assert vault.asked[-1][2]["x-vault-namespace"] == "team"
    (tmp_path / "token").write_text("hvs.two\nlines of it")
    with pytest.raises(KeyAway, match="holds no token") as away:
        key.sign(b"x")
    assert "hvs." not in str(away.value)


def test_another_key_under_the_same_name_is_none(vault: Vault, uri: str) -> None:
    key = VaultKey(uri)
    vault.versions[0] = Ed25519PrivateKey.generate()
    with pytest.raises(KeyAway, match="another one"):
        key.sign(b"by whom?")
    asked = len(vault.asked)
    with pytest.raises(KeyAway, match="a moment ago"):
        key.sign(b"and now?")
    assert len(vault.asked) == asked


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nx-long: ", b"HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n"])
def test_one_that_says_little_at_a_time_is_away_when_the_call_s_time_is_over(
    vault: Vault, uri: str, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    key = VaultKey(uri)
    monkeypatch.setattr(transit, "ANSWERS_WITHIN_S", 0.2)
    vault.trickles = head + b" " * 2_000
    began_s = time.monotonic()
    with pytest.raises(KeyAway, match="asked"):
        key.sign(b"x")
    assert time.monotonic() - began_s < 30, "each byte came in time, and all of them take 100 s"
    assert vault.left.wait(30)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"data": {}}',
        b'{"data": {"signature": 7}}',
        b'{"data": {"signature": "vault:v1:AAAA"}}',
        b'{"data": {"signature": "vault:v2:' + b"A" * 86 + b'=="}}',
        b'{"data": {"signature": "vault:v1:' + b"A" * 86 + b'=="}}',
        b"[" * 200_000,
        b" " * (2 * 1024 * 1024),
    ],
)
def test_what_is_no_signature_is_none(vault: Vault, uri: str, body: bytes) -> None:
    key = VaultKey(uri)
    vault.body = body
    with pytest.raises(KeyAway, match="vault: "):
        key.sign(b"x")


@pytest.mark.parametrize("status", [301, 307, 400, 403, 404, 429, 500, 503])
def test_a_vault_that_refuses_is_away_and_a_redirection_is_not_followed(vault: Vault, uri: str, status: int) -> None:
    watch = Watch()
    key = VaultKey(uri, watch)
    vault.status = status
    with pytest.raises(KeyAway, match=f"HTTP {status}"):
        key.sign(b"x")
    vault.status = 200
    watch.now_s += transit.AWAY_S
    key.sign(b"x")


def test_one_that_is_away_takes_one_thread_at_a_time_and_lets_the_others_go(
    vault: Vault, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    monkeypatch.setattr(transit, "ANSWERS_WITHIN_S", 0.3)
    key = VaultKey(uri, watch)
    vault.delay_s = 0.9
    with pytest.raises(KeyAway, match="Timeout"):
        key.sign(b"x")
    asked = len(vault.asked)
    with pytest.raises(KeyAway, match="a moment ago"):
        key.sign(b"x")
    assert len(vault.asked) == asked, "it was not asked again"
    watch.now_s += transit.AWAY_S
    with ThreadPoolExecutor(8) as pool:
        failures = [pool.submit(key.sign, b"x").exception() for _ in range(8)]
    assert all(isinstance(one, KeyAway) for one in failures)
    assert len(vault.asked) == asked + 1


def test_what_is_not_in_the_vault_is_refused_at_start(vault: Vault, uri: str, tmp_path: Path) -> None:
    with pytest.raises(TokenKeyUnusable, match="HTTP 404"):
        VaultKey(uri.replace("/seal?", "/other?"))
    with pytest.raises(TokenKeyUnusable, match="can't be read"):
        VaultKey(f"{uri}-that-is-not-there")
    with pytest.raises(TokenKeyUnusable, match="ca: "):
        VaultKey(f"{uri}&ca=file:{tmp_path}/none.pem")
    vault.type = "ecdsa-p256"
    with pytest.raises(TokenKeyUnusable, match="ed25519"):
        VaultKey(uri)
    vault.type, vault.token = "ed25519", "another"
    with pytest.raises(TokenKeyUnusable, match="HTTP 403"):
        VaultKey(uri)
