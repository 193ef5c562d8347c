"""A real kube-apiserver on a real etcd: no nodes, no controllers, only what takes objects, or refuses them."""

import json
import secrets
import shutil
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.processes import end, spawn
from tests.deploy.built import built
from tests.deploy.manifests import KUBECTL, Manifest
from tests.testkit.external_server import until

etcd_needed = pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd comes with `make system-deps-deploy`")

_READY_WITHIN_S = 180.0


@dataclass(frozen=True)
class KubernetesCluster:
    """What kubectl needs to talk to it."""

    url: str
    token: str

    def kubectl(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A kubectl command, as the cluster's administrator."""
        access = ["--server", self.url, "--token", self.token, "--insecure-skip-tls-verify"]
        whole = [KUBECTL or "kubectl", *access, *argv]
        return subprocess.run(whole, input=stdin, capture_output=True, text=True, check=False, timeout=300)

    def apply(self, *argv: str, stdin: str = "") -> str:
        """What `kubectl apply` says; it must be taken."""
        done = self.kubectl("apply", "--server-side", *argv, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refuses(self, manifest: Manifest) -> str | None:
        """Why it would not take this object; None where it would."""
        argv = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
        done = self.kubectl(*argv, stdin=json.dumps(manifest))
        return done.stderr if done.returncode else None


@contextmanager
def running_cluster(folder: Path) -> Generator[KubernetesCluster]:
    """An API server for as long as the block lasts."""
    module = Path(__file__).parent / "apiserver"
    server = built(module, ".", "kube-apiserver")
    ports = Ports(folder)
    store, peer = (f"http://127.0.0.1:{ports.get(name)}" for name in ("etcd", "etcd-peer"))
    url, token = f"https://127.0.0.1:{ports.get('api')}", secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},administrator,1,"system:masters"\n')
    key = rsa.generate_private_key(65537, 2048)
    signing = folder / "accounts.pem"
    signing.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    etcd = {
        "data-dir": str(folder / "etcd"),
        "listen-client-urls": store,
        "advertise-client-urls": store,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
    }
    api = {
        "etcd-servers": store,
        "bind-address": "127.0.0.1",
        "secure-port": str(ports.get("api")),
        "cert-dir": str(folder / "certificates"),
        "service-account-key-file": str(signing),
        "service-account-signing-key-file": str(signing),
        "service-account-issuer": "https://localhost",
        "service-cluster-ip-range": "10.96.0.0/16",
        "authorization-mode": "RBAC",
        "token-auth-file": str(folder / "tokens.csv"),
        "disable-admission-plugins": "ServiceAccount",  # whose accounts a controller makes
    }
    with ExitStack() as ending:
        for program, options in (("etcd", etcd), (str(server), api)):
            argv = [program, *(f"--{name}={value}" for name, value in options.items())]
            child = spawn(argv, log=folder / f"{Path(program).name}.log")
            ending.callback(end, child, 10.0)
        until(lambda: _ready(url, token), _READY_WITHIN_S)
        yield KubernetesCluster(url, token)


def _ready(url: str, token: str) -> bool:
    try:
        answer = httpx.get(
            f"{url}/readyz",
            headers={"Authorization": f"Bearer {token}"},
            timeout=5,
            verify=False,  # noqa: S501 - it signed its certificate itself, on this machine
            trust_env=False,
        )
    except httpx.TransportError:
        return False
    return answer.status_code == 200
