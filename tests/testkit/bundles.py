"""A bundle of evidence, as its two readers judge it."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from tests.testkit.system import REPOSITORY, System


def opinions(system: System, data: bytes, folder: Path) -> list[dict[str, Any]]:
    """The reports on a bundle of `aetheris verify`, and of the script that lies in it."""
    path, public = folder / "evidence.zip", str(system.data / "keys" / "seal.pub")
    path.write_bytes(data)
    with zipfile.ZipFile(path) as archive:
        archive.extract("verify.py", folder)
    ours = [sys.executable, "-m", "aetheris.cli", "verify", str(path), "--public-key", public, "--json"]
    script = [sys.executable, "-I", str(folder / "verify.py"), str(path), "--public-key", public]
    reported = [
        subprocess.run(one, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False).stdout
        for one in (ours, script)
    ]
    return [json.loads(one) for one in reported]
