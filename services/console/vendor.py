"""Fetch what browsers are given of others' script, from npm, and hold it against what was looked at: once a version.

The files are committed, and nothing is fetched at a build: `python services/console/vendor.py` writes them anew.
"""

import hashlib
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]


@dataclass(frozen=True)
class VendoredFile:
    """One file of a package, where it lies here, and its SHA-256."""

    package: str
    place: str
    to: Path
    sha256: str


_STATIC = HERE / "src" / "aetheris" / "console" / "static" / "vendor"
_TESTS = REPOSITORY / "tests" / "testkit" / "vendor"
_HTMX = "htmx.org@4.0.1"
VENDORED = (
    VendoredFile(
        _HTMX,
        "dist/htmx.min.js",
        _STATIC / "htmx.min.js",
        "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    ),
    VendoredFile(
        _HTMX,
        "dist/ext/hx-csp.min.js",
        _STATIC / "hx-csp.min.js",
        "a7e1e6711ae6c3e50ad300fba7936cbe8d07599cdae313414a179ddd6b26e143",
    ),
    VendoredFile(
        _HTMX,
        "LICENSE",
        _STATIC / "LICENSE-htmx.txt",
        "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    ),
    VendoredFile(
        "axe-core@4.14.1",
        "axe.min.js",
        _TESTS / "axe.min.js",
        "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
    ),
)


def fetched(one: VendoredFile, folder: Path) -> bytes:
    """The file, as npm has it. Raises ValueError where that is another."""
    subprocess.run(["npm", "pack", "--silent", one.package], cwd=folder, check=True, capture_output=True)  # noqa: S607
    [packed] = folder.glob("*.tgz")
    with tarfile.open(packed) as archive:
        member = archive.extractfile(f"package/{one.place}")
        data = member.read() if member is not None else b""
    found = hashlib.sha256(data).hexdigest()
    if found != one.sha256:
        raise ValueError(f"{one.package}: {one.place} is {found}")
    return data


def main() -> None:
    """Write all of them."""
    for one in VENDORED:
        with tempfile.TemporaryDirectory() as folder:
            data = fetched(one, Path(folder))
        one.to.parent.mkdir(parents=True, exist_ok=True)
        one.to.write_bytes(data)


if __name__ == "__main__":
    main()
