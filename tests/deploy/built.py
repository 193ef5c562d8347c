"""Programs that are built from Go modules, locked by a go.sum, and kept in the user's cache."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import CACHE

GO = shutil.which("go")

go_needed = pytest.mark.skipif(GO is None, reason="built with go, of the version that the go.mod names")


def fetched(module: str, checksum: str, to: Path) -> Path:
    """The folder of a Go module `PATH@VERSION`; its zip has this checksum, as a go.sum has it.

    Args:
        module: which one.
        checksum: of its zip.
        to: a folder from which it is asked for, with no module around it.
    """
    argv = [GO or "go", "mod", "download", "-json", module]
    done = subprocess.run(argv, cwd=to, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["Sum"] == checksum
    return Path(found["Dir"])


def built(module: Path, package: str, name: str) -> Path:
    """The program, built once for this go.sum: minutes."""
    lock = hashlib.sha256(b"".join((module / file).read_bytes() for file in ("go.mod", "go.sum"))).hexdigest()[:12]
    kept = CACHE / "aetheris" / f"{name}-{lock}"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        staged = kept.with_suffix(f".{os.getpid()}")
        argv = [GO or "go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(staged), package]
        done = subprocess.run(argv, cwd=module, capture_output=True, text=True, check=False, timeout=3600)
        assert done.returncode == 0, done.stderr[-2000:]
        staged.replace(kept)
    return kept
