"""The pictures of what docs/console.md says of operations: `python -m tests.operations_pictures` makes them anew."""

import tempfile
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Page, ViewportSize

from tests.console_pictures import PICTURES
from tests.testkit.browser import running_chromium
from tests.testkit.console_answers import say_all
from tests.testkit.consoles import JOB, TIME, RunningConsole, StandInGateway, console_at, stand_in_gateway

_WIDE: dict[str, ViewportSize] = {"viewport": {"width": 1180, "height": 900}}
_PHONE: dict[str, ViewportSize] = {"viewport": {"width": 390, "height": 780}}
_LOOKS: tuple[tuple[str, dict[str, ViewportSize], Literal["light", "dark"]], ...] = (
    ("light", _WIDE, "light"),
    ("dark", _WIDE, "dark"),
    ("phone", _PHONE, "light"),
)
_ACTIVE = """[[rules]]
name = "payouts"
tools = ["bank.*"]
when = "args.amount > 1000"
effect = "approval"
approvers = ["carol", "finance-*"]

[[rules]]
name = "the-rest"
tools = ["*"]
effect = "allow"
"""
OTHER_POLICY = _ACTIVE.replace("1000", "250").replace('"finance-*"', '"finance-*", "b\u043eb"')
"""Its last name has a Cyrillic letter: the page marks it."""


STEPS: tuple[dict[str, Any], ...] = (
    {"node_id": "find", "tool": "invoices.find", "state": "completed", "attempts": 1, "effect": "none"},
    {"node_id": "pay", "tool": "bank.payout", "state": "completed", "effect": "confirmed", "external_id": "re_1042"},
    {"node_id": "tell", "tool": "mail.send", "state": "running", "attempts": 1},
    {"node_id": "pay-again", "tool": "bank.payout", "state": "waiting", "attempts": 2, "execution_id": "x"},
    {"node_id": "refund", "tool": "bank.refund", "state": "waiting", "request_id": "r-1"},
    {"node_id": "file", "tool": "mail.send", "state": "pending"},
)
_EFFECT: dict[str, Any] = {"node_id": "pay", "tool": "bank.payout", "at": TIME, "external_id": "re_1042"}
_OF_AGENT = {"status": "completed", "submitted_by": "agent-7"}
UNDOABLE: list[dict[str, Any]] = [
    {
        **_OF_AGENT,
        "job_id": "job-4711",
        "effects": [
            {**_EFFECT, "standing": "undoable", "undo_tool": "bank.return"},
            {
                **_EFFECT,
                "node_id": "tell",
                "tool": "mail.send",
                "standing": "not_undoable",
                "why": "no compensate_with",
            },
        ],
    },
    {**_OF_AGENT, "job_id": "job-4702", "effects": [{**_EFFECT, "standing": "undone", "job_id": "job-9"}]},
]
LETTER = "aetheris.jobs.commands.v1/2/7"


def main() -> None:
    """All of them."""
    with running_chromium() as browser, stand_in_gateway() as gateway, tempfile.TemporaryDirectory() as folder:
        say_policies(gateway)
        say_all(gateway)
        console = console_at(Path(folder), gateway.url)
        with console.up():
            for name, view, scheme in _LOOKS:
                _signing_in(browser.new_page(color_scheme=scheme, viewport=view["viewport"]), console, name)
                page = console.signed_in(browser, "bob", color_scheme=scheme, **view)
                _together(gateway, page, console, name)
                for told in ("schedules", "budgets", "quotas"):
                    page.goto(f"{console.url}/operations/{told}")
                    _shot(page, f"console-{told}-{name}")
                page.goto(f"{console.url}/passkey")
                _shot(page, f"console-passkey-{name}")
                _frozen(gateway, page, console, name)
                page.goto(f"{console.url}/operations")
                _shot(page, f"console-health-{name}")
                page.goto(f"{console.url}/operations/dead-letters")
                _shot(page, f"console-dead-letters-{name}")
                page.get_by_role("link", name=LETTER).press("Enter")
                page.wait_for_url(f"**/{LETTER}")
                _shot(page, f"console-dead-letter-{name}")
                _controlled(gateway, page, console, name)
                _policies(page, console, name)
        gateway.away = True
    print(console.trouble, [said for _, said, _ in gateway.said if "policy" not in said])  # noqa: T201


def _signing_in(page: Page, console: RunningConsole, name: str) -> None:
    page.goto(f"{console.url}/sign-in")
    _shot(page, f"console-sign-in-{name}")
    page.goto(console.link("bob"))
    _shot(page, f"console-sign-in-link-{name}")


def _together(gateway: StandInGateway, page: Page, console: RunningConsole, name: str) -> None:
    gateway.requests.clear()
    for at, amount in enumerate((1250.5, 980, 12.75), start=1):
        gateway.ask(f"pay-{at}", {"amount": amount, "currency": "EUR", "to": f"DE0212030000000020205{at}"})
    page.goto(f"{console.url}/inbox/together")
    page.get_by_role("checkbox").first.check()
    _shot(page, f"console-together-{name}")
    gateway.requests.clear()


def _frozen(gateway: StandInGateway, page: Page, console: RunningConsole, name: str) -> None:
    gateway.listed = [
        {"job_id": f"job-{at}", "status": status, "created_at": TIME, "submitted_by": "agent-7", "tenant": "default"}
        for at, status in ((4711, "running"), (4702, "waiting"), (4698, "paused"))
    ]
    page.goto(f"{console.url}/operations/freeze?scope=agent&name=agent-7")
    _shot(page, f"console-freeze-{name}")


def say_policies(gateway: StandInGateway) -> None:
    """Two activations, and what another one would have decided."""
    active = {"number": 2, "policy_hash": "ab" * 32, "by": "carol", "at": TIME, "reason": "too many payouts"}
    earlier = {"number": 1, "policy_hash": "cd" * 32, "by": "bob", "at": TIME, "reason": None}
    shown = {**active, "policy": _ACTIVE, "answered": 4, "partitions": 4}
    gateway.say_operations()
    gateway.say("/policies", {"active": shown, "history": [earlier]})
    call = {"node_id": "pay", "tool": "bank.payout", "offset": 17, "time": TIME, "then": "allow", "then_by": "the-rest"}
    differences = [{**call, "job_id": f"job-{at}", "now": "approval", "now_by": "payouts"} for at in (4711, 4702, 4698)]
    told: dict[str, Any] = {"jobs": 48, "calls": 112, "unjudged": 2, "differ": 3, "differences": differences}
    gateway.answers["/policies/trial"] = {**told, "left_out": [], "cursor": "further"}


def _controlled(gateway: StandInGateway, page: Page, console: RunningConsole, name: str) -> None:
    gateway.hold("running", *STEPS)
    gateway.say("/undo", {"jobs": UNDOABLE, "cursor": None})
    gateway.story.clear()
    gateway.tell("tool_invocation_started", node_id="pay-again", execution_id="x", worker_id="executor-0", token=1)
    gateway.tell("invocation_in_doubt", node_id="pay-again", execution_id="x", error_class="lease_lost")
    gateway.tell("invocation_parked", node_id="pay-again", execution_id="x", reason="no probe is declared")
    page.goto(f"{console.url}/jobs/{JOB}")
    page.get_by_label("How you know").scroll_into_view_if_needed()
    _shot(page, f"console-parked-{name}")
    page.goto(f"{console.url}/jobs/{JOB}/control/cancel")
    _shot(page, f"console-cancel-{name}")
    page.get_by_label("Reason").fill("it pays twice")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{JOB}")
    page.get_by_role("link", name="Pause…").click()
    page.get_by_role("button", name="Pause it").click()
    page.wait_for_url(f"**/jobs/{JOB}")
    page.goto(f"{console.url}/operations/undo?agent=agent-7&age=2h&since={TIME}")
    _shot(page, f"console-undo-{name}")
    gateway.answers["/jobs/job-4711/undo"] = {"job_id": "undo-of-4711", "status": "submitted"}
    page.get_by_role("checkbox").press("Space")
    page.get_by_role("button", name="Undo what is chosen").press("Enter")
    page.get_by_role("link", name="undo-of-4711").wait_for()
    _shot(page, f"console-undone-{name}")


def _policies(page: Page, console: RunningConsole, name: str) -> None:
    page.goto(f"{console.url}/operations/policy")
    _shot(page, f"console-policy-{name}")
    page.get_by_label("The whole policy").fill(OTHER_POLICY)
    page.get_by_role("button", name="Show what it changes").click()
    page.wait_for_url("**/preview")
    _shot(page, f"console-policy-preview-{name}")


def _shot(page: Page, name: str) -> None:
    page.wait_for_load_state("networkidle")
    page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
