"""Every minor line of Apache Kafka that is kept up, alone and as three: whatever asks who we are, all is served."""

import asyncio
from collections.abc import Generator
from functools import partial
from types import SimpleNamespace

import pytest

from aetheris.cli.embedded.jars import KAFKA_VERSION
from aetheris.runtime.kafka import bootstrap
from tests.testkit.asking_brokers import NOBODY_ASKS, WAYS, Tokens, all_is_served, asking_brokers
from tests.testkit.doc_tables import write_table
from tests.testkit.kafka_versions import java_of, released_cluster, releases

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.timeout(1800)]

ASKED = (NOBODY_ASKS, *WAYS)
RELEASES = sorted([*releases(), KAFKA_VERSION], key=lambda one: [int(part) for part in one.split(".")])
COLUMNS = [(way, tls) for tls in (False, True) for way in ASKED]
SERVED: dict[str, dict[tuple[str, bool], list[int]]] = {}


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a package brought them."""
    monkeypatch.setattr(bootstrap, "entry_points", lambda **_named: [SimpleNamespace(load=lambda: Tokens)])


@pytest.fixture(scope="module", autouse=True)
def table() -> Generator[None]:
    """Into docs/kafka.md, once all of it was served."""
    yield
    if SERVED.keys() == set(RELEASES):
        heads = ["Kafka", "Java", *(f"{way}{', TLS' if tls else ''}" for way, tls in COLUMNS)]
        rows = [
            [release, str(java_of(release).major)]
            + [", ".join(map(str, SERVED[release].get(column, []))) or "–" for column in COLUMNS]
            for release in RELEASES
        ]
        write_table("kafka.md", "versions", heads, rows)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("release", RELEASES)
def test_all_is_served(release: str, count: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Alone in every way; as three in two ways, so that each pair of release, way, TLS and number is met."""
    made = [] if release == KAFKA_VERSION else [partial(released_cluster, release)]
    at = RELEASES.index(release)
    of_three = [(ASKED[(at + turn) % len(ASKED)], (at + turn) % 2 == 0) for turn in (0, 3)]
    with asking_brokers(tmp_path_factory.mktemp(f"kafka-{release}-{count}"), count, *made) as asking:
        for way, tls in COLUMNS if count == 1 else of_three:
            address, context = asking.address(way, tls=tls), asking.context(tls=tls)
            try:
                asyncio.run(all_is_served(address, context, replication=count))
            except Exception as error:
                raise AssertionError(f"Kafka {release}, {count}: {way}, TLS {tls}") from error
            SERVED.setdefault(release, {}).setdefault((way, tls), []).append(count)
