"""A secret that a system is given to see where it turns up: `canary@1`, for the tools of tests.testkit.secret_tools."""

import base64
import json
import os
import re
import secrets
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.testkit.collector import Collector
from tests.testkit.system import System

MARK = b"[secret canary@1]"
"""What stands where it was taken out."""
CONTROL = b"canary-control"
"""What `leak` returns beside it: it is found wherever the canary would be."""


@dataclass(frozen=True)
class Canary:
    """A fresh value, and the files in `folder` by which services know it."""

    value: str
    folder: Path

    @classmethod
    def laid(cls, folder: Path, more: Mapping[str, tuple[str, str]] | None = None) -> "Canary":
        """Write the files; `more` are other secrets for the same tools: name → (file or env, where)."""
        canary = cls(f'canary/{secrets.token_urlsafe(24)}+"ä', folder)
        (folder / "seen").touch()
        (folder / "canary-1").write_text(f"{canary.value}\n")
        uses = json.dumps(["leak#/token", "raises@1#/token", "takes#/what/inner"])
        places = {"canary@1": ("file", "canary-1"), **(more or {})}
        entries = (
            f'[[secrets]]\nname = "{name}"\n{kind} = "{where}"\nuses = {uses}' for name, (kind, where) in places.items()
        )
        (folder / "secrets.toml").write_text("\n".join(entries))
        return canary

    @property
    def env(self) -> dict[str, str]:
        """What services and tools must be told."""
        return {"AETHERIS_SECRETS": str(self.folder / "secrets.toml"), "SECRET_SEEN": str(self.folder / "seen")}

    def given(self) -> set[str]:
        """The hex SHA-256 of what tools were given."""
        return set((self.folder / "seen").read_text().split())


def forms_of(value: str) -> tuple[bytes, ...]:
    """As what it must not be found: itself, its first half, in hex, in JSON, in base64, whatever stands around it.

    Its first half has nothing that JSON escapes, so it is found in the base64 of a text that quotes the value, too.
    """
    plain = value.encode()
    half = plain[: len(plain) // 2]
    written = (*_in_base64(plain), *_in_base64(half))
    for_urls = (one.translate(_FOR_URLS) for one in written)
    in_json = json.dumps(value)[1:-1].encode()
    return tuple(
        dict.fromkeys((plain, half, half.hex().encode(), half.hex().upper().encode(), in_json, *written, *for_urls))
    )


_FOR_URLS = bytes.maketrans(b"+/", b"-_")


def _in_base64(plain: bytes) -> Iterator[bytes]:
    """What base64 makes of it behind 0, 1 and 2 bytes of a group of three; only what nothing beside it changes."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + plain)
        yield encoded[-(-8 * before // 6) : 8 * (before + len(plain)) // 6]


def kept_and_told(system: System, collector: Collector, folder: Path, *jobs: str) -> Iterator[tuple[str, bytes]]:
    """Whatever the system kept, wrote, exports or answers of these jobs: (where, bytes)."""
    for path in system.data.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(system.data)), path.read_bytes()
    for job in jobs:
        for view in ("", "/events", "/trace", "/effects", "/ledger", "/contracts", "/replay", "/verify"):
            answer = system.api.get(f"/jobs/{job}{view}")
            assert answer.status_code == 200, (view, answer.text)
            yield view, answer.content
    for job in jobs[:2]:
        page, bundle = folder / f"{job}.html", folder / f"{job}.zip"
        _aetheris(system, "trace", job, "--html", str(page))
        _aetheris(system, "export", job, "--out", str(bundle))
        yield "page", page.read_bytes()
        with zipfile.ZipFile(bundle) as members:
            yield from (("bundle", with_decoded(members.read(name))) for name in members.namelist())
    for body in collector.bodies():
        yield "telemetry", body


def found_in(canary: Canary, places: Iterator[tuple[str, bytes]]) -> tuple[set[str], set[str]]:
    """Where it is, in any form; and where the control is, or the mark: kinds of places that were looked at."""
    leaks: set[str] = set()
    controls: set[str] = set()
    for place, content in places:
        if any(form in content for form in forms_of(canary.value)):
            leaks.add(place)
        if CONTROL in content or MARK in content:
            controls.add(place.split("/")[0] or "job")
    return leaks, controls


def _aetheris(system: System, *args: str) -> None:
    argv = [sys.executable, "-m", "aetheris.cli", *args, "--data", str(system.data)]
    ran = subprocess.run(argv, capture_output=True, text=True, env={**os.environ}, check=False)
    assert ran.returncode == 0, ran.stderr


def with_decoded(content: bytes) -> bytes:
    """A bundle keeps each record's bytes in base64, and so does its envelope."""
    for _ in range(2):
        runs = re.findall(rb"[A-Za-z0-9+/]{20,}={0,2}", content)
        content += b"\n".join(base64.b64decode(run) for run in runs if len(run) % 4 == 0)
    return content
