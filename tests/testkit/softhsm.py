"""A token of SoftHSM, with a pair of Ed25519 keys that never leaves it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pkcs11
import pytest

PIN, SO_PIN, TOKEN = "1029384756", "5647382910", "seals"
_MODULES = (Path("/usr/lib/softhsm/libsofthsm2.so"), *Path("/usr/lib").glob("*/softhsm/libsofthsm2.so"))
MODULE = next((path for path in _MODULES if path.exists()), None)

softhsm_needed = pytest.mark.skipif(
    MODULE is None or shutil.which("softhsm2-util") is None, reason="softhsm2 comes with `make system-deps`"
)


def make_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty token; this process and those that it starts find it, and none of before."""
    pkcs11.unload(str(MODULE))
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\n")
    (folder / "pin").write_text(f"{PIN}\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(folder / "softhsm2.conf"))
    init = ["softhsm2-util", "--init-token", "--free", "--label", TOKEN, "--pin", PIN, "--so-pin", SO_PIN]
    subprocess.run(init, check=True, capture_output=True)


def uri_of(folder: Path, label: str, token: str = TOKEN) -> str:
    """What names a key of the token, and the file with its PIN."""
    return f"pkcs11:token={token};object={label}?module-path={MODULE}&pin-source=file:{folder / 'pin'}"


_MAKE = """
import sys, pkcs11
from pkcs11 import Attribute, KeyType, Mechanism
module, token, pin, label = sys.argv[1:]
with pkcs11.lib(module).get_token(token_label=token).open(user_pin=pin, rw=True) as session:
    curve = {Attribute.EC_PARAMS: bytes.fromhex("06032b6570")}
    domain = session.create_domain_parameters(KeyType.EC_EDWARDS, curve, local=True)
    domain.generate_keypair(mechanism=Mechanism.EC_EDWARDS_KEY_PAIR_GEN, store=True, label=label)
"""


def make_pair(label: str) -> None:
    """A fresh pair of keys under a label, made by a process of its own."""
    subprocess.run([sys.executable, "-c", _MAKE, str(MODULE), TOKEN, PIN, label], check=True, capture_output=True)
