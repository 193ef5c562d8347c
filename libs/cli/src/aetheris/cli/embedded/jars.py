"""Kafka's jars: fetched from the Maven repository by exact coordinates, kept only with the locked sha256."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jgo.config import GlobalSettings
from jgo.constants import default_maven_repo
from jgo.maven import MavenContext

from aetheris.cli.embedded.errors import JarsMissingError
from aetheris.cli.embedded.processes import exclusive

Progress = Callable[[str, str], None]  # part, what happens to it

KAFKA_VERSION = "4.3.1"
FETCH_THREADS = 8
FETCH_TIMEOUT_S = 60


@dataclass(frozen=True)
class Jar:
    """One line of kafka.lock: group:artifact:version and the file's sha256 in hex."""

    coordinates: str
    sha256: str

    @property
    def filename(self) -> str:
        """The name in the cache; no two artifacts of the lock share one."""
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"


def locked_jars() -> tuple[Jar, ...]:
    """The jars of kafka.lock, in the order of the class path."""
    text = files("aetheris.cli.embedded").joinpath("kafka.lock").read_text(encoding="utf-8")
    return tuple(_jar(line) for line in text.splitlines() if line and not line.startswith("#"))


def cache_folder() -> Path:
    """Where the jars and the class data archive are kept for all data folders of a user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "aetheris" / f"kafka-{KAFKA_VERSION}"


def missing_jars(cache: Path) -> list[Jar]:
    """The locked jars that the cache doesn't hold yet."""
    return [jar for jar in locked_jars() if not (cache / jar.filename).is_file()]


def corrupt_jars(cache: Path) -> list[Jar]:
    """The jars in the cache whose bytes are not the locked ones (reads them all, 45 MB)."""
    present = [jar for jar in locked_jars() if (cache / jar.filename).is_file()]
    return [jar for jar in present if _sha256(cache / jar.filename) != jar.sha256]


def class_path(cache: Path) -> str:
    """The class path, always in the lock's order: the class data archive is bound to it."""
    return os.pathsep.join(str(cache / jar.filename) for jar in locked_jars())


def fetch_jars(cache: Path, progress: Progress) -> None:
    """Fetch what the cache lacks; a file gets its name there only once its sha256 is right.

    Raises: JarsMissingError.
    """
    if not missing_jars(cache):
        return
    cache.mkdir(parents=True, exist_ok=True)
    with exclusive(cache / "fetch.lock"), tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as staging:
        missing = missing_jars(cache)
        with ThreadPoolExecutor(FETCH_THREADS) as pool:
            fetching = [pool.submit(_fetch, jar, Path(staging), cache) for jar in missing]
            for count, done in enumerate(as_completed(fetching), start=1):
                done.result()
                progress("kafka", f"jar {count} of {len(missing)}")


def _jar(line: str) -> Jar:
    sha256, coordinates = line.split()
    return Jar(coordinates, sha256)


def _fetch(jar: Jar, staging: Path, cache: Path) -> None:
    for path in _sources(jar, staging):
        if _sha256(path) == jar.sha256:
            _place(path, staging / jar.filename, cache / jar.filename)
            return
    raise JarsMissingError(
        f"The Maven repository's {jar.coordinates} has not the sha256 of kafka.lock",
        "Check what stands between this machine and the Maven repository; nothing was kept of it.",
    )


def _sources(jar: Jar, staging: Path) -> Iterator[Path]:
    """The file in Maven's local repository, if it is there, then a fresh download."""
    group, artifact, version = jar.coordinates.split(":")
    local = default_maven_repo().joinpath(*group.split("."), artifact, version, jar.filename)
    if local.is_file():
        yield local
    yield _download(jar, staging)


def _download(jar: Jar, staging: Path) -> Path:
    repositories = GlobalSettings.load().repositories or None
    context = MavenContext(repo_cache=staging, remote_repos=repositories, timeout=FETCH_TIMEOUT_S)
    try:
        return context.create_dependency(jar.coordinates).artifact.resolve()
    except (OSError, RuntimeError) as error:
        raise JarsMissingError(
            f"{jar.coordinates} could not be fetched ({type(error).__name__})",
            "Check the network, or [repositories] in jgo's settings, and try again: it goes on from here.",
        ) from error


def _place(source: Path, staged: Path, target: Path) -> None:
    staged.write_bytes(source.read_bytes())
    staged.replace(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
