"""A sealing key that stays in its token: what the URI may say, and what happens when the token is another."""

from pathlib import Path

import pkcs11
import pytest

from aetheris.proofs import seals
from aetheris.verifier.keys import SealKeys, SealKeyUnusable, signing_key
from aetheris.verifier.token_key import KeyAway, KeyUri, TokenKey, TokenKeyUnusable
from tests.testkit.evidence import OTHER_KEY
from tests.testkit.softhsm import MODULE, PIN, TOKEN, make_pair, make_token, softhsm_needed, uri_of

WHOLE = "pkcs11:token=our%20seals;object=seal?module-path=/lib/p11.so&pin-source=file:/run/pin"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A token with one pair of keys, called seal."""
    make_token(tmp_path, monkeypatch)
    make_pair("seal")
    return tmp_path


def test_a_uri_names_token_key_library_and_the_file_of_its_pin() -> None:
    assert KeyUri.parse(WHOLE) == KeyUri("our seals", "seal", "/lib/p11.so", Path("/run/pin"))


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        (WHOLE.replace("object=seal", "object="), "object"),
        (WHOLE.replace(";object=seal", ""), "object"),
        (WHOLE.replace("&pin-source=file:/run/pin", ""), "pin-source"),
        (f"{WHOLE}&pin-value=1234", "pin-value"),
        (WHOLE.replace("?", ";token=other?"), "token"),
        ("/etc/seal.pem", "pkcs11:"),
    ],
)
def test_a_uri_that_lacks_something_or_says_too_much_is_refused_by_name(uri: str, named: str) -> None:
    with pytest.raises(TokenKeyUnusable, match=named) as refused:
        KeyUri.parse(uri)
    assert "1234" not in str(refused.value)


def test_a_file_and_a_token_are_not_both_the_key(tmp_path: Path) -> None:
    with pytest.raises(SealKeyUnusable, match="AETHERIS_SEAL_KEY_URI"):
        signing_key(tmp_path / "seal.pem", WHOLE, tmp_path, dev=False)


@softhsm_needed
def test_a_token_seals_and_its_public_key_verifies(folder: Path) -> None:
    keys = SealKeys(signing_key(None, uri_of(folder, "seal"), folder, dev=False), OTHER_KEY)
    sealed = keys.sign({"tenant": "t", "job_id": "j"})
    assert keys.is_elsewhere
    assert seals.verify(sealed, keys.current.public_key)
    assert not seals.verify({**sealed, "job_id": "k"}, keys.current.public_key)


@softhsm_needed
@pytest.mark.parametrize(
    ("label", "token", "pin", "why"),
    [
        ("other", TOKEN, PIN, "not one pair"),
        ("seal", "other", PIN, "NoSuchToken"),
        ("seal", TOKEN, "0000", "PinIncorrect"),
    ],
)
def test_what_is_not_in_the_token_is_refused_at_start(folder: Path, label: str, token: str, pin: str, why: str) -> None:
    (folder / "pin").write_text(pin)
    with pytest.raises(TokenKeyUnusable, match=why) as refused:
        TokenKey(KeyUri.parse(uri_of(folder, label, token)))
    assert pin not in str(refused.value)


@softhsm_needed
def test_two_pairs_of_one_label_are_no_key(folder: Path) -> None:
    make_pair("seal")
    with pytest.raises(TokenKeyUnusable, match="not one pair"):
        TokenKey(KeyUri.parse(uri_of(folder, "seal")))


def test_a_library_that_is_not_there_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "pin").write_text(PIN)
    with pytest.raises(TokenKeyUnusable, match="seals"):
        TokenKey(KeyUri("seals", "seal", str(tmp_path / "none.so"), tmp_path / "pin"))


@softhsm_needed
def test_a_session_that_has_ended_is_opened_anew_but_never_with_another_key(folder: Path) -> None:
    key = TokenKey(KeyUri.parse(uri_of(folder, "seal")))
    pkcs11.lib(str(MODULE)).reinitialize()  # the token was away: all sessions are gone
    key.public_key().verify(key.sign(b"once more"), b"once more")
    _replace_pair()
    with pytest.raises(KeyAway, match="another key"):
        key.sign(b"by whom?")


def _replace_pair() -> None:
    pkcs11.lib(str(MODULE)).reinitialize()
    with pkcs11.lib(str(MODULE)).get_token(token_label=TOKEN).open(user_pin=PIN, rw=True) as session:
        for one in list(session.get_objects({pkcs11.Attribute.LABEL: "seal"})):
            one.destroy()
    make_pair("seal")
    pkcs11.lib(str(MODULE)).reinitialize()
