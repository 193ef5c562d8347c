"""The vector of docs/hidden-values.md, made anew from what that page says, and by the code."""

import hashlib
import hmac
import json
import re
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from aetheris.protocol.base.hidden_values import HiddenValue
from aetheris.runtime.subjects.hidden_store import sealed

PAGE = (Path(__file__).parent.parent.parent / "docs" / "hidden-values.md").read_text()
(VECTOR,) = (json.loads(found) for found in re.findall(r"```json\n(\{\n.*?\n\})\n```", PAGE, re.DOTALL))
KEY, VALUE = bytes.fromhex(VECTOR["key"]), json.dumps(VECTOR["value"]).encode()
TENANT, JOB, K = (VECTOR[name].encode() for name in ("tenant", "job", "k"))


def test_the_page_has_what_it_says() -> None:
    salt = hmac.digest(KEY, b"c\0" + TENANT + b"\0" + JOB + b"\0" + VALUE, "sha256")
    assert hashlib.sha256(b"ah1\0" + salt + b"\0" + VALUE).hexdigest() == VECTOR["c"]
    assert hmac.digest(KEY, b"d\0" + TENANT + b"\0" + VALUE, "sha256").hex() == VECTOR["d"]
    about = b"\0".join((TENANT, JOB, K, VECTOR["c"].encode()))
    cipher = AESGCMSIV(hmac.digest(KEY, b"e", "sha256"))
    opened = cipher.decrypt(bytes.fromhex(VECTOR["c"])[:12], bytes.fromhex(VECTOR["ciphertext"]), about)
    assert opened == VALUE


def test_the_code_makes_the_same() -> None:
    found = sealed({VECTOR["k"]: KEY}, VECTOR["tenant"], VECTOR["job"], VECTOR["value"])
    assert found.value == HiddenValue(VECTOR["c"], VECTOR["d"], VECTOR["k"])
    assert found.data.hex() == VECTOR["ciphertext"]
    assert found.path == f"hidden/{VECTOR['tenant']}/{VECTOR['k']}/{VECTOR['c']}"
