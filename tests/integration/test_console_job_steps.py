"""A plan as it is drawn, steps below the code that planned them, and the bytes of records, in a real browser."""

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.testkit.consoles import JOB, RunningConsole, StandInGateway, serious

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(120)]

STATES = ("completed", "failed", "rejected", "cancelled", "waiting", "running", "pending")
HOSTILE = "</text><script>window.pwned=1</script>\u202e\u0430dmin"

expect.set_options(timeout=30_000)


def step(node_id: str, state: str = "completed", **more: Any) -> dict[str, Any]:
    return {"node_id": node_id, "tool": "bank.payout", "state": state, **more}


def test_the_plan_is_drawn_by_the_server_with_a_shape_and_a_word_for_each_state(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    steps = [step(f"is-{state}", state, depends_on=["first"]) for state in STATES]
    gateway.hold("waiting", step("first"), *steps, step("last", "pending", depends_on=["is-waiting", "is-running"]))
    page = console.signed_in(browser, "bob", java_script_enabled=False)
    page.goto(f"{console.url}/jobs/{JOB}")
    drawn = {one.get_attribute("data-step") or "": one for one in page.locator(".plan svg a").all()}
    assert len(drawn) == len(STATES) + 2
    shapes = {}
    for state in STATES:
        found = drawn[f"is-{state}"]
        assert state in (found.text_content() or "").replace(f"is-{state}", "")
        shapes[state] = found.locator("polygon").get_attribute("points")
    assert shapes["completed"] not in (shapes["failed"], shapes["waiting"], shapes["running"])
    assert len({shapes[one] for one in ("completed", "failed", "waiting", "running")}) == 4
    assert page.locator(".plan .edge").count() == len(STATES) + 2
    tops = {one: box["y"] for one in drawn if (box := drawn[one].bounding_box()) is not None}
    assert tops["first"] < min(top for name, top in tops.items() if name.startswith("is-")) < tops["last"]
    drawn["is-waiting"].click()
    assert page.url.endswith("#step-is-waiting")
    expect(page.locator("tr#step-is-waiting")).to_be_in_viewport()


def test_what_a_step_is_called_becomes_no_markup_in_the_drawing(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold("running", step("a"), {**step(HOSTILE), "tool": HOSTILE, "depends_on": ["a"]}, why=HOSTILE)
    gateway.tell("tool_invocation_started", node_id=HOSTILE, worker_id=HOSTILE)
    gateway.raw["record 1"] = HOSTILE.encode() + b"\x00\xff\x1b[2J"
    page = console.opened(browser, f"/jobs/{JOB}")
    for path in ("", "/plan", "/steps", "/events/1"):
        if path == "/plan":
            gateway.raw[f"/jobs/{JOB}/trace"] = b'{"decisions": null, "graph": {"nodes": [], "edges": []}}'
        page.goto(f"{console.url}/jobs/{JOB}{path}")
        assert page.evaluate("window.pwned") is None
        assert page.locator("main script").count() == 0
        assert "\u202e" not in page.locator("body").inner_text()
        assert serious(page) == []
    assert "\\u202e" in page.get_by_label("The event").inner_text()


def test_what_a_job_did_and_how_it_differs_from_another_is_shown_exactly_whatever_it_is(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    long = "x" * 999_999 + "!"
    args = json.dumps({"to": HOSTILE, "text": long, "n": 0}).replace('"n": 0', '"n": 9007199254740993')
    other = args.replace("740993", "740992").replace("!", "?")
    effect = json.dumps({"command_id": HOSTILE, "tool_name": HOSTILE, "outcome": "success", "external_id": HOSTILE})
    gateway.hold("completed", step("a"))
    gateway.raw[f"/jobs/{JOB}/effects"] = (
        f'{{"effects": [{effect[:-1]}, "args": {args}}}], "effect_count": 1}}'.encode()
    )
    for job, given in ((JOB, args), ("job-2", other)):
        said = f'{{"node_id": "a", "tool": "t", "state": "completed", "keys": [{{"args": {given}}}]}}'
        gateway.raw[f"/jobs/{job}/trace"] = f'{{"job": {{}}, "steps": [{said}], "step_count": 1}}'.encode()
    page = console.opened(browser, f"/jobs/{JOB}/effects")
    page.get_by_text("show", exact=True).click()
    shown = page.get_by_label("The effect").text_content() or ""
    assert '"n": 9007199254740993' in shown
    assert json.loads(shown)["args"] == json.loads(args)
    _harmless(page)
    page.goto(f"{console.url}/jobs/{JOB}/compare?with=job-2")
    cells = [one.text_content() or "" for one in page.locator("tbody td code").all()]
    assert sorted(cells, key=len)[:2] == ["9007199254740993", "9007199254740992"]
    assert [cell for cell in cells if len(cell) > 100] == [long, long.replace("!", "?")]
    _harmless(page)


def _harmless(page: Page) -> None:
    assert page.evaluate("window.pwned") is None
    assert page.locator("main script").count() == 0
    assert "\u202e" not in page.locator("body").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert serious(page) == []


def test_the_calls_of_a_workflow_stand_below_it_and_of_many_those_that_matter_are_shown(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    calls = [step(f"call-{number}", parent="flow") for number in range(2_000)]
    calls[1_500]["state"] = "failed"
    gateway.hold("running", step("before"), step("flow", "running"), step("after", "pending"), *calls)
    page = console.opened(browser, f"/jobs/{JOB}")
    names = page.locator("#state tbody th").all_inner_texts()
    assert len(names) == 101, "the first hundred, and the one that failed"
    order = [name.removeprefix("planned by flow:").strip() for name in names]
    assert order[:3] == ["before", "flow", "call-0"]
    assert order[-1] == "call-1500"
    assert "2000 calls" in (page.locator(".plan [data-step=flow]").text_content() or "")
    assert page.locator(".plan svg a").count() == 3
    assert serious(page) == []
    page.get_by_role("link", name="All of them").click()
    seen: list[str] = []
    while True:
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"Steps {len(seen) + 1} to")
        seen += page.locator("tbody th").all_inner_texts()
        later = page.get_by_role("link", name="Those behind")
        if later.count() == 0:
            break
        later.click()
    assert [one.removeprefix("planned by flow:").strip() for one in seen] == [
        *("before", "flow"),
        *(f"call-{number}" for number in range(2_000)),
        "after",
    ]


def test_a_records_bytes_are_shown_as_they_are_and_taken_along(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold()
    gateway.tell("job_created")
    value = bytes(range(256)) * 20
    gateway.raw["record 1"] = value
    page = console.opened(browser, f"/jobs/{JOB}/events/1")
    lines = page.locator("pre.hex").inner_text().split("\n")
    assert (len(lines), bytes.fromhex(lines[3][8:56])) == (256, value[48:64])
    assert lines[4].endswith("@ABCDEFGHIJKLMNO")
    expect(page.locator("main")).to_contain_text("5120 bytes")
    page.get_by_text("Its headers").click()
    expect(page.get_by_role("region", name="Headers")).to_contain_text("0xff00")
    assert serious(page) == []
    with page.expect_download() as taken:
        page.get_by_role("link", name="Its bytes").click()
    assert taken.value.suggested_filename == f"{JOB}-1.bin"
    assert taken.value.path().read_bytes() == value


def test_a_job_whose_log_takes_long_has_its_page_at_once_and_how_it_stands_follows(
    gateway: StandInGateway, console: RunningConsole, browser: Browser
) -> None:
    gateway.hold("running", step("only", "running"))
    gateway.tell("job_created")
    page = console.signed_in(browser, "bob")
    gateway.held_back.clear()
    page.goto(f"{console.url}/jobs/{JOB}")
    expect(page.locator("#state")).to_contain_text("is being read")
    expect(page.locator("#timeline a")).to_have_count(1)
    gateway.held_back.set()
    expect(page.locator("#state tbody")).to_contain_text("only")
