"""The overlays as kubectl renders them."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
ADDED = (
    *(
        "revocations",
        "archive",
        "archive-deletion",
        "hidden-values",
        "relay",
        "tiles",
        "timestamps",
        "witness",
        "console",
        "notices",
        "schedules",
        "query",
        "scraping",
    ),
    *("openid", "policy", "signers", "limits", "https"),
)
"""Components that none of our overlays has."""
WHOLE = " + ".join(("production", *ADDED))
WHOLE_S3 = f"{WHOLE} + s3"
TENANT = "tenant"
"""One more installation, with `TENANTS_PREFIX`, on the servers of production's."""
TENANTS_PREFIX = "acme"
OVERLAYS = ("local", "production", "production-s3", WHOLE, WHOLE_S3)
ON_S3 = ("production-s3", WHOLE_S3)
ON_VOLUME = ("local", "production", WHOLE, TENANT)
EVERY = (*OVERLAYS, TENANT)
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


def workloads(overlay: str) -> Iterator[tuple[str, Manifest, Manifest]]:
    """(name, pod spec, object) of everything that runs."""
    for one in of_kind(overlay, "Deployment", "StatefulSet"):
        yield name(one), one["spec"]["template"]["spec"], one


def ours(overlay: str) -> Iterator[tuple[str, Manifest, Manifest]]:
    """Those that are services of ours."""
    return (found for found in workloads(overlay) if found[0] in SERVICES)


def settings_of(overlay: str) -> Manifest:
    """What every service is told."""
    [shared] = [one for one in of_kind(overlay, "ConfigMap") if "AETHERIS_KAFKA" in one["data"]]
    return shared


def env(pod: Manifest) -> dict[str, Any]:
    """The variables of a pod's container, by name."""
    return {one["name"]: one for one in pod["containers"][0].get("env", [])}


def egress_of(overlay: str, service: str) -> list[Manifest]:
    """All rules by which a service's pods may reach others."""
    return [egress for one in of_kind(overlay, "NetworkPolicy") for egress in _ways_out(one["spec"], service)]


def _ways_out(policy: Manifest, service: str) -> list[Manifest]:
    """The rules by which a service's pods may reach others."""
    selector, own = policy["podSelector"], {"app.kubernetes.io/name": service}
    chosen = selector.get("matchLabels", {}).items() <= own.items() and all(
        own.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", [])
    )
    return policy.get("egress", []) if chosen else []
