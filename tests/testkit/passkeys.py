"""An authenticator in memory: what it and a browser make of a passkey, right or however wrong."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from aetheris.protocol.planning.approval_text import NAMESPACE
from tests.testkit.ssh_keys import armored, string

KIND = b"sk-ecdsa-sha2-nistp256@openssh.com"
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
FLAGS = 0x1D  # present, verified, may be and is backed up


def number(value: int) -> bytes:
    """As SSH writes one, without its length."""
    return value.to_bytes(value.bit_length() // 8 + 1, "big")


@dataclass(frozen=True)
class Asserted:
    """Everything that can be wrong about a signature, each as it should be."""

    message: bytes
    namespace: str = NAMESPACE
    algorithm: str = "sha512"
    reserved: bytes = b""
    kind: bytes = b"webauthn-" + KIND
    origin: bytes = b"http://localhost:8123"
    flags: int = FLAGS
    counter: int = 0
    extensions: bytes = b""
    signed_for: bytes | None = None
    """The host whose hash is signed, where it is another than the key's."""
    client_data: bytes | None = None
    """In place of what a browser writes."""
    tail: bytes = b',"crossOrigin":false}'
    numbers: Callable[[int, int], bytes] = lambda r, s: string(number(r)) + string(number(s))
    """How r and s are written."""
    behind: bytes = b""


@dataclass(frozen=True)
class Passkey:
    """A key for a host, by default the one that pages of the command line have."""

    seed: int = 1
    host: bytes = b"localhost"
    private: ec.EllipticCurvePrivateKey = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "private", ec.derive_private_key(self.seed, ec.SECP256R1()))

    @property
    def point(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def key(self) -> bytes:
        return b"".join(map(string, (KIND, b"nistp256", self.point, self.host)))

    @property
    def fingerprint(self) -> str:
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.key).digest()).decode().rstrip("=")

    def line(self, names: str, options: str = "") -> str:
        """A line of a file of allowed signers."""
        parts = (names, options, KIND.decode(), base64.b64encode(self.key).decode())
        return " ".join(filter(None, parts)) + "\n"

    def blob(self, made: Asserted) -> bytes:
        names = string(made.namespace.encode()) + string(made.reserved) + string(made.algorithm.encode())
        challenge = b"SSHSIG" + names + string(hashlib.new(made.algorithm, made.message).digest())
        client_data = made.client_data or client_data_of(challenge, made.origin, made.tail)
        details = bytes([made.flags]) + made.counter.to_bytes(4, "big")
        host = hashlib.sha256(self.host if made.signed_for is None else made.signed_for).digest()
        data = host + details + made.extensions + hashlib.sha256(client_data).digest()
        r, s = decode_dss_signature(self.private.sign(data, ec.ECDSA(SHA256())))
        parts = (made.origin, client_data, made.extensions)
        value = string(made.kind) + string(made.numbers(r, s)) + details + b"".join(map(string, parts)) + made.behind
        return b"SSHSIG" + (1).to_bytes(4, "big") + string(self.key) + names + string(value)

    def sign(self, message: bytes, **otherwise: Any) -> str:
        return armored(self.blob(Asserted(message, **otherwise)))


def client_data_of(challenge: bytes, origin: bytes, tail: bytes, kind: bytes = b"webauthn.get") -> bytes:
    """As every browser writes it."""
    text = base64.urlsafe_b64encode(challenge).rstrip(b"=")
    return b'{"type":"%b","challenge":"%b","origin":"%b"%b' % (kind, text, origin, tail)
