"""A real Prometheus with the alerts that we ship."""

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from aetheris.cli.embedded.ports import free_port
from tests.testkit.external_server import until
from tests.testkit.system import REPOSITORY

RULES = REPOSITORY / "deploy" / "components" / "monitoring" / "rules.yaml"
SCRAPE_S = 0.1


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def ask(self, query: str) -> list[dict[str, Any]]:
        """What it answers: of each series its `metric` and `value`.

        Raises:
            HTTPError: it is no query.
        """
        asked = f"{self.url}/api/v1/query?{urlencode({'query': query})}"
        with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310  our own server
            return json.load(answer)["data"]["result"]

    def value(self, query: str) -> float:
        """The sum of what it answers; 0 where there is nothing."""
        return sum(float(one["value"][1]) for one in self.ask(query))

    def firing(self, alert: str) -> list[dict[str, str]]:
        """The labels of each alert of that name that fires now."""
        with urllib.request.urlopen(f"{self.url}/api/v1/alerts", timeout=10) as answer:  # noqa: S310  our own server
            alerts: list[dict[str, Any]] = json.load(answer)["data"]["alerts"]
        named = [one for one in alerts if one["labels"]["alertname"] == alert]
        return [one["labels"] for one in named if one["state"] == "firing"]


@contextmanager
def running_prometheus(folder: Path, scraped: str | Mapping[str, str]) -> Generator[Prometheus]:
    """Scrape a collector, or each of these by its `job`, and judge our rules, for as long as the block lasts."""
    program = shutil.which("prometheus")
    assert program is not None, "this test needs Prometheus: make system-deps"
    folder.mkdir()
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": yaml.safe_load(RULES.read_text())["spec"]["groups"]}))
    every = f"{int(SCRAPE_S * 1000)}ms"
    if isinstance(scraped, str):
        served = [{"job_name": "collector", "honor_labels": True, "static_configs": _at(scraped)}]
    else:
        served = [{"job_name": job, "static_configs": _at(url)} for job, url in scraped.items()]
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "rule_files": ["rules.yml"],
        "scrape_configs": served,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    argv = [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*argv, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        until(lambda: _has_scraped(f"http://{address}"), 60)  # some seconds after it says that it is ready
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait()


def _at(url: str) -> list[dict[str, list[str]]]:
    return [{"targets": [urlsplit(url).netloc]}]


def _has_scraped(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?query=up", timeout=5) as answer:  # noqa: S310  our own server
            return any(one["value"][1] == "1" for one in json.load(answer)["data"]["result"])
    except OSError:
        return False
