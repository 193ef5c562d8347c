"""Signatures by passkeys: three implementations, and OpenSSH, say the same."""

import base64
import hashlib
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from hypothesis import given, settings
from hypothesis import strategies as st

from aetheris.protocol.base.sshsig import signed_bytes
from aetheris.protocol.planning.approval_text import NAMESPACE
from tests.contract.test_ssh_signatures import ALL, Proofs, Protocols, Reads, Script
from tests.testkit.passkeys import FLAGS, KIND, ORDER, Asserted, Passkey, client_data_of, number
from tests.testkit.ssh_keys import SshSigner, armored, string

KEY = Passkey()
MESSAGE = b'aetheris approval 1\nrequest: "j:1"\n'
CHALLENGE = signed_bytes(NAMESPACE.encode(), b"sha512", MESSAGE)
ORIGIN = b"http://localhost:8123"
FIELD = 2**256 - 2**224 + 2**192 + 2**96 - 1
Numbers = Callable[[int, int], bytes]
EVERY = (Protocols(), Proofs(), Script())


def said(tail: bytes = b',"crossOrigin":false}', kind: bytes = b"webauthn.get", challenge: bytes = CHALLENGE) -> bytes:
    return client_data_of(challenge, ORIGIN, tail, kind)


def nested(depth: int, by: bytes = b"[]") -> bytes:
    """A member that is so deep, in an object that is one more."""
    inside = b"[" * depth + b"]" * depth if by == b"[]" else b'{"b":' * depth + b"1" + b"}" * depth
    return b',"a":' + inside + b"}"


def good() -> Iterator[tuple[str, str]]:
    yield "as browsers do", KEY.sign(MESSAGE)
    yield "sha256", KEY.sign(MESSAGE, algorithm="sha256")
    yield "no crossOrigin", KEY.sign(MESSAGE, tail=b"}")
    yield "what a browser adds", KEY.sign(MESSAGE, tail=b',"crossOrigin":false,"other_keys":{"a":[1,null]}}')
    yield "eight deep", KEY.sign(MESSAGE, tail=nested(7))
    yield "brackets in a string", KEY.sign(MESSAGE, tail=b',"a":"' + b'[{\\\\\\"[' * 9 + b'","b":"[[[[[[[[[[\\\\"}')
    yield "the scheme's own port", KEY.sign(MESSAGE, origin=b"http://localhost")
    yield "https", KEY.sign(MESSAGE, origin=b"https://localhost:8443")
    yield "a counter", KEY.sign(MESSAGE, counter=2**32 - 1)
    yield "extensions", KEY.sign(MESSAGE, flags=FLAGS | 0x80, extensions=b"\xa0")
    yield "nothing but present and verified", KEY.sign(MESSAGE, flags=5)


@ALL
@pytest.mark.parametrize(("name", "text"), list(good()), ids=[name for name, _ in good()])
def test_what_a_passkey_signs_is_taken_for_just_this(reads: Reads, name: str, text: str) -> None:
    assert reads.signer(text, MESSAGE) == KEY.fingerprint, name
    assert reads.signer(text, MESSAGE + b" ") is None


@pytest.mark.parametrize(("name", "text"), list(good()), ids=[name for name, _ in good()])
def test_openssh_takes_it_too(tmp_path: Path, name: str, text: str) -> None:
    assert verified_by_openssh(tmp_path, text, MESSAGE), name
    assert not verified_by_openssh(tmp_path, text, MESSAGE + b" ")


def verified_by_openssh(folder: Path, text: str, message: bytes) -> bool:
    signers, signature = folder / "allowed_signers", folder / "signature"
    signers.write_text(SshSigner(3).line("bob") + KEY.line("carol", f'namespaces="{NAMESPACE}"'))
    signature.write_text(text)
    argv = ["ssh-keygen", "-Y", "verify", "-n", NAMESPACE, "-I", "carol", "-f", str(signers), "-s", str(signature)]
    return subprocess.run(argv, input=message, capture_output=True, check=False).returncode == 0


def hostile_client_data() -> Iterator[tuple[str, bytes]]:
    yield "registers", said(kind=b"webauthn.create")
    yield "pays", said(kind=b"payment.get")
    yield "another challenge", said(challenge=CHALLENGE + b"x")
    yield "the text itself", said(challenge=MESSAGE)
    yield "its hash alone", said(challenge=hashlib.sha512(MESSAGE).digest())
    yield "framed", said(b',"crossOrigin":true}')
    yield "framed, in a word", said(b',"crossOrigin":"false"}')
    yield "framed, null", said(b',"crossOrigin":null}')
    yield "framed, zero", said(b',"crossOrigin":0}')
    yield "framed by", said(b',"crossOrigin":false,"topOrigin":"https://evil.example"}')
    yield "framed after all", said(b',"crossOrigin":false,"crossOrigin":true}')
    yield "framed before", said(b',"crossOrigin":true,"crossOrigin":false}')
    yield "a second challenge", said(b',"challenge":"AA"}')
    yield "a second challenge, escaped", said(b',"chal\\u006cenge":"AA"}')
    yield "a second origin", said(b',"origin":"http://localhost:8123"}')
    yield "a member twice, deep", said(b',"a":{"b":1,"b":1}}')
    yield "no number", said(b',"a":NaN}')
    yield "no end", said(b"")
    yield "more behind", said(b"}}")
    yield "a line behind", said(b"}\n")
    yield "deep", said(b',"a":' + b"[" * 1_200 + b"]" * 1_200 + b"}")
    yield "nine deep", said(nested(8))
    yield "nine deep, objects", said(nested(8, b"{}"))
    yield "deep by the caller's measure", said(nested(940))
    yield "deep behind a string", said(b',"x":"\\"]]]]"' + nested(8))
    yield "deep, closed more often before", said(b',"x":1}]]' + nested(9))
    yield "no text", said(b',"a":"\xff"}')
    yield "a control character", said(b',"a":"\x01"}')
    yield "an origin goes on", said(b"@evil.example").replace(ORIGIN + b'"', ORIGIN) + b'"}'
    yield "padded", said().replace(b'","origin', b'==","origin')
    yield "another order", b'{"origin":"' + ORIGIN + b'",' + said()[1:].replace(b',"origin":"' + ORIGIN + b'"', b"")
    yield "spaces", said().replace(b":", b": ")
    yield "before", b" " + said()
    yield "a mark before", b"\xef\xbb\xbf" + said()
    yield "another alphabet", said().replace(text_of(CHALLENGE), base64.b64encode(CHALLENGE))
    yield "a list", b"[" + said() + b"]"
    yield "a number", b"1"
    yield "null", b"null"


def text_of(challenge: bytes) -> bytes:
    return base64.urlsafe_b64encode(challenge).rstrip(b"=")


def hostile_numbers() -> Iterator[tuple[str, Numbers]]:
    """Ranges, and forms of what would hold."""
    for name, value in (("zero", 0), ("order", ORDER), ("above", ORDER + 1), ("field", FIELD), ("huge", 2**256)):
        yield f"r {name}", lambda _r, s, value=value: string(number(value)) + string(number(s))
        yield f"s {name}", lambda r, _s, value=value: string(number(r)) + string(number(value))
    yield "r beyond the order", lambda r, s: string(number(r + ORDER)) + string(number(s))
    yield "s beyond the order", lambda r, s: string(number(r)) + string(number(s + ORDER))
    yield "both zero", lambda *_: string(b"\0") * 2
    yield "both empty", lambda *_: string(b"") * 2
    yield "both one", lambda *_: string(b"\1") * 2
    yield "negative", lambda r, s: string(number(r)) + string((2**256 - s).to_bytes(33, "big", signed=True)[-32:])
    yield "one", lambda r, _: string(number(r))
    yield "three", lambda r, s: string(number(r)) + string(number(s)) + string(b"\1")
    yield "exchanged", lambda r, s: string(number(s)) + string(number(r))
    yield "a zero before r", lambda r, s: string(b"\0" + number(r)) + string(number(s))
    yield "a zero before s", lambda r, s: string(number(r)) + string(b"\0" + number(s))
    yield "a byte behind", lambda r, s: string(number(r)) + string(number(s)) + b"\0"
    yield "raw", lambda r, s: r.to_bytes(32, "big") + s.to_bytes(32, "big")
    yield "der", encode_dss_signature


def hostile() -> Iterator[tuple[str, str]]:
    """Signatures that say yes but for one thing each."""
    for name, data in hostile_client_data():
        yield f"client data: {name}", KEY.sign(MESSAGE, client_data=data)
    for name, numbers in hostile_numbers():
        yield f"numbers: {name}", KEY.sign(MESSAGE, numbers=numbers)
    for name, flags in (("nobody there", 4), ("not verified", 1), ("neither", 0), ("of a new key", FLAGS | 0x40)):
        yield name, KEY.sign(MESSAGE, flags=flags)
    yield "extensions that are none", KEY.sign(MESSAGE, flags=FLAGS | 0x80)
    yield "extensions without a flag", KEY.sign(MESSAGE, extensions=b"\xa0")
    yield "another host", KEY.sign(MESSAGE, signed_for=b"evil.example")
    for origin in (
        "https://evil.example",
        "http://localhost.evil.example",
        "http://evil.localhost",
        "http://localhost:",
        "http://localhost:0",
        "http://localhost:080",
        "http://localhost:123456",
        "http://localhost/",
        "http://user@localhost",
        "http://LOCALHOST",
        "ftp://localhost",
        "http://127.0.0.1",
        "http://localhost\n",
        "null",
        "",
        "http://localhost\u00df",
    ):
        yield f"origin {origin!r}", KEY.sign(MESSAGE, origin=origin.encode())
    yield "namespace", KEY.sign(MESSAGE, namespace="git")
    yield "reserved", KEY.sign(MESSAGE, reserved=b"x")
    for algorithm in ("sha1", "sha384", "md5"):
        yield algorithm, KEY.sign(MESSAGE, algorithm=algorithm)
    yield "as a security key", KEY.sign(MESSAGE, kind=KIND)
    yield "by Ed25519", KEY.sign(MESSAGE, kind=b"webauthn-sk-ssh-ed25519@openssh.com")
    yield "more behind", KEY.sign(MESSAGE, behind=b"\0")
    yield "one string more", KEY.sign(MESSAGE, behind=string(b""))
    blob = KEY.blob(Asserted(MESSAGE))
    yield "cut", armored(blob[:-1])
    yield "longer", armored(blob + b"\0")
    yield "huge", KEY.sign(MESSAGE, tail=b',"a":"' + b"x" * 4_096 + b'"}')
    for name, key in hostile_keys():
        yield f"key: {name}", armored(blob.replace(string(KEY.key), string(key)))
    yield "another's key", armored(blob.replace(string(KEY.key), string(Passkey(2).key)))
    yield "the key for another host", armored(blob.replace(string(KEY.key), string(Passkey(1, b"example.com").key)))
    plain = SshSigner(1)
    yield "an SSH key's name", armored(blob.replace(string(KEY.key), string(plain.key)))
    yield "an SSH key's signature", armored(plain.blob(MESSAGE).replace(string(plain.key), string(KEY.key)))


def hostile_keys() -> Iterator[tuple[str, bytes]]:
    point = KEY.point
    for name, other in (
        ("off the curve", point[:-1] + bytes([point[-1] ^ 1])),
        ("infinity", b"\0"),
        ("compressed", bytes([2 + (point[-1] & 1)]) + point[1:33]),
        ("hybrid", bytes([6 + (point[-1] & 1)]) + point[1:]),
        ("zero", b"\4" + bytes(64)),
        ("beyond the field", b"\4" + (FIELD + 5).to_bytes(32, "big") + point[33:]),
        ("cut", point[:-1]),
        ("longer", point + b"\0"),
        ("empty", b""),
    ):
        yield name, b"".join(map(string, (KIND, b"nistp256", other, b"localhost")))
    yield "another curve", b"".join(map(string, (KIND, b"nistp384", point, b"localhost")))
    yield "for nobody", b"".join(map(string, (KIND, b"nistp256", point)))
    for host in (b"", b"ssh:", b"LOCALHOST", b"a..b", b".a", b"-a", b"a-", b"a" * 254, b"a\n", b"a/b", b"\xff", b"*.a"):
        yield f"for {host[:20]!r}", b"".join(map(string, (KIND, b"nistp256", point, host)))
    yield "and more", KEY.key + string(b"x")
    yield "ecdsa", string(b"ecdsa-sha2-nistp256") + string(b"nistp256") + string(point)


@ALL
@pytest.mark.parametrize(("name", "text"), list(hostile()), ids=[name for name, _ in hostile()])
def test_no_hostile_signature_of_a_passkey_is_taken(reads: Reads, name: str, text: str) -> None:
    assert reads.signer(text, MESSAGE) is None, name


@pytest.mark.parametrize(("name", "key"), list(hostile_keys()), ids=[name for name, _ in hostile_keys()])
@ALL
def test_no_file_gives_a_key_that_is_no_passkey_s(reads: Reads, name: str, key: bytes) -> None:
    line = f"carol {KIND.decode()} {base64.b64encode(key).decode()}\n"
    assert reads.gives(line + KEY.line("carol"), KEY.key, "carol") is None, name


@ALL
def test_files_give_passkeys_as_they_give_ssh_keys(reads: Reads) -> None:
    far = Passkey(1, b"console.example.com")
    file = KEY.line("carol", 'valid-before="20301231Z"').rstrip() + " passkey:AA\n" + far.line("dan")
    assert reads.gives(file, KEY.key, "carol") is True
    assert reads.gives(file, KEY.key, "dan") is False
    assert reads.gives(file, far.key, "dan") is True
    assert reads.gives(KEY.line("carol", 'valid-before="20291231Z"'), KEY.key, "carol") is False
    assert reads.gives(KEY.line("carol", 'namespaces="git"'), KEY.key, "carol") is False


@ALL
def test_a_page_elsewhere_signs_with_a_key_of_its_own_host_by_https_alone(reads: Reads) -> None:
    far = Passkey(1, b"console.example.com")
    for origin, taken in (
        (b"https://console.example.com", True),
        (b"https://console.example.com:8443", True),
        (b"http://console.example.com", False),
        (b"https://example.com", False),
        (b"https://a.console.example.com", False),
        (b"https://consoleXexample.com", False),
        (b"http://localhost:8123", False),
    ):
        assert (reads.signer(far.sign(MESSAGE, origin=origin), MESSAGE) == far.fingerprint) is taken, origin


def test_the_other_half_of_a_signature_holds_as_well_and_is_no_second_key() -> None:
    """Who has a signature can make this one of it; votes are counted by keys."""
    other = KEY.sign(MESSAGE, numbers=lambda r, s: string(number(r)) + string(number(ORDER - s)))
    assert {reads.signer(other, MESSAGE) for reads in EVERY} == {KEY.fingerprint}


@settings(max_examples=150, deadline=None)
@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_no_signature_holds_with_any_byte_changed(where: int, change: int) -> None:
    blob = bytearray(KEY.blob(Asserted(MESSAGE, tail=b"}")))
    blob[where % len(blob)] ^= change
    found: set[Any] = {reads.signer(armored(bytes(blob)), MESSAGE) for reads in EVERY}
    assert found == {None}


@ALL
@pytest.mark.parametrize("depth", [7, 8, 100, 300])
def test_what_is_taken_does_not_depend_on_how_deep_its_reader_is_called(reads: Reads, depth: int) -> None:
    text = KEY.sign(MESSAGE, tail=nested(depth))

    def called(below: int) -> str | None:
        return called(below - 1) if below else reads.signer(text, MESSAGE)

    room = sys.getrecursionlimit() - len(inspect.stack())
    found = {called(below) for below in (0, room // 2, room - 150)}
    assert found == {KEY.fingerprint if depth < 8 else None}
