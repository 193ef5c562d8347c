"""Brokers of other releases of Apache Kafka, from the jars of kafka_versions.lock; kept in the user's cache."""

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from aetheris.cli.embedded import jars, java
from aetheris.cli.embedded.jars import Jar
from aetheris.cli.embedded.java import Java, find_java
from aetheris.cli.embedded.kafka import Broker, Installation, Tuning, cluster_in
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.processes import exclusive

_LOCK = Path(__file__).parent / "kafka_versions.lock"
_JAVA_OF_3 = range(17, 24)
"""Kafka 3 asks the security manager who logs in, which Java 24 no longer has."""
_LOGGING_OF_3 = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


@dataclass(frozen=True)
class ReleasedBroker(Broker):
    """One of another release."""

    release: str = ""

    def prepare(self) -> None:
        """With a configuration of the logging that Kafka 3 has."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j.properties").write_text(_LOGGING_OF_3)
        super().prepare()

    def _java(self) -> tuple[str, ...]:
        return (
            str(self.installation.java.path),
            *self.tuning.jvm,
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}",
            "-cp",
            os.pathsep.join(str(self.installation.cache / jar.filename) for jar in _jars(self.release)),
        )


def releases() -> list[str]:
    """Of the lock, the oldest first."""
    return list(dict.fromkeys(release for release, _ in _locked()))


def java_of(release: str) -> Java:
    """A Java that this release runs on; of other machines' usual places too."""
    found = find_java()
    if release[0] != "3" or found.major in _JAVA_OF_3:
        return found
    for path in Path("/usr/lib/jvm").glob("*/bin/java"):
        other = java._ask(path)
        if other is not None and other.major in _JAVA_OF_3:
            return other
    raise AssertionError(f"Kafka {release} needs a Java 17 to 23 (Debian: apt-get install openjdk-17-jre-headless)")


def released_cluster(
    release: str, folder: Path, ports: Ports, count: int, tuning: Callable[[int], Tuning]
) -> list[Broker]:
    """As `cluster_in`; the jars are fetched first, where the cache lacks them."""
    installation = Installation(java_of(release), _fetched(release))
    brokers = cluster_in(installation, folder, ports, count, tuning)
    return [
        ReleasedBroker(**{one.name: getattr(broker, one.name) for one in fields(broker)}, release=release)
        for broker in brokers
    ]


@cache
def _fetched(release: str) -> Path:
    folder = jars.cache_folder().parent / f"kafka-{release}"
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / "fetch.lock"), tempfile.TemporaryDirectory(dir=folder) as staging:
        missing = [jar for jar in _jars(release) if not (folder / jar.filename).is_file()]
        with ThreadPoolExecutor(jars.FETCH_THREADS) as pool:
            list(pool.map(lambda jar: jars._fetch(jar, Path(staging), folder), missing))
    return folder


def _jars(release: str) -> list[Jar]:
    return [jar for of, jar in _locked() if of == release]


def _locked() -> Iterator[tuple[str, Jar]]:
    for line in _LOCK.read_text().splitlines():
        if not line.startswith("#"):
            release, sha256, coordinates = line.split()
            yield release, Jar(coordinates, sha256)
