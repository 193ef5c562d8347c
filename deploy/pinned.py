"""Whether an overlay runs only images named by digest: `python deploy/pinned.py FOLDER` (docs/supply-chain.md)."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

IMAGE = re.compile(r"^\s*(?:- )?image:\s*[\"']?([^\s\"'#]+)", re.M)
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
KUBECTL = which("kubectl") or str(CACHE / "aetheris" / "kubectl-v36" / "kubectl")
"""The machine's, or the one that `make system-deps` fetches."""


def unpinned(rendered: str) -> list[str]:
    """The images of manifests (YAML) that a tag names, or nothing, in their order."""
    return sorted({image for image in IMAGE.findall(rendered) if not DIGEST.search(image)})


def lines(found: list[str]) -> Iterator[str]:
    """What to say of them, and what to do."""
    yield from (f"{image}: no digest; what it runs can change under its name\n" for image in found)
    if found:
        yield "Name each in your kustomization: images: [{name: NAME, newName: …, digest: sha256:…}]\n"


def main(folder: str) -> int:
    """1 where one has no digest; what kubectl says, where it can't render the folder."""
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    found = unpinned(done.stdout)
    sys.stdout.writelines(lines(found))
    return done.returncode or bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
