"""Another policy, tried on what was decided and activated, on the real system: by the API, and in a real browser."""

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from aetheris.protocol.base.principals import Role
from tests.testkit.approvers import running_approvers
from tests.testkit.attempts import fresh
from tests.testkit.consoles import RunningConsole, running_console, serious
from tests.testkit.external_server import ExternalServer
from tests.testkit.policies import ALLOW_ALL, ALLOW_REST
from tests.testkit.rig import Rig, poke
from tests.testkit.system import System
from tests.testkit.tokens import entry_of, headers_of, write_tokens

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

expect.set_options(timeout=60_000)

HOSTILE_NAME = "<b>no</b> \\u202E payouts"
NO_MORE = f'[[rules]]\nname = "{HOSTILE_NAME}"\ntools = ["poke_irreversible"]\neffect = "deny"\n{ALLOW_REST}'


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_approvers(tmp_path_factory.mktemp("policy"), ALLOW_ALL) as rig:
        write_tokens(
            rig.system.data,
            {"ann": "default", "bob": "default", "carol": "default", "eve": "another"},
            entry_of("reader", roles=[Role.READ, Role.READ_PAYLOADS]),
            entry_of("blind", roles=[Role.ADMINISTER, Role.OPERATE]),
        )
        yield rig


@pytest.fixture(scope="module")
def done(rig: Rig) -> list[str]:
    """Jobs whose payouts the policy allowed."""
    jobs = [rig.system.submit(poke("pay", fresh("trial"), tool="poke_irreversible")) for _ in range(3)]
    rig.system.wait_ended(jobs)
    return jobs


@pytest.fixture
def console(system: System, tmp_path: Path) -> Generator[RunningConsole]:
    with running_console(tmp_path, system.state().gateway) as console:
        yield console


def tried(system: System, who: str = "bob", **body: Any) -> httpx.Response:
    body = {"policy": NO_MORE, **body}
    return system.api.post("/policies/trial", json=body, headers=headers_of(who), timeout=90)


def test_a_trial_names_the_calls_and_changes_nothing(system: System, done: list[str]) -> None:
    answer = tried(system)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    by_job = {one["job_id"]: one for one in found["differences"]}
    assert set(done) <= set(by_job)
    assert {(one["then"], one["now"], one["node_id"]) for one in by_job.values()} == {("allow", "deny", "pay")}
    assert (found["cursor"], found["left_out"], found["unjudged"]) == (None, [], 0)
    assert tried(system, policy=ALLOW_ALL).json()["differ"] == 0
    assert tried(system, since="2100-01-01T00:00:00Z").json()["calls"] == 0
    assert system.api.get("/policies", headers=headers_of("bob")).json()["active"] is None


def test_it_is_for_who_may_read_what_calls_were_given_and_of_his_own_tenant(system: System, done: list[str]) -> None:
    assert done
    for who in ("reader", "blind"):
        refused = tried(system, who)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_role")
    others = tried(system, "eve").json()
    assert (others["jobs"], others["calls"], others["differences"]) == (0, 0, [])
    for body in ({"policy": "[[rules]]"}, {"policy": ""}, {"since": "yesterday"}, {"cursor": "x"}):
        assert tried(system, **body).status_code == 400


def test_a_costly_policy_holds_nobody_up_and_leaves_no_process(system: System, done: list[str]) -> None:
    assert done
    with ThreadPoolExecutor() as people:
        trying = people.submit(tried, system, policy=costly())
        slowest = 0.0
        while not trying.done():
            began = time.monotonic()
            assert system.api.get("/caller", headers=headers_of("ann")).status_code == 200
            slowest = max(slowest, time.monotonic() - began)
    answer = trying.result()
    assert answer.status_code == 200, answer.text
    assert slowest < 8
    assert judges(system.pid("gateway-0")) == []


def costly() -> str:
    """Each rule costs a part of a second, whatever the call: a list in a list, looked through."""
    numbers = ", ".join(str(n) for n in range(190))
    condition = f"[{numbers}].exists(x, x in [{numbers}] && x > 500)"
    rule = "[[rules]]\nname = 'r{}'\ntools = ['*']\nwhen = '{}'\neffect = 'deny'\n"
    return "".join(rule.format(at, condition) for at in range(140)) + ALLOW_ALL


def judges(gateway: int) -> list[int]:
    """The children of a gateway that judge policies."""
    found = Path(f"/proc/{gateway}/task/{gateway}/children").read_text().split()
    return [int(pid) for pid in found if b"policy_judge" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_policy_is_tried_compared_and_activated_without_a_script(
    system: System, external: ExternalServer, console: RunningConsole, browser: Browser, done: list[str]
) -> None:
    page = console.signed_in(browser, "bob", java_script_enabled=False)
    page.goto(f"{console.url}/operations/policy")
    expect(page.locator("main")).to_contain_text("None was activated")
    page.get_by_label("The whole policy").fill(NO_MORE)
    page.get_by_role("button", name="Show what it changes").click()
    expect(page.locator("h1")).to_have_text("What this policy changes")
    text = page.locator("main").inner_text()
    assert done[0] in text
    assert "<b>no</b> \\u202e payouts" in text
    page.get_by_label("Reason").fill("no more payouts")
    page.get_by_role("button", name="Let it decide").click()
    page.wait_for_url("**/operations/policy")
    expect(page.locator("main")).to_contain_text("no more payouts")
    active = system.api.get("/policies", headers=headers_of("bob")).json()["active"]
    assert (active["number"], active["by"], active["policy"]) == (1, "bob", NO_MORE)
    tag = fresh("denied")
    job = system.submit(poke("pay", tag, tool="poke_irreversible"))
    system.wait_ended([job])
    assert external.count(tag) == 0
    records = system.api.get("/audit", params={"limit": 1000}, headers=headers_of("bob")).json()["records"]
    told = [one for one in records if one["action"] == "configured" and one.get("route") == "POST /api/policies"]
    assert [(one["principal"]["id"], one["subject"].split()[:2]) for one in told] == [("bob", ["policy", "1"])]


def test_one_that_was_activated_meanwhile_is_not_replaced_unseen(
    system: System, console: RunningConsole, browser: Browser
) -> None:
    page = console.signed_in(browser, "bob")
    page.goto(f"{console.url}/operations/policy")
    assert serious(page) == []
    page.get_by_label("The whole policy").fill(ALLOW_ALL)
    page.get_by_role("button", name="Show what it changes").click()
    expect(page.locator("h1")).to_have_text("What this policy changes")
    assert serious(page) == []
    other = ALLOW_ALL + "# carol's\n"
    said = system.api.post("/policies", json={"policy": other}, headers=headers_of("carol"), timeout=60)
    assert said.status_code in (200, 202), said.text
    page.get_by_role("button", name="Let it decide").click()
    expect(page.get_by_role("alert")).to_contain_text("another policy was activated meanwhile by carol")
    assert system.api.get("/policies", headers=headers_of("bob")).json()["active"]["policy"] == other
    expect(page.locator(".removed")).to_contain_text("# carol's")
    page.get_by_role("button", name="Let it decide").click()
    page.wait_for_url("**/operations/policy")
    assert system.api.get("/policies", headers=headers_of("bob")).json()["active"]["policy"] == ALLOW_ALL


def test_who_does_not_administer_sees_no_button_and_is_refused(
    system: System, console: RunningConsole, browser: Browser
) -> None:
    page = console.signed_in(browser, "reader")
    page.goto(f"{console.url}/operations/policy")
    expect(page.locator("h1")).to_have_text("Refused")
    body = {"policy": ALLOW_REST}
    assert system.api.post("/policies", json=body, headers=headers_of("reader")).status_code == 403
