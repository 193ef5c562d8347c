"""A time stamp authority as OpenSSL has one (`openssl ts -reply`), behind HTTP; and whoever answers in its place."""

import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Answer = Callable[[bytes], bytes | None]
"""A query (DER) → what is answered; None: nothing, ever."""

_CONFIG = """[tsa]
default_tsa = own
[own]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ess_cert_id_alg = sha256
"""


class OpensslAuthority:
    """A root, and a certificate for time stamps under it; `roots` is the root's, in PEM."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self.roots = folder, folder / "root.pem"
        root, key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
        subject = _named("test root")
        own = _certificate(subject, subject, root.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
        leaf = _certificate(_named("test tsa"), subject, key.public_key()).add_extension(usage, critical=True)
        self.roots.write_bytes(own.sign(root, SHA256()).public_bytes(Encoding.PEM))
        (folder / "tsa.pem").write_bytes(leaf.sign(root, SHA256()).public_bytes(Encoding.PEM))
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "tsa.key").write_bytes(pem)
        (folder / "serial").write_text("01\n")
        (folder / "openssl.cnf").write_text(_CONFIG.format(folder=folder))

    def answer(self, query: bytes) -> bytes:
        """What OpenSSL answers to it."""
        (self._folder / "query").write_bytes(query)
        argv = [
            "openssl",
            "ts",
            "-reply",
            "-config",
            self._folder / "openssl.cnf",
            "-queryfile",
            self._folder / "query",
        ]
        return subprocess.run(argv, capture_output=True, check=True).stdout


@contextmanager
def served_authority(answer: Answer) -> Generator[str]:
    """Where it can be asked."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found = answer(self.rfile.read(int(self.headers["Content-Length"])))
            if found is None:
                ended.wait()
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *_args: Any, **_named: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/tsr"
        finally:
            ended.set()
            server.shutdown()


def _certificate(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
