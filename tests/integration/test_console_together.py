"""The console's inbox, in a real browser: several requests at once, and what was done before that bears on one."""

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.testkit.consoles import JOB, TIME, RunningConsole, StandInGateway, serious

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

expect.set_options(timeout=30_000)


def opened(console: RunningConsole, browser: Browser, path: str = "/inbox/together", **options: Any) -> Page:
    page = console.signed_in(browser, "bob", **options)
    page.goto(f"{console.url}{path}")
    return page


def asked(gateway: StandInGateway, count: int = 3) -> list[str]:
    return [gateway.ask(f"pay-{at}", {"amount": at + 0.5, "to": f"acc-{at}"}) for at in range(count)]


def row(page: Page, node: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=node, exact=True))


def test_several_that_one_rule_asks_about_are_approved_by_keyboard_each_by_its_own_mark(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    first, second, third = asked(gateway)
    page = opened(console, browser, "/inbox")
    page.get_by_role("link", name="Answer several at once").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/inbox/together")
    assert serious(page) == []
    assert page.get_by_role("checkbox", checked=True).count() == 0, "nothing is chosen by itself"
    assert '"amount": 1.5' in row(page, "pay-1").inner_text()
    for node in ("pay-0", "pay-2"):
        row(page, node).get_by_role("checkbox").focus()
        page.keyboard.press("Space")
    page.get_by_label("Comment").fill("as agreed")
    page.get_by_role("button", name="Approve what is chosen").focus()
    page.keyboard.press("Enter")
    expect(page.locator("[role=status] li")).to_have_count(2)
    told = [(said["request_id"], said["action"], said["comment"]) for _, said, _ in gateway.said]
    assert told == [(first, "approve", "as agreed"), (third, "approve", "as agreed")]
    assert gateway.requests[second]["status"] == "waiting"
    assert serious(page) == []


def test_on_a_phone_all_arguments_are_in_sight_and_a_finger_chooses(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.ask("pay-0", {"amount": 1250.5, "to": "DE02120300000000202051" * 3})
    second = gateway.ask("pay-1", {"amount": 7, "to": "DE02120300000000202051"})
    page = opened(console, browser, viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True)
    for shown in page.locator("pre.exact").all():
        box = shown.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390, "something of it lies beside the screen"
    assert serious(page) == []
    row(page, "pay-1").get_by_role("checkbox").tap()
    page.get_by_role("button", name="Approve what is chosen").tap()
    expect(page.locator("[role=status] li")).to_have_count(1)
    assert [said["request_id"] for _, said, _ in gateway.said] == [second]


def test_it_works_without_a_script_too(gateway: StandInGateway, console: RunningConsole, browser: Browser) -> None:
    asked(gateway)
    page = opened(console, browser, java_script_enabled=False)
    row(page, "pay-1").get_by_role("checkbox").check()
    page.get_by_role("button", name="Reject what is chosen").click()
    assert "rejected" in page.locator("[role=status]").inner_text()
    assert [said["action"] for _, said, _ in gateway.said] == ["reject"]


@pytest.mark.parametrize("change", ["votes", "arguments", "rule", "answered", "gone"])
def test_where_one_of_them_changed_since_somebody_looked_none_is_sent(
    gateway: StandInGateway, console: RunningConsole, browser: Browser, change: str
) -> None:
    ids = asked(gateway)
    page = opened(console, browser)
    for box in page.get_by_role("checkbox").all():
        box.check()
    second = gateway.requests[ids[1]]
    match change:
        case "votes":
            second["votes"] = {"given": ["carol"], "needed": 2}
        case "arguments":
            second["request"]["context"]["arguments"]["amount"] = 99_999
        case "rule":
            second["asked_by"]["rule"] = "another"
        case "answered":
            gateway.decide(ids[1], "carol", "rejected")
        case _:
            del gateway.requests[ids[1]]
    page.get_by_role("button", name="Approve what is chosen").click()
    expect(page.get_by_role("alert")).to_contain_text("changed since you looked: nothing was sent")
    assert gateway.said == []


def test_what_needs_a_look_of_its_own_is_in_no_group(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    signed, _, edited, _, rule = asked(gateway, 5)
    gateway.requests[signed]["asked_by"]["signed"] = True
    gateway.requests[edited]["asked_by"]["edited_by"] = "carol"
    gateway.requests[rule]["asked_by"]["approvers"] = ["bob"]
    gateway.ask("long", {"text": "x" * 3_000})
    gateway.ask_form({"name": "amount", "type": "number", "label": "Amount", "required": True})
    page = opened(console, browser)
    assert page.get_by_role("checkbox").count() == 2
    assert sorted(page.locator("tbody th a").all_inner_texts()) == ["pay-1", "pay-3"]


def test_two_groups_are_never_answered_by_one_press(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    asked(gateway, 2)
    others = [gateway.ask(f"mail-{at}", {"to": f"a{at}"}, tool="mail.send") for at in range(2)]
    page = opened(console, browser)
    assert page.locator("section.group").count() == 2
    seen = gateway_seen(page, others[0])
    row(page, "pay-0").get_by_role("checkbox").check()
    page.locator("form").nth(1).evaluate(
        """(form, [id, seen]) => {
            for (const [name, value] of [["request", id], [`seen.${id}`, seen]]) {
                const made = document.createElement("input");
                Object.assign(made, { type: "hidden", name, value });
                form.append(made);
            }
        }""",
        [others[0], seen],
    )
    page.get_by_role("button", name="Approve what is chosen").first.click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was sent")
    assert gateway.said == []


def gateway_seen(page: Page, id_: str) -> str:
    return page.locator(f'input[name="seen.{id_}"]').input_value()


def effect(job_id: str, args: dict[str, Any], *, tool: str = "bank.payout", approved_by: str = "", session: str = ""):
    """As GET /effects has it."""
    goal = {"what": "goal", "title": "g", "at": None, "facts": {"session": session} if session else {}, "because": []}
    plan = {"what": "plan", "title": "p", "at": None, "facts": {}, "because": [goal]}
    step = {"what": "step", "title": "s", "at": None, "facts": {"args": args, "node_id": "pay"}, "because": [plan]}
    approval = {"what": "approval", "title": f"approve by {approved_by}", "at": None, "facts": {}, "because": []}
    facts = {"job_id": job_id, "command_id": "pay", "tool_name": tool, "external_id": f"x-{job_id}", "created_at": TIME}
    because = [*([approval] if approved_by else []), step]
    return {"what": "effect", "title": "e", "at": None, "facts": facts, "because": because}


def test_a_call_is_shown_against_the_last_approved_one_and_beside_what_was_done_before(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    id_ = gateway.ask()
    gateway.hold("waiting")
    gateway.tell("job_created", session="s-1")
    effects = [
        effect("unasked", {"amount": 1, "to": "acc-1"}),
        effect("equal", {"amount": 12.5, "to": "acc-7"}, session="s-2"),
        effect("last", {"amount": "12.5", "to": "acc\u202e7", "old": True}, approved_by="carol"),
        effect("earlier", {"amount": 3, "to": "acc-3"}, approved_by="bob"),
        effect("mail", {"to": "x"}, tool="mail.send", session="s-1"),
        effect(JOB, {"to": "x"}, tool="mail.send", session="s-1"),
    ]
    gateway.raw["/effects"] = json.dumps({"effects": effects, "cursor": None}).encode()
    page = opened(console, browser, f"/inbox/{id_}")
    before = page.locator("#earlier")
    expect(before).to_contain_text("approved by carol")
    rows = [" ".join(text.split()) for text in before.locator("tbody tr").all_inner_texts()]
    assert rows == ['amount "12.5" 12.5', "to acc\\u202e7 acc-7", "old true (not there)"]
    sections = {one.split("\n")[0]: one for one in before.locator("section").all_inner_texts()}
    assert "equal" in sections["Earlier calls with the same arguments"]
    assert "unasked" not in before.inner_text()
    in_session = sections["What was done in this session, by other jobs"]
    assert "mail.send" in in_session
    assert JOB not in in_session
    assert serious(page) == []


def test_a_tool_that_nobody_approved_before_says_so(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    id_ = gateway.ask()
    gateway.tell("job_created")
    gateway.raw["/effects"] = json.dumps({"effects": [effect("a", {"amount": 1})], "cursor": None}).encode()
    page = opened(console, browser, f"/inbox/{id_}")
    expect(page.locator("#earlier")).to_contain_text("None among the 1 effects of the tenant")
