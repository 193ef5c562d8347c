"""The dashboard's queries, asked of a real Prometheus that scrapes every service of a real system."""

import json
import os
import re
import shutil
from collections.abc import Generator
from dataclasses import dataclass

import pytest

from aetheris.cli.embedded import lifecycle
from aetheris.runtime.telemetry.metrics import Metric
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ASK_IRREVERSIBLE, ruled_by
from tests.testkit.prometheus import Prometheus, running_prometheus
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.system import REPOSITORY

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("prometheus") is None and "CI" not in os.environ, reason="Prometheus comes with `make system-deps`"
    ),
]
PATIENCE_S = 60
DASHBOARD = REPOSITORY / "deploy" / "components" / "monitoring" / "dashboard.json"
SERVICES = ("executor", "gateway", "ledger", "planner", "prober", "verifier")

SELDOM = """
    accesses_lost answers_cost archive_late archive_refused confirmations_failed dead_letters effects_untraceable
    glass_broken grants_dropped invocations_contradicted jobs_unjudged jobs_unread lease_conflicts logins_refused
    loop_blocked messages_unsigned notices_untold parquet_late parquet_refused records_refused requests_limited
    seals_unwitnessed starts_refused tokens_used tools_lines_refused tools_quarantined tools_refused violations
"""
"""What nothing here brings about."""


@dataclass(frozen=True)
class WatchedRig(Rig):
    """Every service of `system` is scraped by `prometheus`."""

    prometheus: Prometheus

    def happened(self, query: str, value: float) -> None:
        """Wait until Prometheus answers so."""
        until(lambda: self.prometheus.value(query) == value, PATIENCE_S)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[WatchedRig]:
    folder = tmp_path_factory.mktemp("watched")
    with running_rig(folder, ruled_by(folder, ASK_IRREVERSIBLE)) as rig:
        parts = lifecycle.status(rig.system.data).parts
        ports = {name: part.health_port for name, part in parts.items() if name.split("-")[0] in SERVICES}
        assert {name.split("-")[0] for name in ports} == set(SERVICES)
        scraped = {f"aetheris-{name.split('-')[0]}": f"http://127.0.0.1:{port}" for name, port in ports.items()}
        with running_prometheus(folder / "prometheus", scraped) as prometheus:
            yield WatchedRig(rig.system, rig.external, prometheus)


def queries() -> dict[str, str]:
    """Title → query of each panel."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {panel["title"]: panel["targets"][0]["expr"] for panel in panels if panel["type"] != "row"}


def shows(query: str) -> set[str]:
    """The metrics that it asks for, as the catalogue has them in Prometheus."""
    return {re.sub(r"_(total|bucket|sum|count)$", "", one) for one in re.findall(r"\baetheris_[a-z_]+", query)}


def what_is_seldom() -> set[str]:
    return {
        metric.in_prometheus()
        for metric in Metric
        if metric.metric.replace(".", "_").removeprefix("aetheris_") in SELDOM.split()
    }


def test_what_happened_is_what_prometheus_knows_and_every_panel_has_an_answer(rig: WatchedRig) -> None:
    for number in range(3):
        rig.system.completed(
            poke("a", fresh(f"well-{number}")), poke("b", fresh(f"too-{number}"), "a", tool="poke_pure")
        )
    failed = rig.system.submit({"id": "a", "tool": "poke_refused", "args": {}})
    lost = rig.system.submit(poke("a", fresh("lost"), tool="poke_lost") | {"args": {"tag": fresh("lost")}})
    rig.system.wait_status(lost, "waiting", PATIENCE_S)
    rig.happened("sum(aetheris_calls_parked)", 1)
    rig.system.resolve(lost, "a", "happened", result={"poked": "by hand"})
    rig.system.wait_status(lost, "completed", PATIENCE_S)
    rig.happened("sum(aetheris_calls_parked)", 0)

    tag = fresh("killed")
    held = rig.external.hold(tag)
    crossed = rig.system.submit(poke("a", tag, hold=tag))
    rig.external.wait_for(1, tag, PATIENCE_S)
    rig.happened("sum(aetheris_leases_held)", 1)
    rig.system.kill("executor-0")
    held.unlink()
    rig.system.wait_status(crossed, "completed", PATIENCE_S)
    rig.system.wait_status(failed, "failed", PATIENCE_S)

    asked = rig.system.submit(poke("a", fresh("asked"), tool="poke_irreversible"))
    request = rig.system.wait_asked(asked, PATIENCE_S)
    rig.happened("sum(aetheris_approvals_open)", 1)
    body = {"request_id": request["request_id"], "action": "approve"}
    assert rig.system.api.post("/ecs/respond", json=body, headers=rig.system.approver).status_code == 200
    for job in (failed, lost, crossed, asked):
        rig.system.wait_sealed(job, PATIENCE_S)

    rig.happened("sum(aetheris_seals_made_total)", 7)
    assert rig.prometheus.value('aetheris_jobs_ended_total{end="completed"}') == 6
    assert rig.prometheus.value('aetheris_jobs_ended_total{end="failed"}') == 1
    assert rig.prometheus.value("aetheris_jobs_created_total") == 7
    assert rig.prometheus.value('aetheris_calls_ended_total{tool="poke_pure",outcome="success"}') == 3
    assert rig.prometheus.value('aetheris_duplicates_prevented_total{how=~"probe|catch_up"}') == 1, "the killed one"
    assert rig.prometheus.value('aetheris_duplicates_prevented_total{how="human"}') == 1
    assert rig.prometheus.value("aetheris_invocations_in_doubt_total") >= 2
    assert rig.prometheus.value("aetheris_doubt_duration_seconds_count") >= 2
    assert rig.prometheus.value("aetheris_approval_duration_seconds_count") == 1
    assert rig.prometheus.value("aetheris_queue_duration_seconds_count") == 6, "not the one that was asked about"
    assert rig.prometheus.value("aetheris_approvals_open") == rig.prometheus.value("aetheris_jobs_live") == 0

    seldom, silent = what_is_seldom(), set[str]()
    for title, query in queries().items():
        named = shows(query)
        if not rig.prometheus.ask(query) and not named <= seldom:
            silent.add(title)
        for metric in named - seldom:
            assert rig.prometheus.ask(f'count({{__name__=~"{metric}(_total|_bucket|_count|_sum)?"}})'), metric
    assert silent == set()
    assert {one["metric"]["job"] for one in rig.prometheus.ask("aetheris_process_cpu_seconds_total")} == {
        f"aetheris-{service}" for service in SERVICES
    }


def test_what_a_service_shows_holds_no_argument_and_no_key(rig: WatchedRig) -> None:
    tag = fresh("secret-argument")
    job = rig.system.completed(poke("a", tag))
    names = rig.prometheus.ask('{__name__=~"aetheris_.+"}')
    assert names
    told = json.dumps(names)
    assert tag not in told
    assert job not in told
