"""After a person was erased, a value of theirs is sought in all that any service keeps, wrote or answers.

Also what came behind a seal and amended it, and what the services beside the core keep: notices, pages, searches,
Parquet, archived bundles, Redis, metrics and logs.
"""

import json
import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from aetheris.cli import token_files
from aetheris.cli.embedded.plan import Plan
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.runtime.process.installation import process_of
from tests.integration.test_hidden_values_system import NOTICES
from tests.testkit.canary import CONTROL, forms_of
from tests.testkit.consoles import RunningConsole, console_at
from tests.testkit.external_server import until
from tests.testkit.hidden_rig import HiddenRig, aetheris, call, fresh, leaks, running_hidden_rig, unpacked
from tests.testkit.services import ServiceProcess, running_service
from tests.testkit.tokens import entry_of, token_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PATIENCE_S = 120.0
HELLO = {"id": "hello", "tool": "greet", "args": {"text": "you"}}
OF_A_JOB = ("stream", "interim-seals", "inclusion", "openings")
"""Routes beside those that every search asks."""
OF_ALL = ("/jobs", "/approvals", "/effects", "/audit", "/tools", "/workers", "/policies", "/seals/entries")


@dataclass(frozen=True)
class ServicesBeside:
    """What runs beside the core, on the same log."""

    rig: HiddenRig
    console: RunningConsole
    services: tuple[ServiceProcess, ...]

    def metrics(self) -> Iterator[tuple[str, bytes]]:
        """What each service of the installation answers when it is scraped."""
        ports = {str(one.port) for one in self.services}
        ports |= {part.target for part in Plan.load(self.rig.system.data).parts if part.ask == "http"}
        for port in sorted(ports):
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=60)
            assert answer.status_code == 200, (port, answer.text)
            yield f"metrics {port}", answer.content

    def pages(self, *paths: str) -> Iterator[tuple[str, bytes]]:
        """As who may do anything sees them."""
        with httpx.Client(base_url=self.console.url, trust_env=False, follow_redirects=True, timeout=60) as browser:
            browser.post(self.console.link("dora"), headers={"Origin": self.console.url}).raise_for_status()
            for path in paths:
                yield f"console {path}", browser.get(path).raise_for_status().content

    def answers(self, *jobs: str) -> Iterator[tuple[str, bytes]]:
        """What routes of the API say of these jobs, or refuse."""
        for job in jobs:
            for name in OF_A_JOB:
                yield f"api {name}", self._said(f"/jobs/{job}/{name}")
            for one in self.rig.system.events(job):
                yield "api record", self._said(f"/jobs/{job}/events/{one['seq']}/record")
        for path in OF_ALL:
            yield f"api {path}", self._said(path)

    def _said(self, path: str) -> bytes:
        answer = self.rig.system.api.get(path, headers=self.rig.system.approver if path == "/audit" else None)
        assert answer.status_code == 200, (path, answer.text)
        return answer.content

    def found_by(self, **asked: str) -> list[str]:
        """The ids of the jobs that a search finds."""
        answer = self.rig.system.api.get("/search", params=asked)
        assert answer.status_code == 200, answer.text
        return [one["job_id"] for one in answer.json()["jobs"]]


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServicesBeside]:
    folder = tmp_path_factory.mktemp("everywhere")
    settings = {
        "AETHERIS_LEASE_TTL_S": "2",
        "AETHERIS_SESSION_TIMEOUT_S": "3",
        "AETHERIS_ARCHIVE_AFTER_DAYS": "0",
    }
    with running_hidden_rig(folder, settings) as rig, _others(rig) as beside:
        first = rig.system.completed(HELLO)
        rig.system.wait_sealed(first)
        rig.system.kill("ledger-0")  # an empty Redis may have lost leases; a later ledger knows
        rig.system.wait_ready(PATIENCE_S)
        yield beside


@contextmanager
def _others(rig: HiddenRig) -> Generator[ServicesBeside]:
    """Notifier, archiver and console."""
    (rig.folder / "notices.toml").write_text(NOTICES.format(url=rig.web.url))
    with token_files.changed(rig.system.data / "tokens.toml") as entries:
        entries.append(entry_of("notifier", "notices", roles=(Role.SUBMIT,), kind=PrincipalKind.SERVICE))
        entries.append(entry_of("dora"))
    (rig.folder / "notifier-token").write_text(token_of("notifier"))
    shared = {"AETHERIS_KAFKA": rig.system.state().kafka, **rig.collector.env}
    of_notifier = {
        "AETHERIS_DATA": str(rig.folder / "beside" / "notifier"),
        "AETHERIS_WORKER_ID": "notifier-0",
        "AETHERIS_NOTICES": str(rig.folder / "notices.toml"),
        "AETHERIS_GATEWAY_URL": rig.system.state().gateway,
        "AETHERIS_GATEWAY_TOKEN": str(rig.folder / "notifier-token"),
        "AETHERIS_CONSOLE_URL": "https://console.example.org",
    }
    of_archiver = {
        "AETHERIS_DATA": str(rig.system.data),
        "AETHERIS_WORKER_ID": "archiver-0",
        "AETHERIS_PARQUET": str(rig.folder / "beside" / "parquet"),
        "AETHERIS_PARQUET_EVERY_S": "0.1",
    }
    kept = rig.folder / "beside"
    kept.mkdir()
    console = console_at(kept, rig.system.state().gateway)
    with (
        running_service("notifier", kept, {**shared, **of_notifier}) as notifier,
        running_service("archiver", kept, {**shared, **of_archiver}) as archiver,
        console.up(),
    ):
        yield ServicesBeside(rig, console, (notifier, archiver))


def amended(rig: HiddenRig, subject: str, value: str) -> str:
    """A sealed job whose one call took effect with the value, said so behind the seal, and has amended it."""
    held = rig.folder / "seen.held"
    held.touch()
    job = rig.system.submit({**HELLO, "args": {"text": "canary"}}, {**call("a", "posts", subject, value)})
    until(lambda: rig.given(value), PATIENCE_S)
    started = [one for one in rig.system.data_of(job, "tool_invocation_started") if one["node_id"] == "a"]
    with rig.system.asleep(process_of(started[0]["worker_id"])):
        until(lambda: bool(rig.system.types(job, "invocation_parked")), PATIENCE_S)
        rig.system.wait_status(job, "waiting", PATIENCE_S)
        assert rig.system.resolve(job, "a", "not_executed").status_code == 200
        rig.system.wait_status(job, "failed", PATIENCE_S)
        rig.system.wait_sealed(job, PATIENCE_S)
        held.unlink()
    until(lambda: rig.system.report(job)["amended"] is not None, PATIENCE_S)
    return job


def test_after_erasure_a_value_is_nowhere_in_what_any_service_keeps_writes_or_answers(beside: ServicesBeside) -> None:
    rig = beside.rig
    value, late, subject = fresh(), fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.extend((value, late))
    asked = rig.system.submit(HELLO, call("a", "sends", subject, value))
    request = rig.system.wait_asked(asked)["request_id"]
    until(lambda: any(asked.encode() in one.body for one in rig.web.at("/ok/ntfy")), PATIENCE_S)
    answer = {"request_id": request, "action": "approve"}
    assert rig.system.api.post("/ecs/respond", json=answer, headers=rig.system.approver).status_code in (200, 202)
    rig.system.wait_ended([asked])
    rig.system.wait_sealed(asked)
    echoed = rig.system.completed(HELLO, call("a", "echo", subject, value, large=4000))
    rig.system.wait_sealed(echoed)
    behind = amended(rig, subject, late)
    jobs = (behind, echoed, asked)
    assert [rig.given(one) for one in (value, late)] == [True, True]
    until(lambda: all(_archived(rig, job) and _in_parquet(rig, job) for job in jobs), PATIENCE_S)
    assert set(beside.found_by(tool="sends")) == {asked}

    kept = {job: rig.folder / "beside" / f"{job}.zip" for job in jobs}
    for job, path in kept.items():
        aetheris(rig, "export", job, "--out", str(path))
    status, erased = rig.post("/subjects/erase", {"subject": subject})
    assert (status, erased["erased"]) == (200, True)

    assert_nowhere(beside, request, *jobs)
    rig.system.flush_redis()
    for name in ("gateway-0", "ledger-0", "verifier-0", "executor-0", "planner-0"):
        rig.system.kill(name)
    rig.system.mend()  # what is made anew of the log has it no more than what was there
    assert_nowhere(beside, request, *jobs)
    for job in jobs:
        assert rig.system.api.get(f"/jobs/{job}/openings").json()["openings"] == []
        status = 1 if job == behind else 0  # its late success is of a call that somebody had said was never made
        for target in (job, str(kept[job])):
            report = json.loads(aetheris(rig, "verify", target, "--json", status=status))
            assert {one["rule"] for one in report["violations"]} <= {"truth_differs", "contradicts_settlement"}, (
                target,
                report["violations"],
            )


def assert_nowhere(beside: ServicesBeside, request: str, *jobs: str) -> None:
    """In nothing of the installation; and each kind of place shows what is no secret, so a value would be seen."""
    rig = beside.rig
    found = leaks(rig, *jobs, beside=[rig.folder / "beside"], seen=("archive", "parquet"))
    paths = [f"/jobs/{job}{page}" for job in jobs for page in ("", "/effects", "/verify")]
    shown = [
        *beside.metrics(),
        *beside.pages("/jobs", "/jobs?tool=sends", f"/inbox/{request}", f"/inbox/{request}/context", *paths),
        *beside.answers(*jobs),
        *((f"notice {one.path}", one.body) for one in rig.web.at("/ok/ntfy")),
    ]
    sought = [form for value in rig.said for form in forms_of(value)]
    found |= {place for place, content in shown if any(form in content for form in sought)}
    assert found == set()
    controls = {place.split(" ")[0] for place, content in shown if CONTROL in content or jobs[2].encode() in content}
    assert {"console", "api", "notice"} <= controls, controls
    for value in rig.said:
        for words in (value, value.split("@")[0]):
            assert beside.found_by(q=words) == []
        assert beside.found_by(tool="sends", argument=f"email={value}") == []
        assert beside.found_by(external_id=f"sent {value}") == []


def _archived(rig: HiddenRig, job: str) -> bool:
    return any(rig.system.data.rglob(f"{job}.*.zip"))


def _in_parquet(rig: HiddenRig, job: str) -> bool:
    return any(job.encode() in content for place, content in unpacked(rig.folder / "beside") if "parquet" in place)
