"""Postgres with the settings of its package (every commit is flushed to disk), on a unix socket in a folder."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aetheris.cli.embedded.errors import EmbeddedError
from tests.bench.environment import MissingError, postgres_folder
from tests.bench.workers import Processes

_NAME, _USER = "postgres", "postgres"


def start(processes: Processes) -> str:
    """Make a database and start its server; gives its url.

    Raises: EmbeddedError.
    """
    programs = postgres_folder()
    if programs is None:
        raise MissingError("Postgres is missing", "Run `make system-deps-bench` (Debian).")
    home = _home(processes.folder)
    data = home / "data"
    _run((*_as_user(), str(programs / "initdb"), "-D", str(data), "-U", _USER, "-A", "trust", "-E", "UTF8"))
    server = (str(programs / "postgres"), "-D", str(data), "-k", str(home), "-h", "", "-N", "200")
    processes.start(_NAME, (*_as_user(), *server))
    ready = (str(programs / "pg_isready"), "-q", "-h", str(home))
    processes.await_ready(_NAME, lambda: subprocess.run(ready, check=False).returncode == 0)
    _run((str(programs / "createdb"), "-h", str(home), "-U", _USER, "bench"))
    return f"postgresql://{_USER}@/bench?host={home}"


def _home(folder: Path) -> Path:
    """A folder that the server's user can reach and own."""
    folder.chmod(0o711)
    home = folder / "pg"
    home.mkdir()
    if os.geteuid() == 0:
        shutil.chown(home, _USER, _USER)
    return home


def _as_user() -> Sequence[str]:
    """Postgres refuses to run as root; a change of user also forgets with whom the process is to end."""
    if os.geteuid() != 0:
        return ()
    return ("setpriv", "--reuid", _USER, "--regid", _USER, "--clear-groups", "--pdeathsig", "QUIT")


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmbeddedError(f"{Path(argv[-1]).name} failed for Postgres", f"It said: {done.stderr.strip()[-300:]}")
