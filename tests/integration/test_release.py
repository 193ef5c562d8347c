"""`make release`, in a clone of this repository: what it refuses, what it makes, and what a stranger checks of it."""

import hashlib
import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
VERSION = "0.1.0"
RELEASE = runpy.run_path(str(REPOSITORY / "deploy" / "release.py"))
pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]
NAMED = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false"]


def git(folder: Path, *argv: str) -> str:
    done = subprocess.run(["git", *NAMED, *argv], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This commit, with a changelog that speaks of the version; no podman on its path."""
    folder = tmp_path_factory.mktemp("release") / "clone"
    git(REPOSITORY, "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(folder))
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## Unreleased", f"## {VERSION} - 2026-11-27"))
    git(folder, "commit", "--quiet", "--all", "--message", "changelog: a version")
    for name, value in (("user.name", "somebody"), ("user.email", "somebody@example.org")):
        git(folder, "config", name, value)
    return folder


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("key") / "release-key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(found)], check=True)
    return found


def release(clone: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    programs = [name for name in ("git", "tar", "ssh-keygen", "sha256sum") if shutil.which(name)]
    tools = clone.parent / "bin"
    if not tools.exists():
        tools.mkdir()
        for name in programs:
            (tools / name).symlink_to(str(shutil.which(name)))
        (tools / "uv").symlink_to(REPOSITORY / ".uv" / "bin" / "uv")
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {"PATH": str(tools)}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "somebody", f"GIT_{who}_EMAIL": "somebody@example.org"}
    program = [sys.executable, str(clone / "deploy" / "release.py"), *argv]
    return subprocess.run(program, cwd=clone, env=env, capture_output=True, text=True, check=False)


def refused(clone: Path, *argv: str) -> str:
    done = release(clone, *(argv or (VERSION,)))
    assert done.returncode == 1, done.stdout
    assert not (clone / "build" / "release").exists()
    return done.stderr


def test_it_refuses_what_is_not_to_be_released_and_builds_nothing(clone: Path, key: Path) -> None:
    assert "three numbers" in refused(clone, "1.0")
    assert "TAG=1 needs KEY" in refused(clone, VERSION, "--tag")
    stray = clone / "stray.txt"
    stray.write_text("x")
    assert "not clean (1 files, the first: ?? stray.txt)" in refused(clone)
    stray.unlink()
    told = refused(clone, "0.2.0")
    assert "pyproject.toml: version is 0.1.0" in told
    assert "libs/cli/pyproject.toml: it asks for aetheris-protocol==0.1.0" in told
    assert "uv.lock: aetheris-cli is 0.1.0" in told
    assert "CHANGELOG.md: no section `## 0.2.0`" in told
    assert "tests/golden/0.2.0: no streams" in told
    git(clone, "tag", f"v{VERSION}")
    assert "is released once" in refused(clone, VERSION, "--tag", "--key", str(key))
    git(clone, "tag", "--delete", f"v{VERSION}")


def test_one_package_of_another_version_is_named(clone: Path) -> None:
    path = clone / "libs" / "views" / "pyproject.toml"
    path.write_text(path.read_text().replace('version = "0.1.0"', 'version = "0.1.1"', 1))
    git(clone, "commit", "--quiet", "--all", "--message", "views: ahead")
    assert refused(clone).strip() == "refused: libs/views/pyproject.toml: version is 0.1.1"
    git(clone, "reset", "--quiet", "--hard", "HEAD^")


def test_an_empty_section_says_nothing(clone: Path) -> None:
    path = clone / "CHANGELOG.md"
    path.write_text(path.read_text().replace(f"## {VERSION} - 2026-11-27", f"## {VERSION}\n\n## Before"))
    git(clone, "commit", "--quiet", "--all", "--message", "changelog: nothing")
    assert "no section" in refused(clone)
    git(clone, "reset", "--quiet", "--hard", "HEAD^")


def test_what_is_made_is_whole_signed_and_checked_by_others(clone: Path, key: Path) -> None:
    done = release(clone, VERSION, "--key", str(key), "--tag")
    assert done.returncode == 1, done.stdout  # no podman on this path
    assert "no tag: images not made" in done.stderr
    assert git(clone, "tag", "--list") == ""
    folder = clone / "build" / "release" / VERSION
    told = json.loads((folder / "release.json").read_text())
    assert (told["commit"], told["not_made"]) == (
        git(clone, "rev-parse", "HEAD").strip(),
        {"images": "podman is not on this machine"},
    )
    names = {path.name for path in (folder / "packages").iterdir()}
    assert {f"aetheris_cli-{VERSION}-py3-none-any.whl", f"aetheris_cli-{VERSION}.tar.gz"} <= names
    assert not any("testkit" in name for name in names)
    assert (folder / "sbom" / "aetheris.cdx.json").exists()
    assert "planner, ledger, tool executor" in (folder / "CHANGES.md").read_text()
    lines = (line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines())
    listed = {name: digest for digest, name in lines}
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert listed.keys() == found.keys() - {"SHA256SUMS", "SHA256SUMS.sig", "allowed_signers"}
    assert all(hashlib.sha256(found[name].read_bytes()).hexdigest() == digest for name, digest in listed.items())
    assert_signed(folder, key)
    assert_tagged(clone, folder, key, told)
    altered = folder / "packages" / f"aetheris_cli-{VERSION}.tar.gz"
    altered.write_bytes(altered.read_bytes() + b"x")
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=folder, capture_output=True, check=False).returncode == 1


def assert_tagged(clone: Path, folder: Path, key: Path, told: dict[str, Any]) -> None:
    """What is whole gets a tag that the same key signs, on that commit, with the hash of the checksums."""
    RELEASE["tag"](clone, folder, key, RELEASE["Made"](VERSION, told["commit"], told["source_date_epoch"]))
    shown = git(clone, "cat-file", "tag", f"v{VERSION}")
    assert f"object {told['commit']}" in shown
    assert hashlib.sha256((folder / "SHA256SUMS").read_bytes()).hexdigest() in shown
    assert "BEGIN SSH SIGNATURE" in shown
    assert "is released once" in release(clone, VERSION, "--tag", "--key", str(key)).stderr


def assert_signed(folder: Path, key: Path) -> None:
    """By a key that the reader has from elsewhere; not over anything else, and not for another use."""
    known = key.with_suffix(".signers")
    known.write_text(f"aetheris-release {' '.join(key.with_suffix('.pub').read_text().split()[:2])}\n")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(known), "-I", "aetheris-release", "-s", "SHA256SUMS.sig"]
    said = (folder / "SHA256SUMS").read_bytes()
    tried = (("aetheris-release", said, True), ("aetheris-release", said[:-1], False), ("file", said, False))
    for namespace, data, holds in tried:
        done = subprocess.run([*verify, "-n", namespace], cwd=folder, input=data, capture_output=True, check=False)
        assert (done.returncode == 0) is holds, (namespace, done.stderr)
