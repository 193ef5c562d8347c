"""A trace is told in pages of steps: together they say what the whole says of them."""

from typing import Any

from aetheris.views.job_history import JobHistory, job_history
from aetheris.views.trace import trace_of, trace_page
from tests.testkit.job_histories import records, refunded


def test_pages_together_say_what_the_whole_says_of_each_step() -> None:
    history = job_history(records(*refunded()))
    whole = trace_of(history)
    pages = [trace_page(history, after, 1) for after in range(2)]
    assert [step for page in pages for step in page["steps"]] == [
        {name: said for name, said in step.items() if name != "events"} for step in whole["steps"]
    ]
    for part in ("nodes", "edges"):
        assert [one for page in pages for one in page["graph"][part]] == whole["graph"][part]
    assert {page["step_count"] for page in pages} == {len(whole["steps"])}
    assert [_named(page["decisions"]) for page in pages] == [{"lookup"}, {"pay"}]
    assert all(page["job"] == whole["job"] for page in pages)


def test_behind_the_last_step_there_is_none_and_of_an_unborn_job_nothing() -> None:
    behind = trace_page(job_history(records(*refunded())), 2, 10)
    assert (behind["steps"], behind["graph"]["nodes"], behind["step_count"]) == ([], [], 2)
    assert trace_page(JobHistory(), 0, 10) == {}


def _named(tree: dict[str, Any]) -> set[str]:
    found = {node["node_id"] for node in tree.get("nodes", ())}
    for below in tree["leads_to"]:
        found |= _named(below)
    return found
