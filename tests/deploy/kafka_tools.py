"""Kafka's own console tools and Connect, from the jars of kafka-tools.lock; kept in the user's cache."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aetheris.cli.embedded import jars
from aetheris.cli.embedded.jars import Jar
from aetheris.cli.embedded.java import find_java
from aetheris.cli.embedded.processes import exclusive
from tests.deploy.manifests import CACHE

_LOCK = Path(__file__).parent / "kafka-tools.lock"
_KEPT = CACHE / "aetheris" / f"kafka-tools-{jars.KAFKA_VERSION}"


def command(main: str, *argv: str) -> list[str]:
    """The command that runs a class of theirs."""
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [str(find_java().path), *options, "-cp", _class_path(), main, *argv]


def _class_path() -> str:
    lines = [line.split() for line in _LOCK.read_text().splitlines() if line and not line.startswith("#")]
    locked = [Jar(coordinates, sha256) for sha256, coordinates in lines]
    _KEPT.mkdir(parents=True, exist_ok=True)
    with exclusive(_KEPT / "fetch.lock"), tempfile.TemporaryDirectory(dir=_KEPT) as staging:
        missing = [jar for jar in locked if not (_KEPT / jar.filename).is_file()]
        with ThreadPoolExecutor(jars.FETCH_THREADS) as pool:
            list(pool.map(lambda jar: jars._fetch(jar, Path(staging), _KEPT), missing))
    return os.pathsep.join(str(_KEPT / jar.filename) for jar in locked)
