"""A bundle of evidence, as its two readers judge it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.testkit.standalone import SCRIPT
from tests.testkit.system import REPOSITORY, System


def opinions(system: System, data: bytes, folder: Path) -> list[dict[str, Any]]:
    """The reports on a bundle of `aetheris verify`, and of the script that stands alone."""
    path, public = folder / "evidence.zip", str(system.data / "keys" / "seal.pub")
    path.write_bytes(data)
    ours = [sys.executable, "-m", "aetheris.cli", "verify", str(path), "--public-key", public, "--json"]
    script = [sys.executable, "-I", str(SCRIPT), str(path), "--public-key", public]
    reported = [
        subprocess.run(one, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False).stdout
        for one in (ours, script)
    ]
    return [json.loads(one) for one in reported]
