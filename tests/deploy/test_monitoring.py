"""Alerts fire when they should and at no other time; a dashboard shows what is exported, and nothing else."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from aetheris.runtime.telemetry.metrics import Metric
from tests.deploy.manifests import kubectl_needed, name, of_kind

pytestmark = [
    kubectl_needed,
    pytest.mark.skipif(
        shutil.which("promtool") is None and "CI" not in os.environ, reason="promtool comes with `make system-deps`"
    ),
]

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
    times = [(at, [fired]) for at in history.fires] + [(at, []) for at in history.quiet]
    return {
        "interval": "1m",
        "input_series": [{"series": f"aetheris_{history.series}{{{labels}}}", "values": history.values}],
        "alert_rule_test": [
            {"eval_time": f"{at}m", "alertname": history.alert, "exp_alerts": alerts} for at, alerts in times
        ],
    }


def test_the_dashboard_shows_what_is_exported_and_nothing_else(tmp_path: Path) -> None:
    [held] = [one for one in of_kind("production", "ConfigMap") if name(one) == "aetheris-dashboard"]
    assert held["metadata"]["labels"]["grafana_dashboard"] == "1"
    panels = json.loads(held["data"]["dashboard.json"])["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    shown = {found.removesuffix("_total") for expr in asked for found in re.findall(r"aetheris_[a-z_]+", expr)}
    assert shown == {metric.in_prometheus() for metric in Metric}
    counters = {metric for expr in asked for metric in re.findall(r"(?:rate|increase)\((aetheris_[a-z_]+)\[", expr)}
    states = ("jobs_stuck", "jobs_unread", "consumer_lag", "archive_refused", "parquet_refused")
    ages = ("archive_late_seconds", "seals_unwitnessed_seconds", "parquet_late_seconds")
    gauges = {f"aetheris_{state}" for state in (*states, *ages)}
    assert counters == {f"{metric}_total" for metric in shown - gauges}, "a counter is asked for its rate"
    recorded = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(asked)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    promtool(tmp_path, "check", "rules", "panels.yaml")


def promtool(folder: Path, *argv: str) -> None:
    done = subprocess.run(["promtool", *argv], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
