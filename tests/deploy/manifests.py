"""The overlays as kubectl renders them."""

import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
ADDED = (
    *("revocations", "archive", "archive-deletion", "hidden-values", "relay", "witness"),
    *("openid", "policy", "signers", "limits", "https"),
)
"""Components that none of our overlays has."""
WHOLE = " + ".join(("production", *ADDED))
WHOLE_S3 = f"{WHOLE} + s3"
OVERLAYS = ("local", "production", "production-s3", WHOLE, WHOLE_S3)
SERVICES = ("gateway", "planner", "ledger", "tool-executor", "prober", "verifier")
IMAGES = {"prober": "verifier"}
"""Whose image a service runs, by a command of its own, where it has none."""

Manifest = dict[str, Any]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
KUBECTL = shutil.which("kubectl") or shutil.which("kubectl", path=CACHE / "aetheris" / "kubectl-v36")
"""The machine's, or the one that `make system-deps` fetches."""

kubectl_needed = pytest.mark.skipif(
    KUBECTL is None and "CI" not in os.environ, reason="kubectl renders the manifests: `make system-deps` fetches it"
)


@cache
def rendered(overlay: str) -> tuple[Manifest, ...]:
    """Every object of an overlay; of "production + archive" those of one that adds a component to ours."""
    base, *components = overlay.split(" + ")
    if not components:
        return render(DEPLOY / "overlays" / base)
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder).resolve()
        named = {
            "namespace": "aetheris",
            "resources": [os.path.relpath(DEPLOY / "overlays" / base, at)],
            "components": [os.path.relpath(DEPLOY / "components" / one, at) for one in components],
        }
        (at / "kustomization.yaml").write_text(json.dumps(named))
        return render(at)


def render(folder: Path) -> tuple[Manifest, ...]:
    """Every object of a kustomization."""
    argv = [KUBECTL or "kubectl", "kustomize", str(folder)]
    text = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    return tuple(one for one in yaml.safe_load_all(text) if one)


def of_kind(overlay: str, *kinds: str) -> list[Manifest]:
    """The objects of these kinds."""
    return [one for one in rendered(overlay) if one["kind"] in kinds]


def name(manifest: Manifest) -> str:
    """Its name."""
    return manifest["metadata"]["name"]
