"""What the peers need: an environment of their own, outside of this clone, made where it is missing.

The Python packages come from peers/uv.lock, Restate's server from peers/package-lock.json (with its sha512); Postgres
is the system's.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.cli.embedded.jars import Progress, cache_folder
from aetheris.cli.embedded.processes import exclusive

PEERS = Path(__file__).parent / "peers"
_CLONE = Path(__file__).parents[2]
_LOCKS = ("uv.lock", "package-lock.json")
_DEBIAN_POSTGRES = Path("/usr/lib/postgresql")


class MissingError(EmbeddedError):
    """A program of the system that a peer needs isn't there."""


@dataclass(frozen=True)
class Environment:
    """Where the peers' programs are."""

    folder: Path

    @property
    def python(self) -> Path:
        """The Python that has the peers' packages."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def temporal(self) -> Path:
        """Temporal's server."""
        return self.folder / "venv" / "bin" / "temporal"

    @property
    def restate(self) -> Path:
        """Restate's server, of this machine's kind."""
        return next((self.folder / "npm").glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))

    def worker(self, name: str) -> tuple[str, ...]:
        """The command that runs a module of peers/."""
        return (str(self.python), str(PEERS / f"{name}.py"))


def check(needs: Sequence[str]) -> None:
    """Whether the system has what is needed: "postgres", "npm".

    Raises: MissingError.
    """
    if "postgres" in needs and postgres_folder() is None:
        raise MissingError("Postgres is missing", "Run `make system-deps-bench` (Debian), or leave out dbos-postgres.")
    if "npm" in needs and shutil.which("npm") is None:
        raise MissingError("npm is missing", "Run `make system-deps-bench` (Debian), or leave out restate.")


def postgres_folder() -> Path | None:
    """The folder with `postgres` and `initdb`: Debian's newest, else where the path has them."""
    debian = sorted(_DEBIAN_POSTGRES.glob("*/bin/postgres"), key=lambda found: int(found.parts[-3]))
    found = debian[-1] if debian else shutil.which("postgres")
    return Path(found).parent if found else None


def prepared(needs: Sequence[str], progress: Progress) -> Environment:
    """The environment, made now if this is the first time for these locks.

    Raises: MissingError, EmbeddedError.
    """
    check(needs)
    digest = hashlib.sha256(b"\0".join((PEERS / name).read_bytes() for name in _LOCKS) + sys.version.encode())
    folder = cache_folder().parent / f"bench-{digest.hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / "lock"):
        _once(folder / "python.ready", lambda: _python(folder, progress))
        if "npm" in needs:
            _once(folder / "npm.ready", lambda: _npm(folder, progress))
    return Environment(folder)


def _once(ready: Path, make: Callable[[], None]) -> None:
    if not ready.exists():
        make()
        ready.touch()


def _python(folder: Path, progress: Progress) -> None:
    progress("peers", "Python packages, once")
    env = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder / "venv")}
    uv = _CLONE / ".uv" / "bin" / "uv"
    _run((str(uv), "sync", "--frozen", "--quiet", "--project", str(PEERS), "--python", sys.executable), PEERS, env)


def _npm(folder: Path, progress: Progress) -> None:
    progress("peers", "Restate's server, once")
    packages = folder / "npm"
    packages.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PEERS / name, packages / name)
    _run(("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"), packages, os.environ)


def _run(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
    done = subprocess.run(argv, cwd=folder, env=dict(env), capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmbeddedError(f"`{' '.join(argv[:2])}` failed", f"It said: {done.stderr.strip()[-500:]}")
