"""What services say of their jobs at rest, by their metrics."""

from collections.abc import Iterator

import httpx
from prometheus_client.parser import text_string_to_metric_families

from aetheris.cli.embedded.plan import Plan
from aetheris.protocol.base.job_table import Resting
from aetheris.runtime.telemetry.catalogue import Metric
from tests.testkit.external_server import until
from tests.testkit.system import System

PACKING = ("planner-0", "ledger-0", "executor-0", "verifier-0")
"""The services that pack their jobs."""


def resting(system: System, part: str) -> Resting:
    """How many jobs a service has packed, and into how many bytes; none while it can't say."""
    port = next(int(one.target) for one in Plan.load(system.data).parts if one.name == part)
    try:
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=60)
    except httpx.TransportError:
        return Resting()
    said = dict(_numbers(page.text))
    return Resting(*(int(said.get(one.in_prometheus(), 0)) for one in (Metric.JOBS_AT_REST, Metric.PACKED)))


def wait_resting(system: System, count: int, deadline_s: float = 120.0) -> dict[str, Resting]:
    """What each service has packed, once that is so many jobs in each."""
    found: dict[str, Resting] = {}

    def rest() -> bool:
        found.update({part: resting(system, part) for part in PACKING})
        return all(one.jobs >= count for one in found.values())

    try:
        until(rest, deadline_s)
    except TimeoutError:
        raise AssertionError(f"not {count} at rest after {deadline_s} s: {found}") from None
    return found


def _numbers(page: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield sample.name, sample.value
