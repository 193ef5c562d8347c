"""Metrics: counters of what should be rare, and gauges that are asked for; the catalogue is docs/metrics.md.

Nothing is counted per record: where all goes well, a metric costs nothing. Without an OTLP endpoint there are none.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING

from aetheris.runtime.telemetry.tracer import within

if TYPE_CHECKING:
    from opentelemetry import metrics as api
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
_FLUSH_WITHIN_MS = 5_000


class Metric(Enum):
    """(name, unit, what it says)."""

    VIOLATIONS = ("aetheris.violations", "{violation}", "Rules that a job's history breaks, by rule")
    IN_DOUBT = ("aetheris.invocations.in_doubt", "{invocation}", "Calls of which nobody knew whether they took effect")
    PARKED = ("aetheris.invocations.parked", "{invocation}", "Calls left to a human")
    CONTRADICTED = (
        "aetheris.invocations.contradicted",
        "{invocation}",
        "Successes that came after their key was settled otherwise: a second effect may exist",
    )
    UNTRACEABLE = ("aetheris.effects.untraceable", "{effect}", "Irreversible effects without an external id, by tool")
    UNCONFIRMED = (
        "aetheris.confirmations.failed",
        "{effect}",
        "Recorded effects that the external system no longer bears out",
    )
    TOOL_REFUSED = (
        "aetheris.tools.refused",
        "{call}",
        "Calls of blocking tools that were refused: too many threads of calls that timed out still run, by tool",
    )
    TOOL_LINES_REFUSED = (
        "aetheris.tools.lines_refused",
        "{record}",
        "Lines of tools.registry that describe no tool and no model: passed over",
    )
    QUARANTINED = ("aetheris.tools.quarantined", "{pause}", "Pauses of tools that failed whoever called them, by tool")
    GLASS_BROKEN = (
        "aetheris.glass.broken",
        "{decision}",
        "Decisions taken alone, in an emergency, by what",
    )
    LEASE_CONFLICTS = ("aetheris.lease.conflicts", "{lease}", "Heartbeats for a lease that somebody else holds")
    GRANTS_DROPPED = (
        "aetheris.grants.dropped",
        "{grant}",
        "Grants dropped again, as they name an earlier activation than the executor goes by",
    )
    LOGINS_REFUSED = ("aetheris.logins.refused", "{login}", "Requests without a token that counts, by reason")
    LIMITED = ("aetheris.requests.limited", "{request}", "Requests beyond a limit of their tenant or token, by limit")
    ACCESSES_LOST = ("aetheris.accesses.lost", "{record}", "Accesses that could not be recorded")
    NOTICES_UNTOLD = ("aetheris.notices.untold", "{notice}", "Notices that the gateway takes no job for, by reason")
    STARTS_REFUSED = ("aetheris.starts.refused", "{occasion}", "Due times and messages that start no job, by start")
    DEAD_LETTERS = ("aetheris.dead_letters", "{record}", "Records that could not be decoded, since the start")
    UNJUDGED = ("aetheris.jobs.unjudged", "{job}", "Jobs that a service failed to judge: they stand still, by error")
    REFUSED = ("aetheris.records.refused", "{record}", "Records that the brokers will not have, by topic and reason")
    UNSIGNED = (
        "aetheris.messages.unsigned",
        "{record}",
        "Commands and lines of tables that nobody signed who may write them: no service obeys them, by topic and type",
    )
    ARCHIVE_LATE = ("aetheris.archive.late", "s", "For how long the oldest job waits that should be archived, now")
    ARCHIVE_REFUSED = (
        "aetheris.archive.refused",
        "{job}",
        "Sealed jobs that can't be archived, as their bundle would prove nothing, now",
    )
    PARQUET_LATE = ("aetheris.parquet.late", "s", "For how long a sealed job should be in Parquet and is not, now")
    PARQUET_REFUSED = (
        "aetheris.parquet.refused",
        "{job}",
        "Sealed jobs that are not written as Parquet, as their records are not what was sealed, since the start",
    )
    UNREAD = ("aetheris.jobs.unread", "{job}", "Jobs that can't be read, and are asked for again and again, now")
    UNWITNESSED = (
        "aetheris.seals.unwitnessed",
        "s",
        "For how long the oldest seal waits that not enough witnesses have seen, now",
    )
    BLOCKED = (
        "aetheris.loop.blocked",
        "{block}",
        "Times that something held up a service's event loop for over a second, by tool or function",
    )
    STUCK_JOBS = ("aetheris.jobs.stuck", "{job}", "Jobs that go on no more and wait for nobody, now")
    LAG = ("aetheris.consumer.lag", "{record}", "Records of the log that were not read yet, now")

    def __init__(self, metric: str, unit: str, says: str) -> None:
        self.metric = metric
        self.unit = unit
        self.says = says


class Metrics:
    """A service's meters."""

    def __init__(self, service: str, reader: "MetricReader | None" = None) -> None:
        self._provider: MeterProvider | None = None
        self._counters: dict[Metric, api.Counter] = {}
        if reader is not None or any(os.environ.get(name) for name in _ENDPOINTS):
            self._provider = _provider(service, reader)
            self._meter = self._provider.get_meter("aetheris")

    def count(self, metric: Metric, amount: int = 1, *, traceparent: bytes | None = None, **attributes: str) -> None:
        """Something rare has happened; the trace that it happened in becomes an exemplar."""
        if self._provider is None:
            return
        counter = self._counters.get(metric)
        if counter is None:
            counter = self._counters[metric] = self._meter.create_counter(metric.metric, metric.unit, metric.says)
        counter.add(amount, attributes, within(traceparent))

    def watch(self, metric: Metric, ask: Callable[[], int], *, grows: bool = False) -> None:
        """Ask for a value whenever metrics are exported, from another thread; one that only grows is a counter."""
        if self._provider is None:
            return

        from opentelemetry.metrics import Observation  # noqa: PLC0415  see _provider

        def observed(_options: "api.CallbackOptions") -> "Iterable[api.Observation]":
            return (Observation(ask()),)

        make = self._meter.create_observable_counter if grows else self._meter.create_observable_gauge
        make(metric.metric, [observed], metric.unit, metric.says)

    async def flush(self) -> None:
        """Export now: for what an operator must know at once."""
        if self._provider is not None:
            await asyncio.to_thread(self._provider.force_flush, _FLUSH_WITHIN_MS)

    def close(self) -> None:
        """Export what is left."""
        if self._provider is not None:
            self._provider.shutdown()


def _provider(service: str, reader: "MetricReader | None") -> "MeterProvider":
    # imported only where it is used: a tenth of a service's start
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    resource = Resource.create({"service.name": f"aetheris-{service}"})
    return MeterProvider([reader or _otlp()], resource=resource, shutdown_on_exit=False)


def _otlp() -> "MetricReader":
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    return PeriodicExportingMetricReader(OTLPMetricExporter())
