"""The pictures of docs/console.md: `python -m tests.console_pictures` makes them anew, in docs/pictures."""

import json
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.testkit.browser import running_chromium
from tests.testkit.consoles import FIELDS, JOB, TIME, RunningConsole, StandInGateway, console_at, stand_in_gateway
from tests.testkit.system import REPOSITORY

PICTURES = REPOSITORY / "docs" / "pictures"
_WIDE = {"viewport": {"width": 1180, "height": 760}}
_OF_A_JOB = ("plan", "effects", "compare", "steps", "contracts")
_PHONE = {"viewport": {"width": 390, "height": 780}}


def main() -> None:
    """All of them."""
    PICTURES.mkdir(exist_ok=True)
    with running_chromium() as browser, stand_in_gateway() as gateway, tempfile.TemporaryDirectory() as folder:
        payout, mail, form = _told(gateway)
        console = console_at(Path(folder), gateway.url)
        with console.up():
            for scheme in ("light", "dark"):
                page = console.signed_in(browser, "bob", color_scheme=scheme, **_WIDE)
                _shot(page, console, f"/inbox/{payout}", f"console-inbox-{scheme}")
                _shot(page, console, f"/inbox/{mail}", f"console-exact-{scheme}")
                _shot(page, console, f"/jobs/{JOB}", f"console-job-{scheme}")
                _shot(page, console, "/jobs", f"console-jobs-{scheme}")
                _shot(page, console, f"/jobs/{JOB}/events/5", f"console-event-{scheme}")
                _shot(page, console, "/operations", f"console-operations-{scheme}")
                for name in _OF_A_JOB:
                    _shot(page, console, _of_a_job(name), f"console-{name}-{scheme}")
                _shot(page, console, f"/inbox/{form}", f"console-form-{scheme}")
                _shot(page, console, "/jobs/nobody", f"console-problem-{scheme}")
                _edited(page, console, payout, f"console-edit-{scheme}")
            phone = console.signed_in(browser, "bob", color_scheme="light", **_PHONE)
            _phone(phone, console, payout)
            _shot(phone, console, f"/inbox/{mail}", "console-phone-exact")
            _shot(phone, console, f"/inbox/{form}", "console-phone-form")
            _shot(phone, console, "/jobs/nobody", "console-phone-problem")
            _edited(phone, console, payout, "console-phone-edit")
        gateway.away = True


def _phone(page: Page, console: RunningConsole, payout: str) -> None:
    _shot(page, console, f"/inbox/{payout}", "console-phone-request")
    _shot(page, console, "/inbox", "console-phone-inbox")
    _shot(page, console, f"/jobs/{JOB}", "console-phone-job")
    _shot(page, console, "/operations", "console-phone-operations")
    _shot(page, console, f"/jobs/{JOB}/events/5", "console-phone-event")
    _shot(page, console, "/jobs", "console-phone-jobs")
    for name in _OF_A_JOB:
        _shot(page, console, _of_a_job(name), f"console-phone-{name}")


def _edited(page: Page, console: RunningConsole, payout: str, name: str) -> None:
    """What an edit changes, before it is sent."""
    page.goto(f"{console.url}/inbox/{payout}")
    page.get_by_text("Edit the arguments").click()
    page.get_by_label("Amount").fill("125.05")
    page.get_by_role("button", name="Show what changes").click()
    page.get_by_role("button", name="Send this edit").wait_for()
    page.screenshot(path=PICTURES / f"{name}.png")


def _of_a_job(name: str) -> str:
    return f"/jobs/{JOB}/{name}" + ("?with=job-2" if name == "compare" else "")


def _shot(page: Page, console: RunningConsole, path: str, name: str) -> None:
    page.goto(f"{console.url}{path}")
    page.wait_for_load_state("networkidle") if path != f"/jobs/{JOB}" else page.wait_for_selector("#timeline a")
    page.evaluate("() => new Promise(done => setTimeout(done, 400))")
    page.screenshot(path=PICTURES / f"{name}.png")


def _told(gateway: StandInGateway) -> tuple[str, str, str]:
    """An agent's job that pays an invoice, and what waits."""
    payout = gateway.ask(args={"amount": 1250.5, "currency": "EUR", "to": "DE02120300000000202051"}, fields=FIELDS)
    hostile = {
        "to": "p\u0430yroll@example.com",
        "subject": "Invoice 4711 \u202efdp.exe",
        "body": "<b>Please</b> pay by Friday.",
        "copies": 2,
    }
    mail = gateway.ask("tell", hostile, tool="mail.send")
    form = gateway.ask_form(
        {"name": "amount", "type": "number", "label": "Amount", "required": True, "min": 1, "max": 5000}
    )
    steps = [
        {"node_id": "find", "tool": "invoices.find", "state": "completed", "attempts": 1, "effect": "none"},
        {"node_id": "check", "tool": "limits.check", "state": "completed", "attempts": 1, "depends_on": ["find"]},
        {
            "node_id": "pay",
            "tool": "bank.payout",
            "state": "waiting",
            "request_id": payout,
            "depends_on": ["find", "check"],
        },
        {"node_id": "tell", "tool": "mail.send", "state": "pending", "depends_on": ["pay"]},
    ]
    why = "pay waits for a person's approval, by the rule payouts"
    gateway.hold("waiting", *steps, goal="Pay the invoice 4711, then tell the supplier", why=why)
    gateway.tell("job_created")
    gateway.tell("plan_generated", revision=1)
    gateway.tell("policy_allowed", node_id="find", rule="reads")
    gateway.tell("tool_invocation_started", node_id="find", worker_id="executor-0")
    gateway.tell("tool_invocation_finished", node_id="find", outcome="success", via="executor", usage={}, result=_SAID)
    gateway.tell("approval_requested", node_id="pay", rule="payouts")
    gateway.tell("job_waiting", node_id="pay", wait_type="approval")
    _say_traces(gateway, steps)
    start = {"from": "pending", "to": "running", "trigger": "start", "timestamp": TIME, "actor": "executor"}
    ended = {"from": "running", "to": "completed", "trigger": "succeed", "timestamp": TIME, "actor": "executor"}
    came = {"action_type": "tool_call", "status": "completed", "has_effect": "none", "transitions": [start, ended]}
    contracts = [{**came, "execution_id": name, "node_id": name} for name in ("find", "check")]
    gateway.say(f"/jobs/{JOB}/contracts", {"contracts": contracts})
    gateway.raw["/effects"] = b'{"effects": [], "cursor": null}'
    gateway.say_operations()
    states = ("waiting", "running", "completed", "completed", "failed", "paused", "cancelled", "completed", "running")
    gateway.listed = [
        {"job_id": f"job-{place}", "status": state, "created_at": TIME, "submitted_by": "agent-7", "tenant": "default"}
        | {"labels": {"order": f"47{place + 10}", "env": "production"}}
        for place, state in enumerate(states, start=1)
    ]
    return payout, mail, form


def _say_traces(gateway: StandInGateway, steps: list[dict[str, Any]]) -> None:
    """How the job came to its steps, what it did, and another one that is much alike."""
    called: dict[str, dict[str, Any]] = {"find": {"invoice": "4711"}, "check": {"amount": 1250.5, "currency": "EUR"}}
    effects = [
        {"command_id": name, "tool_name": tool, "outcome": "success", "stands": True, "external_id": f"ext-{name}"}
        for name, tool in (("find", "invoices.find"), ("check", "limits.check"))
    ]
    gateway.raw[f"/jobs/{JOB}/effects"] = json.dumps({"effects": effects, "effect_count": 2}).encode()
    added = [{"node_id": one["node_id"], "tool": one["tool"], "state": one["state"]} for one in steps]
    summary = "The invoice is due on Friday; the payout needs a yes, so it is asked for first."
    plan = {"what": "plan", "title": "revision 1", "facts": {}, "nodes": added, "leads_to": []}
    decision = {"what": "decision", "title": "the model decided", "facts": {"reasoning_summary": summary}}
    root = {
        "what": "goal",
        "title": "Pay the invoice 4711",
        "facts": {},
        "leads_to": [{**decision, "leads_to": [plan]}],
    }
    nodes = [{**one, "kind": "tool", "irreversible": one["node_id"] in ("pay", "tell")} for one in added]
    edges = [
        {"from": needed, "to": one["node_id"], "carries": "result"}
        for one in steps
        for needed in one.get("depends_on", ())
    ]
    told = [{**one, "keys": [{"args": called[one["node_id"]]}] if one["node_id"] in called else []} for one in added]
    trace = {"job": {"status": "waiting"}, "decisions": root, "graph": {"nodes": nodes, "edges": edges}}
    gateway.raw[f"/jobs/{JOB}/trace"] = json.dumps({**trace, "steps": told, "step_count": len(told)}).encode()
    others = [{**one, "keys": [{"args": {**one["keys"][0]["args"], "amount": "1250.5"}}]} if one["node_id"] == "check"
              else {**one, "state": "completed"} for one in told]  # fmt: skip
    other = {"job": {"status": "completed"}, "steps": others, "step_count": len(others)}
    gateway.raw["/jobs/job-2/trace"] = json.dumps(other).encode()


_SAID = {"text": "The invoice 4711 of Muster GmbH is due on Friday: 1,250.50 EUR. I will pay it from the main account."}

if __name__ == "__main__":
    main()
