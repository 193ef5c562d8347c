"""A bundle of evidence, as its readers judge it."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.testkit.standalone import SCRIPT
from tests.testkit.system import REPOSITORY, System


def opinions(system: System, data: bytes, folder: Path) -> list[dict[str, Any]]:
    """The reports on a bundle of `aetheris verify`, and of the script that stands alone.

    What holds before both holds before the verifier to read, too.
    """
    path, public = folder / "evidence.zip", str(system.data / "keys" / "seal.pub")
    path.write_bytes(data)
    ours = [sys.executable, "-m", "aetheris.cli", "verify", str(path), "--public-key", public, "--json"]
    script = [sys.executable, "-I", str(SCRIPT), str(path), "--public-key", public]
    reported = [
        subprocess.run(one, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False).stdout
        for one in (ours, script)
    ]
    found: list[dict[str, Any]] = [json.loads(one) for one in reported]
    if all(one["ok"] for one in found):
        spec = importlib.util.find_spec("aetheris_check.check_bundle")
        assert spec is not None
        short = [sys.executable, "-I", str(spec.origin), str(path), "--public-key", public]
        answer = subprocess.run(short, capture_output=True, text=True, timeout=60, check=False)
        assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr
    return found
