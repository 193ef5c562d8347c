"""Alerts fire when they should and at no other time; a dashboard shows what is exported, and nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from aetheris.runtime.telemetry.metrics import Metric
from tests.deploy.manifests import DEPLOY, kubectl_needed, name, of_kind

pytestmark = [
    pytest.mark.nightly,
    kubectl_needed,
    pytest.mark.skipif(
        shutil.which("promtool") is None and "CI" not in os.environ, reason="promtool comes with `make system-deps`"
    ),
]

NAME = r"\baetheris_[a-z_]+"
PRINTED = "import dashboard; print(dashboard.text(), end='')"
BORN = "_x5 1+0x100"
"""No series for five minutes; then a counter that starts with its first count, and stays."""
AGAIN = "1+0x70 2+0x30"
RISES = "0+0x10 0+2x50"


@dataclass(frozen=True)
class AlertHistory:
    """An alert, the series that it looks at (a sample a minute), and when it fires, in minutes."""

    alert: str
    series: str
    labels: dict[str, str]
    values: str
    fires: tuple[int, ...]
    quiet: tuple[int, ...]
    kept: dict[str, str] | None = field(default=None)
    """The labels that the alert keeps; all where None."""
    beside: tuple[tuple[str, str], ...] = ()
    """Other series that it looks at, and their values."""


def slow(alert: str, of: str, bound: str, fires: int) -> tuple[AlertHistory, AlertHistory]:
    """One in ten takes longer than is promised, then one in fifty; bounds as /metrics, then as OTLP has them."""

    def history(share: float, bound: str, fires: tuple[int, ...], quiet: tuple[int, ...]) -> AlertHistory:
        count = f"aetheris_{of}_duration_seconds_count{{}}"
        name, labels = f"{of}_duration_seconds_bucket", {"le": bound}
        return AlertHistory(
            alert, name, labels, f"0+{100 * (1 - share):g}x90", fires, quiet, {}, ((count, "0+100x90"),)
        )

    return history(0.10, bound, (fires, 60), (5,)), history(0.02, bound.removesuffix(".0"), (), (fires, 60))


VERIFIER, EXECUTOR = {"job": "aetheris-verifier"}, {"job": "aetheris-tool_executor"}
GATEWAY = {"job": "aetheris-gateway"}
ARCHIVER = {"job": "aetheris-archiver"}
COURSES = [
    AlertHistory("AetherisViolation", "violations_total", VERIFIER | {"rule": "two"}, BORN, (6, 60), (4, 70)),
    AlertHistory("AetherisViolation", "violations_total", VERIFIER | {"rule": "two"}, AGAIN, (72, 95), (65,)),
    AlertHistory(
        "AetherisContradicted", "invocations_contradicted_total", {"job": "aetheris-ledger"}, BORN, (6,), (4, 70)
    ),
    AlertHistory("AetherisParked", "invocations_parked_total", VERIFIER, BORN, (6, 15), (4, 30)),
    AlertHistory("AetherisParked", "invocations_parked_total", VERIFIER, AGAIN, (72,), (65, 95)),
    AlertHistory("AetherisInDoubt", "invocations_in_doubt_total", VERIFIER, RISES, (25,), (10,)),
    AlertHistory("AetherisDrift", "confirmations_failed_total", VERIFIER, BORN, (6,), (4, 70)),
    AlertHistory("AetherisUntraceable", "effects_untraceable_total", EXECUTOR | {"tool": "pay"}, BORN, (6,), (4, 70)),
    AlertHistory("AetherisToolRefused", "tools_refused_total", EXECUTOR | {"tool": "pay"}, BORN, (6, 15), (4, 30)),
    AlertHistory(
        "AetherisToolQuarantined",
        "tools_quarantined_total",
        {"job": "aetheris-ledger", "tool": "pay"},
        BORN,
        (6, 15),
        (4, 30),
    ),
    AlertHistory("AetherisLoopBlocked", "loop_blocked_total", EXECUTOR | {"by": "pay"}, BORN, (6, 15), (4, 30)),
    AlertHistory("AetherisLeaseConflicts", "lease_conflicts_total", EXECUTOR, RISES, (25,), (10,)),
    AlertHistory(
        "AetherisLoginsRefused",
        "logins_refused_total",
        GATEWAY | {"reason": "unknown"},
        "0+0x10 0+20x50",
        (25,),
        (10,),
        GATEWAY,
    ),
    AlertHistory(
        "AetherisLimited",
        "requests_limited_total",
        GATEWAY | {"limit": "tenant.jobs_per_s"},
        "0+0x10 0+20x50",
        (25,),
        (10,),
        {"limit": "tenant.jobs_per_s"},
    ),
    AlertHistory("AetherisGlassBroken", "glass_broken_total", {"job": "aetheris-ledger"}, BORN, (6, 15), (4, 30)),
    AlertHistory("AetherisGlassBroken", "glass_broken_total", {"job": "aetheris-ledger"}, AGAIN, (72,), (65, 95)),
    AlertHistory(
        "AetherisNoticesUntold",
        "notices_untold_total",
        {"job": "aetheris-notifier", "reason": "key_taken"},
        BORN,
        (6, 15),
        (4, 30),
    ),
    AlertHistory(
        "AetherisStartsRefused",
        "starts_refused_total",
        {"job": "aetheris-scheduler", "start": "orders"},
        BORN,
        (6, 15),
        (4, 30),
    ),
    AlertHistory("AetherisAccessesLost", "accesses_lost_total", GATEWAY, BORN, (6,), (4, 70)),
    AlertHistory("AetherisDeadLetters", "dead_letters_total", VERIFIER, BORN, (6,), (4, 70)),
    AlertHistory("AetherisRecordsRefused", "records_refused_total", EXECUTOR | {"topic": "t"}, BORN, (6, 15), (4, 30)),
    AlertHistory(
        "AetherisUnsigned",
        "messages_unsigned_total",
        {"job": "aetheris-ledger", "topic": "jobs.commands"},
        BORN,
        (6, 15),
        (4, 30),
    ),
    AlertHistory("AetherisToolLinesRefused", "tools_lines_refused_total", GATEWAY, BORN, (6, 15), (4, 30)),
    AlertHistory("AetherisGrantsDropped", "grants_dropped_total", EXECUTOR, BORN, (6, 15), (4, 30)),
    AlertHistory("AetherisUnjudged", "jobs_unjudged_total", {"job": "aetheris-ledger"}, BORN, (6,), (4, 70)),
    AlertHistory("AetherisArchiveLate", "archive_late_seconds", VERIFIER, "0+3600x60", (45,), (20, 30), {}),
    AlertHistory("AetherisArchiveRefused", "archive_refused", VERIFIER, "0+0x5 1+0x20 0+0x10", (12,), (8, 30), {}),
    AlertHistory("AetherisParquetLate", "parquet_late_seconds", ARCHIVER, "0+600x60", (30,), (5, 20), {}),
    AlertHistory("AetherisParquetRefused", "parquet_refused", ARCHIVER, "0+0x5 1+0x20 0+0x10", (12,), (8, 30), {}),
    AlertHistory("AetherisUnread", "jobs_unread", VERIFIER, "0+0x5 1+0x20 0+0x10", (12,), (8, 30)),
    AlertHistory("AetherisUnwitnessed", "seals_unwitnessed_seconds", VERIFIER, "0+60x60", (25,), (10, 19), {}),
    AlertHistory("AetherisUnwitnessed", "seals_unwitnessed_seconds", VERIFIER, "0x5 60+60x10 0x40", (), (18, 40), {}),
    AlertHistory("AetherisStuck", "jobs_stuck", {"job": "aetheris-planner"}, "0+0x5 1+0x20 0+0x10", (12,), (8, 30), {}),
    AlertHistory("AetherisLogCut", "log_cut", GATEWAY, "0+0x5 2+0x20 0+0x10", (8, 20), (5, 30), {}),
    *slow("AetherisStartsSlow", "queue", "30.0", fires=30),
    *slow("AetherisDoubtSlow", "doubt", "300.0", fires=30),
    *slow("AetherisRecoverySlow", "recovery", "60.0", fires=30),
    AlertHistory(
        "AetherisJobsFail",
        "jobs_ended_total",
        VERIFIER | {"end": "failed"},
        "0+0x10 0+1x80",
        (60,),
        (5, 15),
        {},
        (('aetheris_jobs_ended_total{job="aetheris-verifier",end="completed"}', "0+5x90"),),
    ),
    AlertHistory(
        "AetherisJobsFail",
        "jobs_ended_total",
        VERIFIER | {"end": "failed"},
        "0+1x90",
        (),
        (30, 60, 80),
        {},
        (('aetheris_jobs_ended_total{job="aetheris-verifier",end="completed"}', "0+50x90"),),
    ),
    AlertHistory("AetherisParkedLong", "calls_parked", VERIFIER, "0+0x5 1+0x100", (70, 100), (30, 60), {}),
    AlertHistory("AetherisParkedLong", "calls_parked", VERIFIER, "1+0x40 0+0x5 1+0x40", (), (30, 70, 84), {}),
    AlertHistory("AetherisSealsLate", "seals_late_seconds", VERIFIER, "0+60x60", (25,), (10, 19), {}),
    AlertHistory("AetherisDown", "", EXECUTOR, "1+0x10 0+0x40", (20,), (5, 14)),
    AlertHistory("AetherisLag", "consumer_lag", EXECUTOR, "0+2000x60", (20,), (5, 10)),
    AlertHistory("AetherisLag", "consumer_lag", EXECUTOR, "90000-1000x60", (), (15, 30)),
]


def groups() -> list[dict[str, Any]]:
    [rules] = of_kind("production", "PrometheusRule")
    return rules["spec"]["groups"]


def test_alerts_fire_when_they_should_and_at_no_other_time(tmp_path: Path) -> None:
    rules = {rule["alert"]: rule for group in groups() for rule in group["rules"]}
    assert {history.alert for history in COURSES if history.fires} == rules.keys(), "every alert is tried"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    tests = [tried(history, rules[history.alert]) for history in COURSES]
    whole = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(whole))
    promtool(tmp_path, "test", "rules", "test.yaml")


def tried(history: AlertHistory, rule: dict[str, Any]) -> dict[str, Any]:
    """The course as promtool has it."""
    kept = history.labels if history.kept is None else history.kept
    annotations = {
        key: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: kept[label[1]], text)
        for key, text in rule["annotations"].items()
    }
    fired = {"exp_labels": kept | rule["labels"], "exp_annotations": annotations}
    labels = ",".join(f'{key}="{value}"' for key, value in history.labels.items())
    metric = f"aetheris_{history.series}" if history.series else "up"
    times = [(at, [fired]) for at in history.fires] + [(at, []) for at in history.quiet]
    return {
        "interval": "1m",
        "input_series": [
            {"series": f"{metric}{{{labels}}}", "values": history.values},
            *({"series": series, "values": values} for series, values in history.beside),
        ],
        "alert_rule_test": [
            {"eval_time": f"{at}m", "alertname": history.alert, "exp_alerts": alerts} for at, alerts in times
        ],
    }


def test_the_dashboard_shows_what_is_exported_and_nothing_else(tmp_path: Path) -> None:
    [held] = [one for one in of_kind("production", "ConfigMap") if name(one) == "aetheris-dashboard"]
    assert held["metadata"]["labels"]["grafana_dashboard"] == "1"
    panels = json.loads(held["data"]["dashboard.json"])["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == ["Is it well?", "Who waits?", "What costs?"]
    asked = [target["expr"] for panel in panels if panel["type"] != "row" for target in panel["targets"]]
    shown = {re.sub(r"_(total|bucket|sum|count)$", "", one) for expr in asked for one in re.findall(NAME, expr)}
    assert shown == {metric.in_prometheus() for metric in Metric}
    rated = {metric for expr in asked for metric in re.findall(rf"(?:rate|increase)\(({NAME})\[", expr)}
    plain = {metric for expr in asked for metric in re.findall(rf"({NAME})(?![\[\w])", expr)}
    assert all(re.search(r"_(total|bucket|sum|count)$", metric) for metric in rated)
    assert not any(re.search(r"_(total|bucket|sum|count)$", metric) for metric in plain), (
        "a counter is asked for its rate"
    )
    recorded = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(asked)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    promtool(tmp_path, "check", "rules", "panels.yaml")


def test_the_dashboard_is_as_it_is_made() -> None:
    made = subprocess.run([sys.executable, "-c", PRINTED], cwd=DEPLOY, capture_output=True, text=True, check=True)
    assert made.stdout == (DEPLOY / "components" / "monitoring" / "dashboard.json").read_text()


def promtool(folder: Path, *argv: str) -> None:
    done = subprocess.run(["promtool", *argv], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
