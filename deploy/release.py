"""A release, whole but for its publication (docs/releasing.md): `make release VERSION=x.y.z KEY=signing-key [TAG=1]`.

Wheels and source archives, images, bills of materials, the changelog's words, checksums and a signature over them, in
build/release/VERSION. What could not be made is named; a tag is given to what is whole only.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from aetheris.protocol.base.sshsig import SshSignatureInvalid, read_signature

REPOSITORY = Path(__file__).parents[1]
VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
NAMESPACE = "aetheris-release"
"""What a signature over checksums is for: it counts for nothing else (`ssh-keygen -Y`)."""
CHECKSUMS, SIGNATURE, SIGNERS = "SHA256SUMS", "SHA256SUMS.sig", "allowed_signers"
NOT_SHIPPED = "aetheris_testkit-"


class Refused(Exception):
    """Why there is no release; each line names what is wrong, and what to do."""


@dataclass(slots=True)
class Made:
    """What has been made, and what has not, with the reason."""

    version: str
    commit: str
    epoch: int
    """When the commit was made: the time in everything that is built."""
    files: dict[str, int] = field(default_factory=dict[str, int])
    missing: dict[str, str] = field(default_factory=dict[str, str])

    def told(self) -> str:
        """As JSON, beside what was made."""
        made = {"version": self.version, "commit": self.commit, "source_date_epoch": self.epoch}
        return json.dumps(made | {"made": self.files, "not_made": self.missing}, indent=2) + "\n"


def changes(changelog: str, version: str) -> str | None:
    """What a changelog says of a version; None where it says nothing."""
    found = re.search(
        rf"^## \[?{re.escape(version)}\]?(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return (found[1].strip() or None) if found is not None else None


def disagreements(repository: Path, version: str) -> Iterator[str]:
    """Where another version stands: of a package, of what a package of ours asks for, in the lock."""
    ours: set[str] = set()
    for path in sorted([repository / "pyproject.toml", *repository.glob("*/*/pyproject.toml")]):
        project, name = tomllib.loads(path.read_text())["project"], path.relative_to(repository)
        ours.add(project["name"])
        if project["version"] != version:
            yield f"{name}: version is {project['version']}"
        extras = project.get("optional-dependencies", {}).values()
        for wanted in (one for several in (project.get("dependencies", []), *extras) for one in several):
            pinned = re.fullmatch(r"(aetheris-[a-z-]+)(?:\[[^]]*\])?==(.+)", wanted.replace(" ", ""))
            if pinned is not None and pinned[2] != version:
                yield f"{name}: it asks for {wanted}"
    for package in tomllib.loads((repository / "uv.lock").read_text())["package"]:
        if package["name"] in ours and package["version"] != version:
            yield f"uv.lock: {package['name']} is {package['version']}; run uv lock"


def refusals(repository: Path, version: str, *, tagged: bool) -> Iterator[str]:
    """Why what is committed can't be released as this version."""
    if VERSION.fullmatch(version) is None:
        yield f"VERSION={version}: three numbers, as 0.2.0"
        return
    dirty = _git(repository, "status", "--porcelain").splitlines()
    if dirty:
        yield f"the tree is not clean ({len(dirty)} files, the first: {dirty[0].strip()}): commit, or delete"
    yield from disagreements(repository, version)
    if changes((repository / "CHANGELOG.md").read_text(), version) is None:
        yield f"CHANGELOG.md: no section `## {version}` that says something"
    if not any((repository / "tests" / "golden" / version).glob("*.jsonl")):
        yield f"tests/golden/{version}: no streams of this version; make them with python -m tests.testkit.golden"
    if version not in releases(repository):
        yield f"tests/golden/releases.txt: no line {version}"
    if tagged and _git(repository, "tag", "--list", f"v{version}").strip():
        yield f"the tag v{version} is there: a version is released once"


def releases(repository: Path) -> list[str]:
    """The versions that later ones must go on to read."""
    lines = (repository / "tests" / "golden" / "releases.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def build_twice(source: Path, out: Path, made: Made) -> None:
    """Wheels and source archives, from the commit alone; each in two folders, to the same bytes.

    Raises:
        Refused: two of a name differ.
    """
    hashes: list[Mapping[str, str]] = []
    with TemporaryDirectory(prefix="release-") as name:
        for attempt in ("first", "second-time"):
            tree, dist = Path(name) / attempt / "tree", Path(name) / attempt / "dist"
            _export(source, made.commit, tree)
            env = os.environ | {"SOURCE_DATE_EPOCH": str(made.epoch), "UV_PYTHON_DOWNLOADS": "never"}
            build = [_uv(), "build", "--quiet", "--python", sys.executable, "--all-packages", "--out-dir", str(dist)]
            _run(build, tree, env)
            hashes.append({path.name: _sha256(path) for path in dist.iterdir() if path.suffix in (".whl", ".gz")})
        differing = sorted(one for one in {*hashes[0], *hashes[1]} if hashes[0].get(one) != hashes[1].get(one))
        if differing:
            raise Refused(f"built twice, these are not the same bytes: {', '.join(differing)}")
        out.mkdir(parents=True)
        for path in sorted(dist.iterdir()):
            if path.name in hashes[1] and not path.name.startswith(NOT_SHIPPED):
                shutil.copy(path, out / path.name)


def build_images(source: Path, out: Path, made: Made) -> None:
    """An archive of each service's image, and of the command's, where podman is.

    Raises:
        Refused: podman is there, and one can't be built.
    """
    podman = shutil.which("podman")
    if podman is None:
        made.missing["images"] = "podman is not on this machine"
        return
    out.mkdir(parents=True)
    base = [f"--build-arg=BASE={base}"] if (base := os.environ.get("BASE")) else []
    with TemporaryDirectory(prefix="release-") as name:
        tree = Path(name) / "tree"
        _export(source, made.commit, tree)
        for service in (*sorted(path.parent.name for path in tree.glob("services/*/pyproject.toml")), "cli"):
            image = f"aetheris/{service.replace('_', '-')}:{made.version}"
            build = [podman, "build", "--quiet", f"--timestamp={made.epoch}", f"--build-arg=SERVICE={service}", *base]
            _run([*build, "--tag", image, "."], tree)
            archive = out / f"{service.replace('_', '-')}-{made.version}.tar"
            _run([podman, "save", "--quiet", "--format", "oci-archive", "--output", str(archive), image], tree)


def bills_of_materials(repository: Path, out: Path) -> None:
    """What users install, and what lies in each image, of the lock."""
    _run([sys.executable, "deploy/sbom.py"], repository)
    shutil.copytree(repository / "build" / "sbom", out)


def sums(folder: Path) -> str:
    """As sha256sum writes and checks them."""
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    about = (CHECKSUMS, SIGNATURE, SIGNERS)
    return "".join(f"{_sha256(folder / path)}  {path}\n" for path in paths if path not in about)


def sign(folder: Path, key: Path) -> None:
    """The checksums, by a key file of OpenSSH; beside them whose key that is.

    Raises:
        Refused: it can't.
    """
    public = subprocess.run([_program("ssh-keygen"), "-y", "-f", str(key)], capture_output=True, text=True, check=False)
    if public.returncode:
        raise Refused(f"KEY={key}: ssh-keygen can't read a private key there")
    signer = " ".join(public.stdout.split()[:2])
    (folder / SIGNERS).write_text(f'{NAMESPACE} namespaces="{NAMESPACE},git" {signer}\n')
    _run([_program("ssh-keygen"), "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, CHECKSUMS], folder)


def check(folder: Path) -> Sequence[str]:
    """What a release's folder says of itself, by others than who wrote it: by which it was checked.

    Raises:
        Refused: a file is not what the checksums say, or these are not what was signed.
    """
    _run([_program("sha256sum"), "--check", "--strict", "--quiet", CHECKSUMS], folder)
    if sums(folder) != (folder / CHECKSUMS).read_text():
        raise Refused(f"{CHECKSUMS} names other files than lie there")
    if not (folder / SIGNATURE).exists():
        return ("sha256sum",)
    said = (folder / CHECKSUMS).read_bytes()
    verify = [_program("ssh-keygen"), "-Y", "verify", "-f", SIGNERS, "-I", NAMESPACE, "-n", NAMESPACE, "-s", SIGNATURE]
    if subprocess.run(verify, cwd=folder, input=said, capture_output=True, check=False).returncode:
        raise Refused(f"{SIGNATURE}: ssh-keygen does not take it")
    try:
        signature = read_signature((folder / SIGNATURE).read_text().strip() + "\n")
    except SshSignatureInvalid as why:
        raise Refused(f"{SIGNATURE}: {why}") from None
    if signature.namespace != NAMESPACE or not signature.holds(said):
        raise Refused(f"{SIGNATURE}: it is not over {CHECKSUMS}")
    signer = (folder / SIGNERS).read_text().split()[-1]
    if base64.b64encode(signature.key.blob).decode() != signer:
        raise Refused(f"{SIGNATURE}: by another key than {SIGNERS} names")
    return ("sha256sum", "ssh-keygen", "aetheris")


def tag(repository: Path, folder: Path, key: Path, made: Made) -> None:
    """The commit's name, signed by the same key, with the hash of the checksums in it.

    Raises:
        Refused: git can't.
    """
    message = f"Aetheris {made.version}\n\n{CHECKSUMS}: {_sha256(folder / CHECKSUMS)}\n"
    signing = ["-c", "gpg.format=ssh", "-c", f"user.signingkey={key.resolve()}"]
    _run(
        [_program("git"), *signing, "tag", "--sign", "--message", message, f"v{made.version}", made.commit], repository
    )
    holding = ["-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={folder / SIGNERS}"]
    _run([_program("git"), *holding, "tag", "--verify", f"v{made.version}"], repository)


def release(repository: Path, version: str, key: Path | None, *, tagged: bool) -> tuple[Path, Made]:
    """All of it; where it lies, and what it is.

    Raises:
        Refused: nothing was made of it, or no tag.
    """
    found = [*refusals(repository, version, tagged=tagged)]
    if tagged and key is None:
        found.append("TAG=1 needs KEY: a tag is signed")
    if found:
        raise Refused("\n".join(found))
    commit = _git(repository, "rev-parse", "HEAD").strip()
    made = Made(version, commit, int(_git(repository, "show", "--no-patch", "--format=%ct", commit)))
    folder = repository / "build" / "release" / version
    part = folder.with_name(f"{version}.part")
    for old in (folder, part):
        shutil.rmtree(old, ignore_errors=True)
    build_twice(repository, part / "packages", made)
    bills_of_materials(repository, part / "sbom")
    build_images(repository, part / "images", made)
    (part / "CHANGES.md").write_text(f"{changes((repository / 'CHANGELOG.md').read_text(), version)}\n")
    parts = [part / one for one in ("packages", "sbom", "images")]
    made.files |= {one.name: len([*one.iterdir()]) for one in parts if one.exists()}
    if key is None:
        made.missing["signature"] = "no KEY"
    (part / "release.json").write_text(made.told())
    (part / CHECKSUMS).write_text(sums(part))
    if key is not None:
        sign(part, key)
    check(part)
    part.rename(folder)
    if tagged and made.missing:
        raise Refused(f"no tag: {', '.join(made.missing)} not made. What was, lies in {folder}")
    if tagged and key is not None:
        tag(repository, folder, key, made)
    return folder, made


def main() -> int:
    """Make one, and say what it is."""
    parser = argparse.ArgumentParser(description="A release, whole but for its publication.")
    parser.add_argument("version")
    parser.add_argument("--key", type=Path, help="a private key of OpenSSH, which signs")
    parser.add_argument("--tag", action="store_true", help="name the commit vVERSION")
    asked = parser.parse_args()
    try:
        folder, made = release(REPOSITORY, asked.version, asked.key, tagged=asked.tag)
    except Refused as why:
        sys.stderr.write("".join(f"refused: {line}\n" for line in str(why).splitlines()))
        return 1
    by = ", ".join(check(folder))
    counts = ", ".join(f"{count} {what}" for what, count in made.files.items())
    sys.stdout.write(f"{folder}: {counts}; checked by {by}\n")
    sys.stdout.write("".join(f"not made: {what} ({why})\n" for what, why in made.missing.items()))
    return 0


def _export(source: Path, commit: str, to: Path) -> None:
    """The files of a commit, and no other."""
    to.mkdir(parents=True)
    archive = [_program("git"), "archive", "--format=tar", commit]
    packed = subprocess.run(archive, cwd=source, capture_output=True, check=True)
    subprocess.run([_program("tar"), "--extract", "--file=-"], cwd=to, input=packed.stdout, check=True)


def _uv() -> str:
    own = REPOSITORY / ".uv" / "bin" / "uv"
    return str(own) if own.exists() else shutil.which("uv") or "uv"


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Refused(f"{name} is not on this machine")
    return found


def _git(repository: Path, *argv: str) -> str:
    return subprocess.run([_program("git"), *argv], cwd=repository, capture_output=True, text=True, check=True).stdout


def _run(argv: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(argv, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise Refused(f"{Path(argv[0]).name} {argv[1]} failed: {done.stderr.decode(errors='replace').strip()[-2000:]}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
