"""HashiCorp's Vault itself, built from its Go module.

Of its sdk, which lies beside it in its repository, the nearest published version is taken; three lines
that call what is declared otherwise there are adapted.
"""

import json
import os
import re
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from aetheris.cli.embedded.ports import free_port
from tests.testkit.external_server import until

VERSION = "v1.21.4"
_MODULE = "github.com/hashicorp/vault"
_BESIDE = (f"{_MODULE}/sdk@v0.21.0", f"{_MODULE}/api@v1.22.0", f"{_MODULE}/api/auth/kubernetes@v0.10.0")
"""Of its repository, and modules of their own: it takes them from folders beside it that its archive has not."""
_ADAPTED = {
    "vault/identity_store.go": (
        "ActivationFunc: iStore.activateDeduplication,",
        "ActivationFunc: func(ctx context.Context, req *logical.Request, _ string) error "
        "{ return iStore.activateDeduplication(ctx, req) },",
    ),
    "vault/logical_system_activation_flags.go": ("ActivationFunc(ctx, nil)", 'ActivationFunc(ctx, nil, "")'),
    "builtin/logical/transit/path_restore.go": (
        "restoredKeyName, err := b.lm",
        "restoredKeyName := keyName\n\terr := b.lm",
    ),
}
_BUILDING_S = 5_400
_WITHIN_S = 60.0
MOUNT = "transit"
SEAL_RIGHTS = f'path "{MOUNT}/keys/seal" {{ capabilities = ["read"] }}\n' + (
    f'path "{MOUNT}/sign/seal" {{ capabilities = ["update"] }}'
)
"""As docs/evidence.md names them."""
SUBJECT_RIGHTS = f'path "{MOUNT}/encrypt/subjects" {{ capabilities = ["update"] }}\n' + (
    f'path "{MOUNT}/decrypt/subjects" {{ capabilities = ["update"] }}'
)
"""As docs/hidden-values.md does."""


@dataclass(frozen=True)
class BuiltVault:
    """One that runs in memory, unsealed, with TLS by an authority of its own."""

    url: str
    ca: Path
    root: str
    unsealing: str

    def asked(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What it answers its root token; None: nothing."""
        answer = httpx.request(
            method,
            f"{self.url}/v1/{path}",
            json=body,
            headers={"x-vault-token": self.root},
            verify=ssl.create_default_context(cafile=self.ca),
            timeout=_WITHIN_S,
            trust_env=False,
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def token(self, name: str, rights: str) -> str:
        """A token that may do just this."""
        self.asked("PUT", f"sys/policies/acl/{name}", {"policy": rights})
        made = self.asked("POST", "auth/token/create", {"policies": [name], "no_default_policy": True})
        return str(made["auth"]["client_token"])

    def seal(self) -> None:
        """It answers nobody until `unseal`."""
        self.asked("POST", "sys/seal")

    def unseal(self) -> None:
        """It answers again."""
        self.asked("POST", "sys/unseal", {"key": self.unsealing})


@contextmanager
def built_vault(folder: Path) -> Generator[BuiltVault]:
    """A Vault with an ed25519 key called seal, and one that wraps called subjects."""
    port, log = free_port(), folder / "vault.log"
    argv = [str(program()), "server", "-dev", "-dev-tls", f"-dev-tls-cert-dir={folder}", "-dev-no-store-token"]
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*argv, f"-dev-listen-address=127.0.0.1:{port}"], stdout=said, stderr=subprocess.STDOUT, env=_env(folder)
        )
    try:

        def printed(what: str) -> str | None:
            found = re.search(rf"{what}: (\S+)", log.read_text(errors="replace"))
            return found[1] if found else None

        until(lambda: printed("Root Token") is not None or process.poll() is not None, _WITHIN_S)
        root, unsealing = printed("Root Token"), printed("Unseal Key")
        assert root is not None, log.read_text(errors="replace")[-2_000:]
        assert unsealing is not None
        vault = BuiltVault(f"https://127.0.0.1:{port}", folder / "vault-ca.pem", root, unsealing)
        vault.asked("POST", f"sys/mounts/{MOUNT}", {"type": "transit"})
        vault.asked("POST", f"{MOUNT}/keys/seal", {"type": "ed25519"})
        vault.asked("POST", f"{MOUNT}/keys/subjects", {"type": "aes256-gcm96"})
        yield vault
    finally:
        process.kill()
        process.wait()


def program() -> Path:
    """The program, built where it is missing: 20 minutes or more, and some gigabytes of modules.

    Raises:
        FileNotFoundError: there is no Go.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aetheris" / f"vault-{VERSION}"
    built = cache / "vault"
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise FileNotFoundError("Go is needed, 1.25 or newer, or one that fetches it by itself (GOTOOLCHAIN=auto)")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        _build(go, Path(name))
        (Path(name) / "vault").rename(built)
    return built


def _build(go: str, folder: Path) -> None:
    env = os.environ | {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}

    def run(*argv: str) -> str:
        done = subprocess.run([go, *argv], cwd=folder, env=env, capture_output=True, text=True, timeout=_BUILDING_S)  # noqa: PLW1510
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
        return done.stdout

    archive = Path(json.loads(run("mod", "download", "-json", f"{_MODULE}@{VERSION}"))["Dir"])
    source = folder / "source"
    shutil.copytree(archive, source, copy_function=shutil.copyfile)
    for path in (source, *source.rglob("*/")):
        path.chmod(0o755)
    lines = [line for line in (source / "go.mod").read_text().splitlines() if " => ./" not in line]
    (source / "go.mod").write_text("\n".join(lines) + "\n")
    for path, (before, after) in _ADAPTED.items():
        text = (source / path).read_text()
        assert text.count(before) == 1, f"{path} is another than was adapted"
        (source / path).write_text(text.replace(before, after))
    run("mod", "edit", *(f"-require={one}" for one in _BESIDE), str(source / "go.mod"))
    run("build", "-C", str(source), "-ldflags", "-s -w", "-o", str(folder / "vault"), ".")


def _env(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "PATH": os.environ["PATH"]}
