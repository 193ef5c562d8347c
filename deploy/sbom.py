"""What each part of Aetheris is made of, as CycloneDX (docs/supply-chain.md): build/sbom, and docs/licences.md.

uv says what the lock has, with the hash of each file; cyclonedx-py what licence each installed package declares;
Kafka's jars are added from their lock.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "build" / "sbom"
LICENCES = REPOSITORY / "docs" / "licences.md"
UV = str(REPOSITORY / ".uv" / "bin" / "uv") if (REPOSITORY / ".uv" / "bin" / "uv").exists() else which("uv") or "uv"
NOT_SHIPPED = frozenset({"aetheris-testkit", "aetheris-workspace"})
WHOLE = "aetheris"
"""The name of the one that has everything that users can install; the others are of a service's image."""

BY_HAND: Mapping[str, str] = {
    "httpx2-jsfetch": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "pyrage": "MIT",
    "pywin32": "PSF-2.0",
    "tiktoken": "MIT",
}
"""Licences of what declares none where a tool reads it, or is installed on other platforms only."""

_PAGE = """# Licences

Everything that users install, or what installs it, and the licence that it declares; made by `make docs` from `uv.lock`
([what it is made of](supply-chain.md)). Aetheris itself is under the Apache License 2.0. The jars of the embedded
broker are not among them: they are Apache Kafka's, whose distribution lists theirs.

| package | licence |
|---|---|
"""

Bom = dict[str, Any]


def boms() -> dict[str, Bom]:
    """Name → bill of materials: the whole, and each service's image."""
    names = sorted(path.parent.name for path in REPOSITORY.glob("services/*/pyproject.toml"))
    images = {name: [f"aetheris-{name.replace('_', '-')}"] for name in names}
    return {WHOLE: whole()} | {name: _with_licences(_locked(packages)) for name, packages in images.items()}


def whole() -> Bom:
    """Of all that users can install, with every extra, and the jars that the command line fetches."""
    bom = _locked(_packages(), "--all-extras")
    jars = list(_jars())
    bom["components"] += jars
    cli = next(one for one in bom["components"] if one["name"] == "aetheris-cli")
    needs = next(one for one in bom["dependencies"] if one["ref"] == cli["bom-ref"])
    needs["dependsOn"] = [*needs.get("dependsOn", ()), *(jar["bom-ref"] for jar in jars)]
    bom["dependencies"] += [{"ref": jar["bom-ref"]} for jar in jars]
    root, ours = bom["metadata"]["component"]["bom-ref"], [one for one in bom["components"] if _is_ours(one["name"])]
    bom["dependencies"] = [one for one in bom["dependencies"] if one["ref"] != root]
    bom["dependencies"].append({"ref": root, "dependsOn": [one["bom-ref"] for one in ours]})
    bom["metadata"]["component"]["name"] = WHOLE
    return _with_licences(bom)


def licences_page(bom: Bom) -> str:
    """The text of docs/licences.md."""
    rows = {(one["name"], _said(one)) for one in bom["components"] if not _is_ours(one["name"]) and not _is_jar(one)}
    return _PAGE + "".join(f"| {name} | {licence} |\n" for name, licence in sorted(rows))


def main() -> None:
    """Write them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, bom in boms().items():
        path = FOLDER / f"{name}.cdx.json"
        path.write_text(json.dumps(bom, indent=2) + "\n")
        sys.stdout.write(f"{path.relative_to(REPOSITORY)}: {len(bom['components'])} components\n")


def _packages() -> list[str]:
    files = [*REPOSITORY.glob("libs/*/pyproject.toml"), *REPOSITORY.glob("services/*/pyproject.toml")]
    names = sorted(tomllib.loads(file.read_text())["project"]["name"] for file in files)
    return [name for name in names if name not in NOT_SHIPPED]


def _locked(packages: Sequence[str], *more: str) -> Bom:
    argv = [UV, "export", "--quiet", "--frozen", "--no-default-groups", "--format", "cyclonedx1.5", *more]
    return _json([*argv, *(part for name in packages for part in ("--package", name))])


def _jars() -> Iterator[Bom]:
    lock = REPOSITORY / "libs" / "cli" / "src" / "aetheris" / "cli" / "embedded" / "kafka.lock"
    for sha256, coordinates in (line.split() for line in lock.read_text().splitlines() if line[:1] != "#"):
        group, name, version = coordinates.split(":")
        purl = f"pkg:maven/{group}/{name}@{version}"
        hashes = [{"alg": "SHA-256", "content": sha256}]
        common = {"type": "library", "bom-ref": purl, "group": group, "name": name}
        yield common | {"version": version, "hashes": hashes, "purl": purl}


def _with_licences(bom: Bom) -> Bom:
    for one in bom["components"]:
        if not _is_jar(one) and (licences := _licences().get(one["name"])):
            one["licenses"] = licences
    return bom


@cache
def _licences() -> Mapping[str, list[Bom]]:
    """Name of a package → its licences, as CycloneDX has them."""
    argv = [sys.executable, "-m", "cyclonedx_py", "environment", "--spec-version", "1.5", "--output-format", "JSON"]
    found = _json([*argv, sys.executable])["components"]
    declared = {one["name"].lower().replace("_", "-"): one["licenses"] for one in found if "licenses" in one}
    return {name: [{"license": {"id": licence}}] for name, licence in BY_HAND.items()} | declared


def _said(component: Bom) -> str:
    """Its licences in words; SPDX' names where it declares one."""
    each = component.get("licenses", [])
    names = [one.get("expression") or one["license"].get("id") for one in each]
    spdx = [name for name in names if name]
    classifiers = [one["license"]["name"].rpartition(" :: ")[2] for one in each if "name" in one.get("license", {})]
    return " or ".join(dict.fromkeys(spdx or classifiers)) or "none declared"


def _is_ours(name: str) -> bool:
    return name.startswith("aetheris-")


def _is_jar(component: Bom) -> bool:
    return component.get("purl", "").startswith("pkg:maven/")


def _json(argv: Sequence[str]) -> Bom:
    return json.loads(subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    if "--page" in sys.argv:
        LICENCES.write_text(licences_page(whole()))
    else:
        main()
