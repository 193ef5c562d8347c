"""An earlier build of this system, from this repository's own history: it runs beside a new one that rolls out."""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.deploy.fleet import Build
from tests.deploy.manifests import CACHE
from tests.testkit.system import REPOSITORY

EARLIER = "85b4bfe03a36b967a3778dde691725b2ef756bcf"
"""The commit that this version must run beside. Until there is a release, who changes what a record says in a way that
it can't read, and means to, names a later one here; from then on it is the commit of the last release's tag."""
_UV = REPOSITORY / ".uv" / "bin" / "uv"
_BUILDING_S = 900


def _has_it() -> bool:
    argv = ["git", "-C", str(REPOSITORY), "cat-file", "-e", f"{EARLIER}^{{commit}}"]
    return shutil.which("git") is not None and subprocess.run(argv, capture_output=True, check=False).returncode == 0


earlier_needed = pytest.mark.skipif(
    not _has_it(), reason=f"{EARLIER[:12]} is in no history here: a clone with all of it has it"
)


@cache
def earlier_build() -> Build:
    """In an environment of its own, in the user's cache: its files, and what its own lock names; made once."""
    folder = CACHE / "aetheris" / f"build-{EARLIER[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "made"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make(folder / "files")
            made.touch()
    return Build((str(folder / "files" / ".venv" / "bin" / "python"), "-m"))


def _make(files: Path) -> None:
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir()
    archived = subprocess.run(["git", "-C", str(REPOSITORY), "archive", EARLIER], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(files)], input=archived.stdout, check=True)
    python = (REPOSITORY / ".uv" / ".python").read_text().strip()
    env = os.environ | {"UV_PYTHON_DOWNLOADS": "never", "UV_PROJECT_ENVIRONMENT": str(files / ".venv")}
    argv = [str(_UV), "sync", "--frozen", "--all-packages", "--no-dev", "--python", python, "--directory", str(files)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_BUILDING_S, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
