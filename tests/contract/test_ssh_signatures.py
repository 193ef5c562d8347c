"""Signatures by SSH keys, and files of allowed signers: three implementations, and OpenSSH, say the same."""

import base64
import json
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pytest

from aetheris.proofs import approver_signatures as proofs
from aetheris.protocol.base import allowed_signers, sshsig
from aetheris.protocol.planning.approval_text import NAMESPACE
from tests.testkit.ssh_keys import SshSigner, armored, keygen, string
from tests.testkit.standalone import verify as script

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "sshsig" / "vectors.json").read_text())
MESSAGE = VECTORS["message"].encode()
AT = "2030-06-01T12:00:00+00:00"


class Reads(Protocol):
    """One implementation."""

    def signer(self, text: str, message: bytes) -> str | None:
        """The fingerprint of the key that signed a message as an approval."""
        ...

    def gives(self, file: str, key: bytes, name: str) -> bool | None:
        """Whether the file gives the key to who has this name now; None where it can't be used."""
        ...


class Protocols:
    def signer(self, text: str, message: bytes) -> str | None:
        try:
            found = sshsig.read_signature(text)
        except sshsig.SshSignatureInvalid:
            return None
        return found.key.fingerprint if found.namespace == NAMESPACE and found.holds(message) else None

    def gives(self, file: str, key: bytes, name: str) -> bool | None:
        try:
            found = allowed_signers.parse_signers(file)
        except allowed_signers.SignersInvalid:
            return None
        return found.refusal(name, sshsig.read_key(key), NAMESPACE, datetime.fromisoformat(AT)) is None


class Proofs:
    def signer(self, text: str, message: bytes) -> str | None:
        found = proofs.opened(text)
        return found.fingerprint if found is not None and found.holds(message) else None

    def gives(self, file: str, key: bytes, name: str) -> bool | None:
        try:
            return proofs.given_to(proofs.read_signers(file.encode()), key, name, AT)
        except proofs.BadSigners:
            return None


class Script:
    def signer(self, text: str, message: bytes) -> str | None:
        found = script.read_signature(text)
        return found.fingerprint if found is not None and found.holds(message) else None

    def gives(self, file: str, key: bytes, name: str) -> bool | None:
        try:
            return any(one.gives(key, name, AT) for one in script.read_signers(file.encode()))
        except (script.Bad, ValueError):
            return None


ALL = pytest.mark.parametrize("reads", [Protocols(), Proofs(), Script()], ids=["protocol", "proofs", "script"])


@ALL
@pytest.mark.parametrize("vector", VECTORS["signatures"], ids=lambda one: one["name"])
def test_what_ssh_keygen_signed_is_taken_or_refused_alike(reads: Reads, vector: dict[str, Any]) -> None:
    wanted = VECTORS["keys"][vector["key"]]["fingerprint"] if vector["taken"] else None
    assert reads.signer(vector["armored"], MESSAGE) == wanted
    assert reads.signer(vector["armored"], MESSAGE + b" ") is None


def hostile() -> Iterator[tuple[str, str]]:
    """Blobs that say yes but for one thing each."""
    key, touched = SshSigner(1), SshSigner(2, b"ssh:")
    good = key.blob(MESSAGE)
    yield "cut", armored(good[:-1])
    yield "longer", armored(good + b"\0")
    yield "version", armored(good[:9] + b"\2" + good[10:])
    yield "magic", armored(b"SSHSIX" + good[6:])
    yield "huge_length", armored(good[:10] + b"\xff\xff\xff\xff" + good[14:])
    yield "reserved", armored(key.blob(MESSAGE, reserved=b"x"))
    for algorithm in ("sha1", "sha384", "md5"):
        yield algorithm, armored(key.blob(MESSAGE, algorithm=algorithm))
    yield "namespace", key.sign(MESSAGE, NAMESPACE + "2")
    yield "other_value", armored(good[:-1] + bytes([good[-1] ^ 1]))
    yield "untouched", SshSigner(2, b"ssh:", flags=0).sign(MESSAGE)
    yield "other_touch", armored(touched.blob(MESSAGE)[:-5] + b"\5" + touched.blob(MESSAGE)[-4:])
    rest = good[10 + len(string(key.key)) :]
    yield "short_key", armored(good[:10] + string(string(b"ssh-ed25519") + string(b"x" * 31)) + rest)
    yield "key_of_another_type", armored(good[:10] + string(string(b"ssh-rsa") + string(b"x" * 32)) + rest)
    yield "no_type", armored(good[:10] + string(b"") + rest)
    yield "empty", armored(b"")
    text = armored(good)
    yield "no_end", text.replace("END", "END ")
    yield "one_line", text.replace("\n", "")
    yield "before", "x" + text
    yield "behind", text + "x"
    yield "spaces", text.replace("\nU1", "\n U1")
    yield "long_line", "-----BEGIN SSH SIGNATURE-----\n" + base64.b64encode(good).decode() + "\n" + text[-27:]
    at = text.index("==") - 1
    yield "unused_bits", text[:at] + chr(ord(text[at]) + 1) + text[at + 1 :]
    yield "huge", text.replace("\n-----END", "\n" + "A" * 70 + ("\n" + "A" * 70) * 100 + "\n-----END")
    yield "two", text + text


@ALL
@pytest.mark.parametrize(("name", "text"), list(hostile()), ids=[name for name, _ in hostile()])
def test_no_hostile_signature_is_taken(reads: Reads, name: str, text: str) -> None:
    assert reads.signer(text, MESSAGE) is None, name


@ALL
def test_a_touched_security_key_and_the_ends_of_lines_of_another_system_are_taken(reads: Reads) -> None:
    key, touched = SshSigner(1), SshSigner(2, b"ssh:")
    assert reads.signer(touched.sign(MESSAGE), MESSAGE) == touched.fingerprint
    assert reads.signer(key.sign(MESSAGE).replace("\n", "\r\n"), MESSAGE) == key.fingerprint
    assert reads.signer(key.sign(MESSAGE), MESSAGE) == key.fingerprint


BOB = SshSigner(1)
RSA = VECTORS["keys"]["rsa"]["line"]
FILES: list[tuple[str, bool | None]] = [
    (BOB.line("bob"), True),
    (BOB.line("alice"), False),
    (BOB.line("alice,bob"), True),
    (BOB.line("b*"), True),
    (BOB.line("b?b"), True),
    (BOB.line("b?"), False),
    (BOB.line("*,!bob"), False),
    (BOB.line("!bob,*"), False),
    (BOB.line("!alice,*"), True),
    (BOB.line("b[o]b"), False),
    (BOB.line("BOB"), False),
    ("# who signs\n\n" + BOB.line("bob"), True),
    (SshSigner(2).line("bob"), False),
    (SshSigner(2).line("bob") + BOB.line("bob"), True),
    (BOB.line("alice") + BOB.line("bob"), True),
    (BOB.line("a\u00a0b") + BOB.line("bob"), True),
    (BOB.line("bob", 'namespaces="aetheris-approval"'), True),
    (BOB.line("bob", 'namespaces="git,aetheris-*"'), True),
    (BOB.line("bob", 'namespaces="git"'), False),
    (BOB.line("bob", 'NAMESPACES="git"'), False),
    (BOB.line("bob", 'valid-after="20300601Z"'), True),
    (BOB.line("bob", 'valid-after="20300602Z"'), False),
    (BOB.line("bob", 'valid-before="20300601115959Z"'), False),
    (BOB.line("bob", 'valid-before="203006011200Z"'), True),
    (BOB.line("bob", 'valid-after="20300101Z",valid-before="20301231Z"'), True),
    (BOB.line("bob", 'namespaces="git",valid-before="20301231Z"'), False),
    (BOB.line("bob").replace(" ", "\t"), True),
    (BOB.line("bob").strip() + " bob@laptop of his\n", True),
    (BOB.line("alice").replace("\n", "\r\n") + BOB.line("bob").replace("\n", "\r\n"), True),
]
HIDDEN = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\0\x7f"
"""At some of them Python ends a line, OpenSSH at none."""
UNUSABLE = [
    BOB.line("bob", "cert-authority"),
    BOB.line("bob", 'cert-authority,namespaces="x"'),
    BOB.line("bob", 'valid-after="20300601"'),
    BOB.line("bob", 'valid-after="2030060Z"'),
    BOB.line("bob", 'valid-after="20301301Z"'),
    *(BOB.line("bob", f'{name}="{time}"') for name in ("valid-after", "valid-before") for time in ("", "x", "Z", "z")),
    BOB.line("bob", 'valid-after="tomorrowZ"'),
    BOB.line("bob", 'verify-required="x"'),
    BOB.line("bob", 'namespaces="a",namespaces="b"'),
    BOB.line("bob", 'namespaces="a",'),
    BOB.line("bob", "namespaces=a"),
    BOB.line('"bob"'),
    "bob\n",
    "bob ssh-ed25519\n",
    BOB.line("bob").replace("ssh-ed25519", "ssh-rsa"),
    BOB.line("bob").replace("AAAAC3", "AAAAC4"),
    BOB.line("bob").rstrip()[:-4] + "\n",
    *(f"# carol{hidden}{BOB.line('bob')}" for hidden in HIDDEN),
    *(SshSigner(2).line("carol").rstrip() + f" hers{hidden}{BOB.line('bob')}" for hidden in HIDDEN),
    BOB.line("bob").rstrip() + "\r\r\n",
    f"bob {RSA}\n",
    BOB.line("bob") + f"carol {RSA}\n",
]


@ALL
@pytest.mark.parametrize(("file", "wanted"), [*FILES, *((file, None) for file in UNUSABLE)])
def test_files_of_allowed_signers_are_read_alike(reads: Reads, file: str, wanted: bool | None) -> None:
    assert reads.gives(file, BOB.key, "bob") is wanted


@pytest.mark.parametrize(("file", "wanted"), FILES)
def test_openssh_says_the_same_of_files(tmp_path: Path, file: str, wanted: bool) -> None:
    signers, signature = tmp_path / "allowed_signers", tmp_path / "signature"
    signers.write_text(file)
    signature.write_text(BOB.sign(MESSAGE))
    argv = ["ssh-keygen", "-Y", "verify", "-n", NAMESPACE, "-I", "bob", "-f", str(signers), "-s", str(signature)]
    done = subprocess.run([*argv, "-Overify-time=20300601120000Z"], input=MESSAGE, capture_output=True, check=False)
    assert (done.returncode == 0) is wanted, done.stderr.decode()


def test_a_key_of_now_signs_as_one_of_then(tmp_path: Path) -> None:
    key = keygen(tmp_path, "bob")
    argv = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key)]
    signed = subprocess.run(argv, input=MESSAGE, capture_output=True, check=True).stdout.decode()
    shown = subprocess.run(["ssh-keygen", "-lf", str(key)], capture_output=True, check=True, text=True).stdout
    found = {reads.signer(signed, MESSAGE) for reads in (Protocols(), Proofs(), Script())}
    assert found == {shown.split()[1]}
