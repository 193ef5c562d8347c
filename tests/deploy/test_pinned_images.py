"""A production overlay that runs an image by its tag is refused; ours leave you to name those that you build."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, SERVICES, kubectl_needed

pytestmark = kubectl_needed

BUILT = [f"aetheris/{service}" for service in sorted(SERVICES)]


def pinned(folder: Path) -> tuple[int, str]:
    """Exit code and what it says."""
    argv = [sys.executable, str(DEPLOY / "pinned.py"), str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def named(said: str) -> list[str]:
    return [line.partition(":")[0] for line in said.splitlines() if "no digest" in line]


def copied(folder: Path, digests: dict[str, str]) -> Path:
    """A copy of the production overlay, as a user has one, with his images."""
    shutil.copytree(DEPLOY, folder / "deploy")
    overlay = folder / "deploy" / "overlays" / "production"
    file = overlay / "kustomization.yaml"
    read = yaml.safe_load(file.read_text())
    read["images"] = [{"name": name, "newName": f"example.org/{name}", **_at(at)} for name, at in digests.items()]
    file.write_text(yaml.safe_dump(read))
    return overlay


def _at(at: str) -> dict[str, str]:
    return {"digest": at} if at.startswith("sha256:") else {"newTag": at}


@pytest.mark.parametrize("overlay", ["production", "production-s3"])
def test_ours_lack_only_those_that_are_built(overlay: str) -> None:
    code, said = pinned(DEPLOY / "overlays" / overlay)
    assert (code, named(said)) == (1, BUILT), said


def test_with_all_of_them_named_by_digest_it_passes(tmp_path: Path) -> None:
    digest = f"sha256:{'0123456789abcdef' * 4}"
    assert pinned(copied(tmp_path, dict.fromkeys(BUILT, digest))) == (0, "")


@pytest.mark.parametrize("at", ["1.4.2", "latest", "sha256:0123"])
def test_one_by_its_tag_or_half_a_digest_is_refused_by_name(tmp_path: Path, at: str) -> None:
    digests = dict.fromkeys(BUILT, f"sha256:{'0123456789abcdef' * 4}") | {"aetheris/ledger": at}
    code, said = pinned(copied(tmp_path, digests))
    assert (code, len(named(said))) == (1, 1)
    assert "example.org/aetheris/ledger" in said
    assert "digest: sha256:" in said


def test_a_folder_that_is_no_overlay_is_none_that_passes(tmp_path: Path) -> None:
    code, said = pinned(tmp_path)
    assert code != 0
    assert "kustomization" in said
