"""The ten attacks of `make security`, from outside, on one running system (docs/threat-model.md).

What they must leave undone is counted: records in Kafka, effects outside, requests that arrived.
"""

import base64
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from joserfc.jwk import ECKey
from playwright.sync_api import BrowserContext, sync_playwright

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, Resolve, Respond
from aetheris.runtime.log.partitioning import partition_of
from tests.security.attacks import TOLD, Written, operations, written_again
from tests.security.conftest import CHECKS, MISSING, Tried
from tests.testkit.approvers import TENANTS, headers_of, respond
from tests.testkit.attempts import fresh
from tests.testkit.authority import Authority
from tests.testkit.canary import found_in, kept_and_told
from tests.testkit.external_server import until
from tests.testkit.identity import AUDIENCE
from tests.testkit.local_site import running_site
from tests.testkit.principals import said_by
from tests.testkit.secured import PATIENCE_S, SecuredRig
from tests.testkit.wiretap import running_wiretap

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TOKEN = headers_of("ann")["Authorization"].removeprefix("Bearer ")
NO_TOKENS = {
    "none": {},
    "an empty one": {"Authorization": "Bearer"},
    "another": {"Authorization": f"Bearer {uuid4()}"},
    "half of one": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "one and more": {"Authorization": f"Bearer {TOKEN}x"},
    "in capitals": {"Authorization": f"Bearer {TOKEN.upper()}"},
    "as a password": {"Authorization": f"Basic {base64.b64encode(f'ann:{TOKEN}'.encode()).decode()}"},
    "as a cookie": {"Cookie": f"token={TOKEN}; Authorization=Bearer {TOKEN}"},
    "the verifier's": {"Authorization": f"Aetheris {TOKEN}"},
}
REFUSED = (401, 429)
"""Nobody who tries often is told even that his token is wrong."""
INTERNAL = ("/jobs/{}/verify", "/jobs/{}/stream", "/jobs/{}/evidence", "/jobs/{}/inclusion", "/seals/checkpoint")
HOSTILE = (
    "</pre></details></title></style><script>window.pwned = 1</script>"
    "<img src=x onerror='window.pwned = 2'><svg onload='window.pwned = 3'>"
    '"\' onmouseover="window.pwned = 4" javascript:alert(5)'
)


_FORM = """new Promise(done => {
    const frame = document.createElement("iframe"), form = document.createElement("form");
    const field = document.createElement("input");
    [frame.name, form.target, form.method, form.enctype, form.action] = ["f", "f", "POST", "text/plain", "URL"];
    [field.name, field.value] = ['NAME', 'VALUE'];
    form.append(field);
    document.body.append(frame, form);
    frame.onload = () => [frame, form].forEach(one => one.remove()) || done("sent");
    form.submit();
})"""
"""Of a page: posts JSON as a form can, `NAME=VALUE`."""


def asked(rig: SecuredRig, tag: str, tool: str = "poke_irreversible") -> tuple[str, str]:
    """A job of Ann's whose only call waits for a yes: its id, and the request's."""
    job = rig.system.submit({"id": "a", "tool": tool, "args": {"tag": tag}})
    return job, rig.asks(job)


def rejected(rig: SecuredRig, job: str, request: str) -> None:
    assert respond(rig.system, "bob", request, "reject").status_code == 200
    rig.system.wait_sealed(job)


@pytest.mark.security("401")
def test_without_a_token_that_is_known_nobody_is_answered_and_nothing_is_done(rig: SecuredRig, tried: Tried) -> None:
    tag = fresh("unknown")
    job, request = asked(rig, tag)
    every = list(operations(job, rig.step(job)["execution_id"], request))
    tried(
        f"{len(every)} operations with {len(NO_TOKENS)} wrong tokens: {', '.join(NO_TOKENS)}; the verifier's own port"
    )
    before = rig.system.ends(*TOLD)
    answered: list[str] = []
    for one in every:
        for name, headers in NO_TOKENS.items():
            answer = rig.stranger.request(one.method, f"{rig.url}{one.path}", headers=headers, json=one.body)
            if answer.status_code not in REFUSED or tag in answer.text:
                answered.append(f"{one} with {name}: {answer.status_code}")
    for path in (template.format(job) for template in INTERNAL):
        for name, headers in (NO_TOKENS | {"Ann's": headers_of("ann")}).items():
            answer = rig.stranger.get(f"{rig.verifier}{path}", headers=headers)
            if answer.status_code != 401:
                answered.append(f"verifier {path} with {name}: {answer.status_code}")
    assert answered == []
    assert rig.system.ends(*TOLD) == before
    assert rig.ask("ann", "GET", f"/api/jobs/{job}").status_code == 200, "who has one is answered"
    rejected(rig, job, request)


@pytest.mark.security("audience")
def test_a_token_that_a_provider_made_for_somebody_else_is_none(rig: SecuredRig, tried: Tried) -> None:
    now = int(time.time())
    made: dict[str, dict[str, Any]] = {
        "another audience": {"aud": "billing"},
        "several others": {"aud": ["billing", "mail"]},
        "one that begins like ours": {"aud": f"{AUDIENCE}-test"},
        "none": {"aud": None},
        "another issuer": {"iss": "https://id.example.com"},
        "no end": {"exp": None},
        "ended": {"exp": now - 120},
        "not yet": {"nbf": now + 600},
        "no tenant": {"org": None},
    }
    tried(f"tokens that a believed provider signed: {', '.join(made)}; and one that another key signed")
    wrong = {name: rig.provider.token(**claims) for name, claims in made.items()}
    wrong["another key"] = rig.provider.token(ECKey.generate_key("P-256", {"kid": "one"}))
    answered = {name: _read_by(rig, token) for name, token in wrong.items()}
    assert {name: status for name, status in answered.items() if status not in REFUSED} == {}
    assert _read_by(rig, rig.provider.token()) == 200, "one that is made for us is heard"
    assert _read_by(rig, rig.provider.token(aud=["billing", AUDIENCE])) == 200


def _read_by(rig: SecuredRig, token: str) -> int:
    return rig.stranger.get(f"{rig.url}/api/jobs", headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.mark.security("tenant")
def test_another_tenants_token_finds_and_changes_nothing(rig: SecuredRig, tried: Tried) -> None:
    tag = fresh("of-acme")
    job, request = asked(rig, tag)
    execution = rig.step(job)["execution_id"]
    ours = list(operations(job, execution, request))
    nobodys = list(operations(str(uuid4()), str(uuid4()), f"{uuid4()}:{uuid4()}"))
    tried(f"{len(ours)} operations on a job of another tenant's, its step and its request: as on one that is not there")
    before = rig.system.ends(Topic.JOBS_EVENTS)
    told: list[str] = []
    for mine, none in zip(ours, nobodys, strict=True):
        if mine == none and mine.method == "POST":
            continue  # what Eve may do as her own
        if mine.path == "/api/audit":
            continue  # it shows her own refusals, which name what she asked for: below
        answer, control = (rig.ask("eve", one.method, one.path, json=one.body) for one in (mine, none))
        if answer.status_code != control.status_code or {tag, job, request} & {*re.findall(r"[\w:-]+", answer.text)}:
            told.append(f"{mine}: {answer.status_code} {answer.text[:200]}, else {control.status_code}")
        elif mine != none and answer.status_code < 400 and answer.content != control.content:
            told.append(f"{mine}: {answer.text[:200]}, else {control.text[:200]}")
    assert told == []
    shown = [one for one in rig.ask("eve", "GET", "/api/audit").json()["records"] if not one.get("hidden")]
    assert {one.get("tenant") for one in shown} <= {TENANTS["eve"]}
    assert rig.system.ends(Topic.JOBS_EVENTS) == before
    seen = [rig.ask("bob", one.method, one.path).status_code for one in ours if one.method == "GET"]
    assert seen.count(200) > len(seen) / 2, "a colleague finds it"
    assert rig.step(job)["state"] == "waiting"
    rejected(rig, job, request)
    assert rig.external.count(tag) == 0


@pytest.mark.security("args")
def test_a_yes_lets_no_call_with_other_arguments_run(rig: SecuredRig, tried: Tried) -> None:
    tried("a yes with arguments of its own; one for what was edited since; the plan changed between yes and start")
    shown, edited = fresh("shown"), fresh("edited")
    job, request = asked(rig, shown)
    assert respond(rig.system, "bob", request, "approve", data={"tag": edited}).status_code == 400
    changed = respond(rig.system, "carol", request, "edit", data={"tag": edited})
    assert changed.status_code == 200, changed.text
    assert respond(rig.system, "bob", request, "approve").status_code == 409
    rejected(rig, job, changed.json()["next_request_id"])
    assert (rig.external.count(shown), rig.external.count(edited)) == (0, 0)

    reviewed, other = fresh("reviewed"), fresh("other")
    job, request = asked(rig, reviewed)
    with rig.system.asleep("executor-0"):
        assert respond(rig.system, "bob", request, "approve").status_code == 200
        rig.system.append_as(Party.PLANNER, _revised(rig, job, other))
    rig.system.wait_ended([job])
    assert rig.external.count(other) == 0


def _revised(rig: SecuredRig, job: str, tag: str) -> ev.PlanGenerated:
    (plan,) = rig.system.data_of(job, "plan_generated")
    (node,) = plan["task_graph"]["nodes"]
    diff = {"nodes": [node | {"args": node["args"] | {"tag": tag}}]}
    return ev.PlanGenerated(
        job_id=job, revision=1, plan_hash=digest(diff), diff=diff, planner="static", planner_version="1"
    )


@pytest.mark.security("replayed approval")
def test_a_yes_that_is_said_again_starts_nothing(rig: SecuredRig, tried: Tried) -> None:
    tried("a yes sent five times, its command and its record written again byte for byte, also for an equal later call")
    tag = fresh("once")
    first, request = asked(rig, tag)
    for _ in range(5):
        assert respond(rig.system, "bob", request, "approve").status_code == 200
    rig.system.wait_ended([first])
    assert rig.external.count(tag) == 1
    second, another = asked(rig, tag)
    assert another != request
    for under in (first, second):
        assert written_again(rig.system, Written(Topic.JOBS_COMMANDS, first, "respond"), under) >= 1
        assert written_again(rig.system, Written(Topic.JOBS_EVENTS, first, "approval_decided"), under) >= 1
    assert respond(rig.system, "bob", request, "approve").status_code == 200, "the same answer as before"
    assert rig.step(second)["state"] == "waiting"
    rejected(rig, second, another)
    assert rig.external.count(tag) == 1


@pytest.mark.security("SSRF")
def test_a_tool_that_asks_what_it_is_told_to_reaches_nothing_inside(rig: SecuredRig, tried: Tried) -> None:
    with running_site() as site:
        hosts = ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]")
        inside = [f"http://{host}:{site.port}/inside" for host in hosts]
        inside += [f"http://ann:pw@127.0.0.1:{site.port}/inside", "file:///etc/passwd", "gopher://127.0.0.1/"]
        tried(f"{len(inside)} URLs, read and written to: this machine by {len(hosts)} names, other schemes, a password")
        once = {"retry": {"max_attempts": 1}}
        jobs = {
            rig.system.submit({"id": "a", "tool": tool, "args": {"url": url}} | once): f"{tool} {url}"
            for url in inside
            for tool in ("fetch", "send")
        }
        rig.system.wait_ended(jobs, 2 * PATIENCE_S)
        said = {jobs[job]: str(rig.system.data_of(job, "tool_invocation_finished")) for job in jobs}
        assert {asked for asked, error in said.items() if "refused" not in error} == set()
        assert site.asked == []
        rig.system.completed({"id": "a", "tool": "fetch_anything", "args": {"url": inside[0]}})
        assert site.asked == ["/inside"], "what is not guarded reaches it"


@pytest.mark.security("canary")
def test_a_secret_is_nowhere_but_in_the_tools_hands(rig: SecuredRig, tried: Tried) -> None:
    tried("a tool returns, prints, logs, raises its secret: files, Kafka, Valkey, answers, pages, bundles, telemetry")
    token = {"$secret": "canary@1"}
    leaks = rig.system.submit(
        {"id": "a", "tool": "leak", "args": {"token": token}},
        {"id": "b", "tool": "leak", "args": {"token": token, "large": 4000}, "depends_on": ["a"]},
    )
    raises = {"id": "r", "tool": "raises", "retry": {"max_attempts": 1}}
    raising = [rig.system.submit(raises | {"args": {"token": token, "how": how}}) for how in ("failed", "lost")]
    rig.system.wait_ended([leaks, *raising])
    assert rig.canary.given(), "the tools were given it"
    for job in (leaks, *raising):
        rig.system.wait_sealed(job)
    until(lambda: any(b"execute_tool leak" in body for body in rig.collector.bodies()), PATIENCE_S)
    places = kept_and_told(rig.system, rig.collector, rig.canary.folder, leaks, *raising)
    leaked, controls = found_in(rig.canary, places)
    assert leaked == set()
    assert {"kafka", "valkey", "blobs", "logs", "page", "bundle", "job"} <= controls, controls


@pytest.mark.security("TLS")
def test_who_listens_or_stands_between_learns_nothing(rig: SecuredRig, tried: Tried, tmp_path: Path) -> None:
    tried("plain http, TLS 1.1, a CA that is not ours, a name that is not in the certificate; a wire that is tapped")
    tag, other = fresh("confidential"), Authority(tmp_path / "other")
    for url in (rig.url, rig.verifier):
        port = httpx.URL(url).port
        assert port is not None
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/livez", trust_env=False, timeout=PATIENCE_S)
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            httpx.get(f"{url}/livez", trust_env=False, verify=ssl.create_default_context(cafile=other.ca))
        with pytest.raises(httpx.ConnectError, match="Hostname mismatch"):
            httpx.get(f"https://localhost:{port}/livez", trust_env=False, verify=rig.trusting)
        with pytest.raises(httpx.ConnectError, match=r"EOF|protocol version"):
            httpx.get(f"{url}/livez", trust_env=False, verify=_outdated(rig.trusting))
        with running_wiretap(port) as tap:
            heard = httpx.post(
                f"https://127.0.0.1:{tap.port}/api/jobs",
                headers=headers_of("ann"),
                json={"plan": {"nodes": [{"id": "a", "tool": "poke_pure", "args": {"tag": tag}}]}},
                verify=rig.trusting,
                trust_env=False,
            )
            assert heard.status_code == (202 if url == rig.url else 404)
            assert len(tap.heard) > 1000
            assert TOKEN.encode() not in tap.heard
            assert tag.encode() not in tap.heard


def _outdated(context: ssl.SSLContext) -> ssl.SSLContext:
    """A client's that knows TLS 1.1 at best."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


@pytest.mark.security("forged record")
def test_a_yes_that_the_executor_writes_starts_nothing(rig: SecuredRig, tried: Tried) -> None:
    tried("with the executor's rights: a yes that nobody gave, and a rule's permission")
    tag = fresh("forged-yes")
    job, request = asked(rig, tag)
    (shown,) = rig.system.data_of(job, "approval_requested")
    kept = ("job_id", "node_id", "idempotency_key", "args_hash", "tool_version", "rule", "token")
    said = {name: shown[name] for name in kept if name in shown} | {"decision": "approve", "approver": "bob"}
    rig.system.append(ev.ApprovalDecided.model_validate(said), "/tool_executor/rogue")
    rule = {name: shown[name] for name in kept if name in shown} | {"rule": "r", "policy_hash": "p"}
    rig.system.append(ev.PolicyAllowed.model_validate(rule), "/tool_executor/rogue")
    assert rig.step(job)["state"] == "waiting"
    rejected(rig, job, request)
    assert rig.external.count(tag) == 0
    forged = {event["id"] for event in rig.system.events(job) if event["source"] == "/tool_executor/rogue"}
    assert forged == {event["id"] for event in rig.system.events(job) if event.get("void")}
    report = rig.system.verified(job)
    assert {one["event_id"] for one in report["unproven"]} == forged
    assert len(forged) == 2


@pytest.mark.security("forged record")
def test_a_report_that_nothing_happened_reopens_no_call_that_is_parked(rig: SecuredRig, tried: Tried) -> None:
    tried("with the executor's rights: a report that a parked, approved call did not happen")
    tag = fresh("forged-report")
    job, request = asked(rig, tag, "lost_irreversible")
    assert respond(rig.system, "bob", request, "approve").status_code == 200
    until(lambda: rig.system.types(job, "invocation_parked") != [], PATIENCE_S)
    (started,) = rig.system.data_of(job, "tool_invocation_started")
    said = {name: started[name] for name in ("job_id", "node_id", "idempotency_key", "invocation_id")}
    (doubted,) = rig.system.data_of(job, "invocation_in_doubt")
    assert doubted["word"], "what the try said of itself is there for everybody to read"
    forged = said | {"outcome": "retryable_failure", "error": "nothing was sent"}
    for via, word in product(("executor", "late"), (None, "0" * 64, doubted["word"], started["invocation_id"])):
        report = ev.ToolInvocationFinished.model_validate(forged | {"via": via, "word": word})
        rig.system.append(report, "/tool_executor/rogue")
    returned = said | {"error_class": "Forged", "returned": True, "word": "0" * 64}
    rig.system.append(ev.InvocationInDoubt.model_validate(returned), "/tool_executor/rogue")
    assert rig.step(job)["state"] == "waiting"
    resolution = {"verdict": "happened", "evidence": "looked"}
    path = f"/api/jobs/{job}/contracts/{rig.step(job)['execution_id']}/resolve"
    assert rig.ask("bob", "POST", path, json=resolution).status_code == 200
    rig.system.wait_ended([job])
    assert rig.external.count(tag) == 1
    by_rogue = {event["id"] for event in rig.system.events(job) if event["source"] == "/tool_executor/rogue"}
    assert by_rogue == {event["id"] for event in rig.system.events(job) if event.get("void")}
    notes = {one["event_id"] for one in rig.system.verified(job)["notes"] if one["rule"] == "unproven_report"}
    assert notes == by_rogue
    assert len(by_rogue) == 9


@pytest.mark.security("forged record")
def test_a_cancel_that_the_executor_writes_settles_no_call_that_is_parked(rig: SecuredRig, tried: Tried) -> None:
    tried("with the executor's rights: a cancel that nobody asked for, of a job whose call is parked")
    job, request = asked(rig, fresh("forged-cancel"), "lost_irreversible")
    assert respond(rig.system, "bob", request, "approve").status_code == 200
    until(lambda: rig.system.types(job, "invocation_parked") != [], PATIENCE_S)
    rig.system.append(ev.CancelRequested(job_id=job, by="ann"), "/tool_executor/rogue")
    said = {"verdict": "happened", "evidence": "looked"}
    resolved = rig.ask("bob", "POST", f"/api/jobs/{job}/contracts/{rig.step(job)['execution_id']}/resolve", json=said)
    assert resolved.status_code == 200, resolved.text
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"


@pytest.mark.security("forged record")
def test_a_yes_and_a_resolution_that_the_executor_writes_are_obeyed_by_nobody(rig: SecuredRig, tried: Tried) -> None:
    tried("with rights to write commands: a yes, a resolution, a cancel that nobody gave; one given before, once more")
    tag, lost = fresh("said"), fresh("lost")
    waiting, request = asked(rig, tag)
    parked, first = asked(rig, lost, "lost_irreversible")
    assert respond(rig.system, "bob", first, "approve").status_code == 200
    until(lambda: rig.system.types(parked, "invocation_parked") != [], PATIENCE_S)
    for job in (waiting, parked):
        before = rig.system.types(job)
        said = {"job_id": job, **said_by("bob"), "tenant": rig.system.data_of(job, "job_created")[0]["tenant"]}
        about = said | {"as_of": last_offset(rig, job), "execution_id": rig.step(job)["execution_id"]}
        for command in (
            Respond.model_validate(about | {"request_id": request, "action": "approve"}),
            Resolve.model_validate(about | {"verdict": "not_executed", "evidence": "looked"}),
            Cancel.model_validate(said),
        ):
            rig.system.forge(Topic.JOBS_COMMANDS, job, command, "/gateway/rogue")
        written_again(rig.system, Written(Topic.JOBS_COMMANDS, parked, "respond"), job)
        rig.system.completed({"id": "b", "tool": "poke_pure", "args": {"tag": fresh("after")}})
        assert rig.system.types(job) == before
    rejected(rig, waiting, request)
    verdict = {"verdict": "happened", "evidence": "looked"}
    path = f"/api/jobs/{parked}/contracts/{rig.step(parked)['execution_id']}/resolve"
    resolved = rig.ask("bob", "POST", path, json=verdict)
    assert resolved.status_code == 200, resolved.text
    rig.system.wait_ended([parked])
    assert (rig.external.count(tag), rig.external.count(lost)) == (0, 1)


def last_offset(rig: SecuredRig, job: str) -> int:
    return rig.system.ends(Topic.JOBS_EVENTS)[str(Topic.JOBS_EVENTS), partition_of(job, 4)] - 1


@contextmanager
def browsing() -> Generator[BrowserContext]:
    """The browser of somebody who trusts our certificate."""
    chromium = shutil.which("chromium")
    if chromium is None and not os.environ.get("CI"):
        pytest.skip("no chromium here: `make system-deps` installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with browser, browser.new_context(ignore_https_errors=True) as context:
            yield context


@pytest.mark.security("XSS/CSRF")
def test_a_result_that_is_a_script_stays_text_on_the_jobs_page(rig: SecuredRig, tried: Tried) -> None:
    tried("a job whose arguments, result and session are scripts, its page in a browser")
    job = rig.system.completed({"id": "a", "tool": "poke_pure", "args": {"tag": HOSTILE}}, session=HOSTILE[:80])
    path = rig.folder / "page.html"
    argv = [sys.executable, "-m", "aetheris.cli", "trace", job, "--html", str(path), "--data", str(rig.system.data)]
    made = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    path.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text()))
    requested: list[str] = []
    with browsing() as context:
        page = context.new_page()
        page.on("request", lambda request: requested.append(request.url))
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        page.mouse.move(200, 200)
        assert page.evaluate("window.pwned") is None
        assert page.locator("script, img, iframe, object, embed, form").count() == 0
        assert "<script>window.pwned = 1</script>" in page.locator("body").inner_text()
    assert requested == [path.as_uri()]


@pytest.mark.security("XSS/CSRF")
def test_a_page_of_elsewhere_does_nothing_in_a_persons_name(rig: SecuredRig, tried: Tried) -> None:
    tried("a page of another origin posts a job and a yes by form and script, with a token too; and DNS rebinding")
    tag = fresh("from-a-page")
    job, request = asked(rig, tag)
    before = rig.system.ends(*TOLD)
    with running_site() as site, browsing() as context:
        site.pages["/"] = ("text/html", b"<!doctype html><title>elsewhere</title>")
        page = context.new_page()
        page.goto(f"http://localhost:{site.port}/")
        for script in _attacks(rig.url, request):
            assert page.evaluate(script) != "read", script
    assert rig.system.ends(*TOLD) == before
    for url, path in ((rig.url, f"/api/jobs/{job}"), (rig.verifier, f"/jobs/{job}/verify")):
        rebound = rig.stranger.get(f"{url}{path}", headers=headers_of("ann") | {"Host": "shop.example"})
        assert (rebound.status_code, tag in rebound.text) == (421, False)
    rejected(rig, job, request)


def _attacks(url: str, request: str) -> list[str]:
    """Scripts that say "read" where they could read an answer; a form sends the same as a page of its own."""
    yes = f'{{"request_id": "{request}", "action": "approve"}}'
    plan = '{"plan": {"nodes": [{"id": "a", "tool": "poke_pure", "args": {"tag": "x"}}]}}'
    read = '.then(answer => answer.type === "opaque" ? "sent" : answer.text().then(() => "read"), () => "refused")'
    found = [f"fetch('{url}/api/jobs'){read}", f"fetch('{url}/livez'){read}"]
    for path, body in (("/api/ecs/respond", yes), ("/api/jobs", plan)):
        for more in ('mode: "no-cors", credentials: "include"', f"headers: {{Authorization: 'Bearer {TOKEN}'}}"):
            found.append(f"fetch('{url}{path}', {{method: 'POST', body: '{body}', {more}}}){read}")
        found.append(
            _FORM.replace("URL", f"{url}{path}").replace("NAME", f'{body[:-1]}, "x": "').replace("VALUE", '"}')
        )
    return found


def test_each_of_the_ten_is_checked_or_named_as_missing(request: pytest.FixtureRequest) -> None:
    markers = [item.get_closest_marker("security") for item in request.session.items]
    checked: set[Any] = {marker.args[0] for marker in markers if marker is not None}
    assert checked.isdisjoint(MISSING)
    assert checked | MISSING.keys() == set(CHECKS)
