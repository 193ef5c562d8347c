"""A person's value, given to tools that do their worst with it, is nowhere but with them (docs/hidden-values.md)."""

import asyncio
import json
import secrets
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from aetheris.cli import token_files
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.runtime.subjects.kms import FileKms
from aetheris.runtime.subjects.subject_keys import SubjectKeys
from tests.testkit.canary import forms_of
from tests.testkit.consoles import RunningConsole, console_at
from tests.testkit.external_server import until
from tests.testkit.hidden_rig import HiddenRig, aetheris, call, fresh, judged, leaks, opened, running_hidden_rig
from tests.testkit.services import running_service
from tests.testkit.tokens import entry_of, headers_of, token_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[HiddenRig]:
    with running_hidden_rig(tmp_path_factory.mktemp("hidden")) as rig:
        yield rig


def test_a_personal_value_is_nowhere_but_in_the_tools_hands_and_erased_for_ever(rig: HiddenRig) -> None:
    value, subject = fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    plan = {
        "nodes": [
            {"id": "hello", "tool": "greet", "args": {"text": "you"}},
            call("a", "echo", subject, value),
            {**call("b", "echo", subject, value, large=4000), "depends_on": ["a"]},
        ]
    }
    status, answer = rig.post("/jobs", {"plan": plan}, "once")
    assert status == 202, answer
    job = answer["job_id"]
    status, answer = rig.post("/jobs", {"plan": plan}, "once")
    assert (status, answer["job_id"]) == (202, job)
    failing = [
        rig.system.submit(call("r", "refuses", subject, value, how=how)) for how in ("failed", "not_executed", "lost")
    ]
    rig.system.wait_ended([job, *failing])
    assert rig.system.job(job)["status"] == "completed"
    assert rig.given(value)
    for one in rig.finished(job):
        assert one["node_id"] == "hello" or set(one["result"]) == {"$hidden"}, one
    errors = {one.get("error") for failed in failing for one in rig.finished(failed)}
    assert errors == {"Failed", "NotExecuted", "failed, not sure: no try is left"}
    for one in (job, *failing):
        rig.system.wait_sealed(one)
    rig.system.verified(job)
    assert leaks(rig, job, *failing) == set()

    status, erased = rig.post("/subjects/erase", {"subject": subject})
    assert (status, erased["erased"]) == (200, True)
    assert rig.post("/subjects/erase", {"subject": subject}) == (200, erased)
    assert [json.loads(one["line"])["pseudonym"] for one in erased["lines"]] == [erased["pseudonym"]]
    for key in ("once", "twice"):
        status, answer = rig.post("/jobs", {"plan": plan}, key)
        assert (status, answer["error"]["code"]) == (409, "erased")
    rig.system.verified(job)
    assert leaks(rig, job, *failing) == set()

    status, enrolled = rig.post("/subjects/enrol", {"subject": subject})
    assert (status, enrolled["erased"], enrolled["pseudonym"] != erased["pseudonym"]) == (200, False, True)
    again = rig.system.completed(plan["nodes"][0], call("a", "echo", subject, value))
    assert opened(rig, again)[1:] == (2, 0)


def test_who_may_read_payloads_is_shown_values_that_a_bundle_bears_out(rig: HiddenRig) -> None:
    value, subject = fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    job = rig.system.completed({"id": "hello", "tool": "greet", "args": {"text": 1}}, call("a", "echo", subject, value))
    rig.system.wait_sealed(job)
    assert opened(rig, job) == (value, 2, 0)
    assert rig.system.report(job)["hidden_values"] == 2
    judged(rig, job)
    assert rig.post("/subjects/erase", {"subject": subject})[0] == 200
    assert opened(rig, job) == (None, 0, 2)


def test_who_is_on_hold_keeps_what_is_hidden_until_released(rig: HiddenRig) -> None:
    value, name = fresh(), f"Zo\u00eb {secrets.token_hex(8)}"
    taken_apart = unicodedata.normalize("NFD", name)
    rig.said.append(value)
    job = rig.system.completed({"id": "hello", "tool": "greet", "args": {"text": 1}}, call("a", "echo", name, value))
    status, held = rig.post("/subjects/hold", {"subject": taken_apart})
    assert (status, held["held"]) == (200, True)
    status, answer = rig.post("/subjects/erase", {"subject": name})
    assert (status, answer["error"]["code"]) == (409, "held")
    assert opened(rig, job)[0] == value
    assert aetheris(rig, "release", "--subject", name, "--as", "approver") == f"{held['pseudonym']} released\n"
    status, answer = rig.post("/subjects/release", {"subject": name})
    assert (status, answer["error"]["code"]) == (409, "not_held")
    status, erased = rig.post("/subjects/erase", {"subject": taken_apart})
    assert (status, erased["pseudonym"]) == (200, held["pseudonym"])
    assert opened(rig, job) == (None, 0, 2)
    status, answer = rig.post("/subjects/hold", {"subject": name})
    assert (status, answer["error"]["code"]) == (409, "erased")
    about = f"subject {held['pseudonym']}"
    told = [one for one in audited(rig) if (one.get("subject"), one["action"]) == (about, "configured")]
    assert [one["route"].rsplit("/")[-1] for one in told] == ["hold", "release", "erase"]


def audited(rig: HiddenRig) -> list[dict[str, Any]]:
    """Who came, as an auditor is told."""
    return json.loads(aetheris(rig, "audit", "--as", "approver", "--json"))["records"]


def test_who_was_erased_and_when_is_in_the_log_of_seals_beside_a_bundle(rig: HiddenRig) -> None:
    value, subject, other = fresh(), f"customer-{secrets.token_hex(8)}", f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    job = rig.system.completed(call("a", "echo", subject, value), call("b", "echo", other, value))
    rig.system.wait_sealed(job)
    bundle, erasures = rig.folder / f"{job}-erased.zip", rig.folder / f"{job}.erasures.json"
    aetheris(rig, "export", job, "--out", str(bundle))
    rig.system.kill("verifier-0")
    said = aetheris(rig, "erase", "--subject", subject, "--as", "approver", "--out", str(erasures))
    rig.system.mend()
    if "follows" in said:  # nobody logged it while the verifier was away
        until(lambda: bool(rig.system.api.get(f"/seals/erasures/{said.split()[0]}").json().get("lines")), 60)
    assert "line" in aetheris(rig, "erase", "--subject", subject, "--as", "approver")
    aetheris(rig, "seals", "erasures", str(bundle), "--out", str(erasures))
    report = json.loads(aetheris(rig, "verify", str(bundle), "--erasures", str(erasures), "--json"))
    (erased,) = report["erasures"]
    assert (erased["pseudonym"], erased["values"]) == (said.split()[0], 2)
    assert (report["erased_values"], report["hidden_values"]) == (2, 4)
    assert erased["erased_at"] <= erased["logged_at"]
    (line,) = json.loads(erasures.read_text())["lines"]
    assert subject not in line["line"]
    forged = {"line": line["line"].replace(erased["erased_at"], "2020-01-01T00:00:00+00:00"), "proof": line["proof"]}
    erasures.write_text(json.dumps({"lines": [forged]}))
    report = json.loads(aetheris(rig, "verify", str(bundle), "--erasures", str(erasures), "--json", status=1))
    assert [one["rule"] for one in report["violations"]] == ["erasure_unproven"]


def test_an_erasure_that_a_dead_gateway_told_nobody_is_in_the_log_of_seals_when_the_next_has_started(
    rig: HiddenRig,
) -> None:
    value, subject = fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    job = rig.system.completed({"id": "hello", "tool": "greet", "args": {"text": 1}}, call("a", "echo", subject, value))
    assert opened(rig, job)[0] == value
    data, tenant = rig.system.data, rig.system.job(job)["tenant"]
    keys = SubjectKeys(data / "subjects", FileKms(data / "keys" / "subjects.key"), lambda: datetime.now(UTC))
    erased = asyncio.run(keys.erase(tenant, subject, {"by": "approver"}))  # and here it dies
    assert erased is not None
    rig.system.kill("gateway-0")
    rig.system.mend()
    until(lambda: bool(rig.system.api.get(f"/seals/erasures/{erased.k}").json().get("lines")), 60)
    assert asyncio.run(keys.untold()) == []
    assert opened(rig, job) == (None, 0, 2)


def test_a_call_whose_subject_is_erased_before_it_starts_is_not_made(rig: HiddenRig) -> None:
    value, subject = fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    job = rig.system.submit(
        {"id": "w", "kind": "wait", "wait": {"key": "go"}}, {**call("a", "echo", subject, value), "depends_on": ["w"]}
    )
    until(lambda: bool(rig.system.types(job, "job_waiting")), 30)
    assert rig.post("/subjects/erase", {"subject": subject})[0] == 200
    assert rig.system.signal(job, "go").status_code in (200, 202)
    rig.system.wait_ended([job])
    assert [one["error"] for one in rig.finished(job)] == ["erased"]
    assert not rig.given(value)


def test_what_a_probe_finds_is_told_by_its_kind(rig: HiddenRig) -> None:
    value, subject = fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    job = rig.system.submit(call("a", "lost", subject, value))
    request = rig.system.wait_asked(job)
    answer = {"request_id": request["request_id"], "action": "approve"}
    assert rig.system.api.post("/ecs/respond", json=answer, headers=rig.system.approver).status_code in (200, 202)
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed", rig.system.job(job)
    (probed,) = rig.system.data_of(job, "invocation_probed")
    assert (probed["answer"], probed["evidence"]) == ("found", ["withheld: the call has hidden values"])
    rig.system.wait_sealed(job)
    hello = rig.system.completed({"id": "hello", "tool": "greet", "args": {"text": "you"}})
    rig.system.wait_sealed(hello)
    rig.system.verified(job)
    (rig.folder / "seen.lost").unlink()
    assert leaks(rig, job, hello) == set()


def test_what_a_person_fills_in_is_hidden_and_given_to_the_tool_that_asks_for_it(rig: HiddenRig) -> None:
    value, subject = fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    fields = [
        {"name": "email", "type": "text", "label": "Email", "required": True, "personal": "/customer"},
        {"name": "note", "type": "text", "label": "Note"},
    ]
    asks = {
        "id": "ask",
        "kind": "human",
        "args": {"customer": subject},
        "form": {"title": "Where to?", "fields": fields},
    }
    hello = {"id": "hello", "tool": "greet", "args": {"text": {"$ref": "ask#/note"}}}
    job = rig.system.submit(asks, hello, call("a", "echo", subject, {"$ref": "ask#/email"}))
    request = rig.system.wait_asked(job)["request_id"]
    body = {"request_id": request, "action": "approve", "data": {"email": value, "note": "canary-control"}}
    assert rig.post("/ecs/respond", {**body, "data": {"email": 7}})[0] == 400
    forged = {"$hidden": {"c": "0" * 64, "d": "0" * 64, "k": "0" * 32}}
    status, answer = rig.post("/ecs/respond", {**body, "data": {"email": forged}})
    assert (status, answer["error"]["code"]) == (400, "hidden_in_input")
    for _ in range(2):
        status, answer = rig.post("/ecs/respond", body)
        assert status in (200, 202), answer
    status, answer = rig.post("/ecs/respond", {**body, "data": {"email": fresh()}})
    assert (status, answer["error"]["code"]) == (409, "answered")
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed", rig.system.events(job)
    assert rig.given(value)
    (completed,) = rig.system.data_of(job, "wait_completed")
    assert set(completed["payload"]["email"]) == {"$hidden"}
    (made,) = [one for one in rig.finished(job) if one["node_id"] == "a"]
    assert set(made["result"]) == {"$hidden"}
    rig.system.wait_sealed(job)
    rig.system.verified(job)
    assert leaks(rig, job) == set()
    judged(rig, job)
    assert rig.post("/subjects/erase", {"subject": subject})[0] == 200
    answer = rig.system.api.get(f"/jobs/{job}/openings").json()
    assert (answer["erased"], answer["openings"]) == (2, [])
    rig.system.verified(job)


def test_what_a_signal_says_of_a_person_is_hidden_and_given_to_the_tool_that_asks_for_it(rig: HiddenRig) -> None:
    value, subject = fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    wait = {"id": "w", "kind": "wait", "wait": {"key": "p", "personal": {"/email": "/customer"}}}
    hello = {"id": "hello", "tool": "greet", "args": {"text": {"$ref": "w#/note"}}}
    job = rig.system.submit(wait, hello, call("a", "echo", subject, {"$ref": "w#/email"}))
    until(lambda: bool(rig.system.types(job, "job_waiting")), 30)
    payload = {"customer": subject, "email": value, "note": "canary-control"}
    nobodys = rig.system.signal(job, "p", {"email": value, "note": 1})
    assert (nobodys.status_code, nobodys.json()["error"]["code"]) == (400, "personal_not_served")
    assert value not in nobodys.text
    said = rig.folder / "payload.json"
    said.write_text(json.dumps(payload))
    aetheris(rig, "signal", job, "p", "--payload-file", str(said))
    said.unlink()
    assert rig.system.signal(job, "p", payload).status_code == 200
    other = rig.system.signal(job, "p", {**payload, "email": fresh()})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "signal_conflict")
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed", rig.system.events(job)
    assert rig.given(value)
    for kind in ("signal_received", "wait_completed"):
        (one,) = rig.system.data_of(job, kind)
        assert set(one["payload"]["email"]) == {"$hidden"}, kind
    rig.system.wait_sealed(job)
    rig.system.verified(job)
    assert leaks(rig, job) == set()
    judged(rig, job)
    assert value in [one["value"] for one in rig.system.api.get(f"/jobs/{job}/openings").json()["openings"]]
    assert rig.post("/subjects/erase", {"subject": subject})[0] == 200
    answer = rig.system.api.get(f"/jobs/{job}/openings").json()
    assert (answer["erased"], answer["openings"]) == (2, [])
    assert leaks(rig, job) == set()
    rig.system.verified(job)


def test_what_an_approver_makes_of_a_personal_argument_is_hidden_too(rig: HiddenRig) -> None:
    value, other, subject = fresh(), fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.extend((value, other))
    hello = {"id": "hello", "tool": "greet", "args": {"text": "you"}}
    job = rig.system.submit(hello, call("a", "sends", subject, value))
    asked = rig.system.wait_asked(job)
    body = {"request_id": asked["request_id"], "action": "edit"}
    status, answer = rig.post("/ecs/respond", {**body, "data": {"customer": "somebody else"}})
    assert (status, answer["error"]["code"]) == (400, "personal_not_served")
    status, answer = rig.post("/ecs/respond", {**body, "data": {"email": value}})
    assert (status, answer["error"]["code"]) == (400, "invalid_answer"), answer
    edit = {**body, "data": {"email": other, "copies": 2}}
    status, answer = rig.post("/ecs/respond", edit)
    assert status in (200, 202), answer
    following = rig.system.wait_asked(job, after=asked["request_id"])["request_id"]
    assert rig.post("/ecs/respond", edit)[0] == 200
    status, answer = rig.post("/ecs/respond", {**body, "data": {"email": fresh(), "copies": 2}})
    assert (status, answer["error"]["code"]) == (409, "answered")
    with token_files.changed(rig.system.data / "tokens.toml") as entries:
        entries.append(entry_of("carol"))  # who edits does not approve
    said = rig.system.api.post(
        "/ecs/respond", json={"request_id": following, "action": "approve"}, headers=headers_of("carol")
    )
    assert said.status_code in (200, 202), said.text
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed", rig.system.events(job)
    assert (rig.given(value), rig.given(other)) == (False, True)
    rig.system.wait_sealed(job)
    rig.system.verified(job)
    assert leaks(rig, job) == set()
    judged(rig, job)


NOTICES = """
[[channels]]
name = "phone"
kind = "ntfy"
url = "{url}/ok/ntfy"
topic = "approvals"
private = true

[[routes]]
name = "all"
tell = ["phone"]
show = ["/email", "/customer", "/copies"]
"""


@contextmanager
def notifier(rig: HiddenRig) -> Generator[None]:
    """Tells of what waits, with all arguments."""
    (rig.folder / "notices.toml").write_text(NOTICES.format(url=rig.web.url))
    with token_files.changed(rig.system.data / "tokens.toml") as entries:
        entries.append(entry_of("notifier", "notices", roles=(Role.SUBMIT,), kind=PrincipalKind.SERVICE))
    (rig.folder / "notifier-token").write_text(token_of("notifier"))
    env = {
        "AETHERIS_KAFKA": rig.system.state().kafka,
        "AETHERIS_DATA": str(rig.folder / "notifier"),
        "AETHERIS_WORKER_ID": "notifier-0",
        "AETHERIS_NOTICES": str(rig.folder / "notices.toml"),
        "AETHERIS_GATEWAY_URL": rig.system.state().gateway,
        "AETHERIS_GATEWAY_TOKEN": str(rig.folder / "notifier-token"),
        "AETHERIS_CONSOLE_URL": "https://console.example.org",
    }
    with running_service("notifier", rig.folder, env):
        yield


@pytest.fixture
def console(rig: HiddenRig) -> Generator[RunningConsole]:
    with token_files.changed(rig.system.data / "tokens.toml") as entries:
        entries.append(entry_of("dora"))
    running = console_at(rig.folder, rig.system.state().gateway)
    with running.up():
        yield running


def pages(console: RunningConsole, *paths: str) -> list[str]:
    """As who may approve sees them."""
    with httpx.Client(base_url=console.url, trust_env=False, follow_redirects=True, timeout=60) as browser:
        browser.post(console.link("dora"), headers={"Origin": console.url}).raise_for_status()
        return [browser.get(path).raise_for_status().text for path in paths]


def test_what_people_are_told_and_shown_of_a_call_has_the_form_of_a_personal_value(
    rig: HiddenRig, console: RunningConsole
) -> None:
    """In a notice, on the console's pages, and in the proof of the call by itself, with all that can be asked for."""
    value, subject = fresh(), f"customer-{secrets.token_hex(8)}"
    rig.said.append(value)
    with notifier(rig):
        job = rig.system.submit(
            {"id": "hello", "tool": "greet", "args": {"text": "you"}}, call("a", "sends", subject, value)
        )
        request = rig.system.wait_asked(job)["request_id"]
        until(lambda: any(job.encode() in one.body for one in rig.web.at("/ok/ntfy")), 60)
    shown = [one.body.decode() for one in rig.web.at("/ok/ntfy") if job.encode() in one.body]
    shown += pages(console, f"/inbox/{request}", f"/inbox/{request}/context")
    answer = {"request_id": request, "action": "approve"}
    assert rig.system.api.post("/ecs/respond", json=answer, headers=rig.system.approver).status_code in (200, 202)
    rig.system.wait_ended([job])
    assert rig.given(value)
    rig.system.wait_sealed(job)
    shown += pages(console, f"/jobs/{job}", f"/jobs/{job}/effects", f"/jobs/{job}/verify")
    (made,) = [one for one in rig.finished(job) if one["node_id"] == "a"]
    asked = {"external_id": made["external_id"], "disclose": ["tool", "args", "result", "evidence"]}
    proof = rig.system.api.get(f"/jobs/{job}/call-proof", params=asked)
    assert proof.status_code == 200, proof.text
    shown.append(proof.text)
    for control in (shown[0], shown[1], proof.text):
        assert subject in control, "what isn't marked is there"
    sought = forms_of(value)
    assert [at for at, text in enumerate(shown) if any(form in text.encode() for form in sought)] == []
    assert leaks(rig, job) == set()


FORM = {
    "id": "ask",
    "kind": "human",
    "form": {
        "title": "t",
        "fields": [{"name": "email", "type": "text", "label": "e", "personal": {"name": "c"}}],
    },
}


@pytest.mark.parametrize(
    ("nodes", "code", "field"),
    [
        (
            [call("a", "echo", "c", {"$hidden": {"c": "0" * 64, "d": "0" * 64, "k": "0" * 32}})],
            "hidden_in_input",
            "email",
        ),
        ([call("a", "echo", "", "x@y")], "personal_not_served", "email"),
        (
            [{"id": "g", "tool": "greet", "args": {"text": 1}}, call("a", "echo", "c", {"$ref": "g#"})],
            "personal_not_served",
            "email",
        ),
        (
            [call("a", "echo", "c", "x@y"), {"id": "g", "tool": "greet", "args": {"text": {"$ref": "a#/plain"}}}],
            "personal_not_served",
            "text",
        ),
        ([FORM, {"id": "g", "tool": "greet", "args": {"text": {"$ref": "ask#/email"}}}], "personal_not_served", "text"),
        ([FORM, {"id": "g", "tool": "greet", "args": {"text": [{"$ref": "ask#"}]}}], "personal_not_served", "text/0"),
        ([FORM, call("a", "echo", "c", {"$ref": "ask#"})], "personal_not_served", "email"),
        (
            [
                FORM,
                call("a", "echo", "c", {"$ref": "ask#/email"}),
                {"id": "g", "tool": "greet", "args": {"text": {"$ref": "a#"}}},
            ],
            "personal_not_served",
            "text",
        ),
    ],
)
def test_what_cant_be_hidden_is_refused_by_name(rig: HiddenRig, nodes: list[Any], code: str, field: str) -> None:
    status, answer = rig.post("/jobs", {"plan": {"nodes": nodes}})
    assert (status, answer["error"]["code"]) == (400, code)
    assert field in answer["error"]["details"]["field"]
