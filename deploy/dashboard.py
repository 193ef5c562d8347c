"""Write dashboard.json of the component `monitoring`: three rows, one for each question; `make docs` runs this.

Names are those of /metrics (docs/metrics.md). A test asks a real Prometheus that has scraped a real system each of
these queries; another holds that the file is what is written here, and that each metric is shown.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parent / "components" / "monitoring" / "dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH = 24
_STAT, _GRAPH = "stat", "timeseries"


class Panel(NamedTuple):
    """What it is called, what it says and what to do about it, its query, and what each line of it is called."""

    title: str
    says: str
    expr: str
    legend: str = ""
    unit: str = "short"


def since(metric: str, by: str = "", over: str = "1h") -> str:
    """How often it was counted within a time."""
    return f"sum{_by(by)} (increase(aetheris_{metric}_total[{over}]))"


def a_minute(metric: str, by: str = "") -> str:
    """How often it is counted a minute."""
    return f"sum{_by(by)} (rate(aetheris_{metric}_total[5m])) * 60"


def quantile(of: float, metric: str, by: str = "") -> str:
    """Below what so many of the last quarter of an hour stay, in seconds."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({of}, sum by ({labels}) (rate(aetheris_{metric}_duration_seconds_bucket[15m])))"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


RED = (
    Panel("Violations, 1 h", "Rules that a job's history breaks: aetheris verify ID", since("violations")),
    Panel("Contradicted, 1 h", "A second effect may exist: aetheris ledger ID", since("invocations_contradicted")),
    Panel("Jobs stuck", "They go on no more, and wait for nobody: aetheris jobs", "sum(aetheris_jobs_stuck)"),
    Panel("Log cut", "Partitions that lack what was read of them: aetheris health", "max(aetheris_log_cut)"),
    Panel("Drift, 1 h", "The external system bears an effect out no longer", since("confirmations_failed")),
    Panel("Dead letters, 1 h", "Records that could not be decoded: aetheris dlq ls", since("dead_letters")),
    Panel("Not judged, 1 h", "Jobs that stand still; the service's log says why", since("jobs_unjudged")),
)
WELL = (
    Panel("Jobs created, per minute", "By tenant", a_minute("jobs_created", "tenant"), "{{tenant}}"),
    Panel("Jobs ended, per minute", "By how", a_minute("jobs_ended", "end"), "{{end}}"),
    Panel("Steps finished, per minute", "By what came of them", a_minute("steps_finished", "result"), "{{result}}"),
    Panel("Calls ended, per minute", "By outcome", a_minute("calls_ended", "outcome"), "{{outcome}}"),
    Panel("In doubt, per minute", "By cause: nobody knew", a_minute("invocations_in_doubt", "cause"), "{{cause}}"),
    Panel("Duplicates prevented, 1 h", "By how it was known", since("duplicates_prevented", "how"), "{{how}}"),
    Panel("Seals made, per minute", "Of jobs that have ended", a_minute("seals_made"), "seals"),
    Panel("Oldest job unsealed", "Ended, and waiting for its seal", "max(aetheris_seals_late_seconds)", "late", "s"),
    Panel("Records behind, by service", "What KEDA scales by", "sum by (job) (aetheris_consumer_lag)", "{{job}}"),
    Panel("Leases held", "Calls in executors' hands", "sum by (instance) (aetheris_leases_held)", "{{instance}}"),
    Panel(
        "Lease conflicts, per minute",
        "Executors that were paused and woke up",
        a_minute("lease_conflicts", "instance"),
        "{{instance}}",
    ),
    Panel("Violations by rule, 1 h", "Which rule is broken", since("violations", "rule"), "{{rule}}"),
    Panel("Tools refused, per minute", "Too many threads of late calls", a_minute("tools_refused", "tool"), "{{tool}}"),
    Panel("Tools in quarantine, 1 h", "Mend what they call", since("tools_quarantined", "tool"), "{{tool}}"),
    Panel("Effects without an external id, 1 h", "Mend the tool", since("effects_untraceable", "tool"), "{{tool}}"),
    Panel("Held up, 1 h", "Who held up an event loop for over a second", since("loop_blocked", "by"), "{{by}}"),
    Panel("Refused by Kafka, per minute", "aetheris doctor", a_minute("records_refused", "topic"), "{{topic}}"),
    Panel("Signed by nobody who may, 1 h", "Who wrote them?", since("messages_unsigned", "topic"), "{{topic}}"),
    Panel("Lines that describe no tool, 1 h", "The gateway's log", since("tools_lines_refused", "job"), "{{job}}"),
    Panel("Grants dropped again, 1 h", "Compare AETHERIS_INSTALLATION", since("grants_dropped", "job"), "{{job}}"),
    Panel("Logins refused, per minute", "By reason", a_minute("logins_refused", "reason"), "{{reason}}"),
    Panel("Accesses not recorded, 1 h", "Kafka was away for long", since("accesses_lost", "job"), "{{job}}"),
    Panel("Decisions made alone, 1 h", "In an emergency: aetheris audit", since("glass_broken", "what"), "{{what}}"),
    Panel("Archive: how late", "The verifier's log says why", "max(aetheris_archive_late_seconds)", "late", "s"),
    Panel("Not to be archived", "The verifier's log names them", "sum(aetheris_archive_refused)", "jobs"),
    Panel("Parquet: how late", "The archiver's log says why", "max(aetheris_parquet_late_seconds)", "late", "s"),
    Panel("Not written as Parquet", "The archiver's log names them", "sum(aetheris_parquet_refused)", "jobs"),
    Panel("Unwitnessed seals", "The relay's log says why", "max(aetheris_seals_unwitnessed_seconds)", "late", "s"),
    Panel("Jobs that can't be read", "The service's log", "sum by (job) (aetheris_jobs_unread)", "{{job}}"),
)
WAITS = (
    Panel("Jobs that live", "Created, and not sealed", "sum(aetheris_jobs_live)", "live"),
    Panel("Jobs at rest", "Packed: nothing of them is due", "sum by (job) (aetheris_jobs_at_rest)", "{{job}}"),
    Panel("What they take", "Packed, by service", "sum by (job) (aetheris_jobs_packed_bytes)", "{{job}}", "bytes"),
    Panel("Approvals open", "aetheris approvals", "sum(aetheris_approvals_open)", "open"),
    Panel("Parked now", "A human says what became of them: aetheris resolve", "sum(aetheris_calls_parked)", "parked"),
    Panel("Left to a human, 1 h", "aetheris jobs --status waiting", since("invocations_parked"), "parked"),
    Panel("Before a step starts: p95", "From the planner's request", quantile(0.95, "queue"), "queue", "s"),
    Panel("A step: p95", "From its start to its end, by tool", quantile(0.95, "step", "tool"), "{{tool}}", "s"),
    Panel(
        "A step: mean",
        "By tool",
        "sum by (tool) (rate(aetheris_step_duration_seconds_sum[15m])) / "
        "sum by (tool) (rate(aetheris_step_duration_seconds_count[15m]))",
        "{{tool}}",
        "s",
    ),
    Panel("A job: p95", "From its creation to its end", quantile(0.95, "job"), "job", "s"),
    Panel("A person's decision: p95", "From the request", quantile(0.95, "approval"), "approval", "s"),
    Panel("A doubt: p95", "Until it is settled", quantile(0.95, "doubt"), "doubt", "s"),
    Panel("Recovery: p95", "From a worker's end to the next start", quantile(0.95, "recovery"), "recovery", "s"),
    Panel("A seal: p95", "From the job's end", quantile(0.95, "seal"), "seal", "s"),
    Panel("Beyond a limit, per minute", "aetheris limits", a_minute("requests_limited", "limit"), "{{limit}}"),
    Panel("Notices untold, 1 h", "The notifier's log", since("notices_untold", "reason"), "{{reason}}"),
    Panel("What starts no job, 1 h", "The scheduler's log", since("starts_refused", "start"), "{{start}}"),
)
COSTS = (
    Panel("Tokens, 1 h", "By model and direction", since("tokens_used", "model, direction"), "{{model}} {{direction}}"),
    Panel("Tokens by tenant, 1 h", "Whose models cost most", since("tokens_used", "tenant"), "{{tenant}}"),
    Panel("Models, in USD, 1 h", "As prices say, by tenant", f"{since('answers_cost', 'tenant')} / 1e6", "{{tenant}}"),
    Panel("Steps by tenant, 1 h", "Whose work it is", since("steps_finished", "tenant"), "{{tenant}}"),
    Panel("Effects by tool, 1 h", "What they have done", since("effects_committed", "tool"), "{{tool}}"),
    Panel(
        "Processors used",
        "Seconds of processor time in a second, by service",
        "sum by (job) (rate(aetheris_process_cpu_seconds_total[5m]))",
        "{{job}}",
    ),
    Panel(
        "Processor time a step",
        "Of all services",
        "sum(rate(aetheris_process_cpu_seconds_total[15m])) / sum(rate(aetheris_steps_finished_total[15m]))",
        "a step",
        "s",
    ),
)
ROWS = (
    ("Is it well?", RED, _STAT, 3),
    ("", WELL, _GRAPH, 8),
    ("Who waits?", WAITS, _GRAPH, 8),
    ("What costs?", COSTS, _GRAPH, 8),
)
"""Title (none: the row before goes on), panels, their type, and how many units of the width each takes."""


def dashboard() -> dict[str, Any]:
    """As Grafana takes it."""
    return {
        "uid": "aetheris",
        "title": "Aetheris",
        "tags": ["aetheris"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": list(_panels()),
    }


def _panels() -> Iterator[dict[str, Any]]:
    number = top = 0
    for row, panels, kind, width in ROWS:
        if row:
            number += 1
            yield {
                "id": number,
                "type": "row",
                "title": row,
                "collapsed": False,
                "panels": [],
                "gridPos": _at(0, top, 1, _WIDTH),
            }
            top += 1
        height, across = (4 if kind == _STAT else 8), _WIDTH // width
        for place, panel in enumerate(panels):
            number += 1
            at = _at(place % across * width, top + place // across * height, height, width)
            yield _panel(number, panel, kind, at)
        top += -(-len(panels) // across) * height


def _at(x: int, y: int, height: int, width: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(number: int, panel: Panel, kind: str, at: dict[str, int]) -> dict[str, Any]:
    shown: dict[str, Any] = {"min": 0, "unit": panel.unit}
    options: dict[str, Any] = {}
    if kind == _STAT:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": 1}]
        shown = {"noValue": "0", "thresholds": {"mode": "absolute", "steps": steps}}
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"}
    return {
        "id": number,
        "type": kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "gridPos": at,
        "targets": [{"refId": "A", "expr": panel.expr, "legendFormat": panel.legend, "exemplar": True}],
        "options": options,
        "fieldConfig": {"defaults": shown, "overrides": []},
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
