"""SSH keys of approvers: in memory, for cores; in files, made and used by the real ssh-keygen."""

import base64
import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.protocol.planning.approval_text import NAMESPACE

PLAIN, SECURITY_KEY = b"ssh-ed25519", b"sk-ssh-ed25519@openssh.com"


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def armored(blob: bytes) -> str:
    text = base64.b64encode(blob).decode()
    lines = [text[at : at + 70] for at in range(0, len(text), 70)]
    return "\n".join(("-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""))


@dataclass(frozen=True)
class SshSigner:
    """A key in memory, which signs whatever it is told to, however wrong."""

    seed: int = 1
    application: bytes | None = None
    """Of a security key."""
    flags: int = 1
    private: Ed25519PrivateKey = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "private", Ed25519PrivateKey.from_private_bytes(bytes([self.seed]) * 32))

    @property
    def kind(self) -> bytes:
        return PLAIN if self.application is None else SECURITY_KEY

    @property
    def key(self) -> bytes:
        raw = string(self.kind) + string(self.private.public_key().public_bytes_raw())
        return raw if self.application is None else raw + string(self.application)

    @property
    def fingerprint(self) -> str:
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.key).digest()).decode().rstrip("=")

    def line(self, names: str, options: str = "") -> str:
        """A line of a file of allowed signers."""
        parts = (names, options, self.kind.decode(), base64.b64encode(self.key).decode())
        return " ".join(filter(None, parts)) + "\n"

    def blob(
        self, message: bytes, namespace: str = NAMESPACE, algorithm: str = "sha512", reserved: bytes = b""
    ) -> bytes:
        digest = hashlib.new(algorithm, message).digest()
        rest = string(namespace.encode()) + string(reserved) + string(algorithm.encode())
        signed, details = b"SSHSIG" + rest + string(digest), b""
        if self.application is not None:
            details = bytes([self.flags]) + (7).to_bytes(4, "big")
            signed = hashlib.sha256(self.application).digest() + details + hashlib.sha256(signed).digest()
        value = string(self.kind) + string(self.private.sign(signed)) + details
        return b"SSHSIG" + (1).to_bytes(4, "big") + string(self.key) + rest + string(value)

    def sign(self, message: bytes, namespace: str = NAMESPACE, algorithm: str = "sha512") -> str:
        return armored(self.blob(message, namespace, algorithm))


def keygen(folder: Path, name: str, kind: str = "ed25519") -> Path:
    """A key in a file, as a person has one; its public half lies beside it."""
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", str(path)], check=True)
    return path


def allowed(folder: Path, keys: Mapping[str, Path]) -> Path:
    """A file of allowed signers: name → key."""
    lines = [f"{name} {path.with_name(path.name + '.pub').read_text()}" for name, path in keys.items()]
    path = folder / "allowed_signers"
    path.write_text("".join(lines))
    return path


def ssh_sign(path: Path, message: bytes, namespace: str = NAMESPACE) -> str:
    """By the real ssh-keygen."""
    argv = ["ssh-keygen", "-Y", "sign", "-n", namespace, "-f", str(path)]
    return subprocess.run(argv, input=message, capture_output=True, check=True).stdout.decode()
