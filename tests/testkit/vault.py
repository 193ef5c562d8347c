"""A server that answers as a Vault's transit engine does, as far as its HTTP API is documented and used here."""

import base64
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TOKEN = "hvs.of-this-test"  # noqa: S105


@dataclass
class Vault:
    """Its state; a test changes it while it runs."""

    url: str = ""
    token: str = TOKEN
    versions: list[Ed25519PrivateKey] = field(default_factory=lambda: [Ed25519PrivateKey.generate()])
    type: str = "ed25519"
    wrapping: bytes = field(default_factory=lambda: AESGCM.generate_key(256))
    binds: bool = True
    """Whether it heeds associated data."""
    status: int = 200
    delay_s: float = 0
    body: bytes | None = None
    trickles: bytes = b""
    """Sent byte by byte for as long as anybody listens, in place of an answer."""
    left: Event = field(default_factory=Event)
    """Somebody has gone while it did."""
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list[tuple[str, str, dict[str, str]]])

    def answer(self, method: str, path: str, headers: dict[str, str], given: dict[str, Any]) -> tuple[int, Any]:
        """Status and body, by the API's documentation."""
        self.asked.append((method, path, headers))
        if headers.get("x-vault-token") != self.token:
            return 403, {"errors": ["permission denied"]}
        if self.status != 200:
            return self.status, {"errors": ["of a test"]}
        if (method, path) == ("GET", "/v1/transit/keys/seal"):
            keys = {
                str(number): {
                    "creation_time": "2026-01-01T00:00:00Z",
                    "name": "ed25519",
                    "public_key": base64.b64encode(one.public_key().public_bytes_raw()).decode(),
                }
                for number, one in enumerate(self.versions, 1)
            }
            return 200, {
                "data": {"type": self.type, "derived": False, "latest_version": len(self.versions), "keys": keys}
            }
        if (method, path) == ("POST", "/v1/transit/sign/seal"):
            version = given.get("key_version") or len(self.versions)
            signature = self.versions[version - 1].sign(base64.b64decode(given["input"]))
            encoded = base64.b64encode(signature).decode()
            return 200, {"data": {"signature": f"vault:v{version}:{encoded}", "key_version": version}}
        if method == "POST" and path in ("/v1/transit/encrypt/subjects", "/v1/transit/decrypt/subjects"):
            return self._wrapping(path, given)
        return 404, {"errors": []}

    def _wrapping(self, path: str, given: dict[str, Any]) -> tuple[int, Any]:
        cipher, about = AESGCM(self.wrapping), base64.b64decode(given["associated_data"]) if self.binds else b""
        if "encrypt" in path:
            nonce = os.urandom(12)
            made = nonce + cipher.encrypt(nonce, base64.b64decode(given["plaintext"]), about)
            return 200, {"data": {"ciphertext": f"vault:v1:{base64.b64encode(made).decode()}", "key_version": 1}}
        kept = base64.b64decode(given["ciphertext"].removeprefix("vault:v1:"))
        try:
            opened = cipher.decrypt(kept[:12], kept[12:], about)
        except InvalidTag:
            return 400, {"errors": ["cipher: message authentication failed"]}
        return 200, {"data": {"plaintext": base64.b64encode(opened).decode()}}


@contextmanager
def running_vault() -> Generator[Vault]:
    """One with an ed25519 key called seal, and one that wraps called subjects, at the mount transit."""
    vault = Vault()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            given = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, body = vault.answer(self.command, self.path, headers, json.loads(given) if given else {})
            time.sleep(vault.delay_s)
            if vault.trickles:
                self.trickle()
                return
            data = json.dumps(body).encode() if vault.body is None else vault.body
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def trickle(self) -> None:
            try:
                for byte in vault.trickles:
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.05)
            except OSError:
                vault.left.set()

        do_GET = do_POST = handle_any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """To nobody."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that waits no longer."""

    server = Server(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    vault.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield vault
    finally:
        server.shutdown()
        server.server_close()
