"""What tools say is in the executor's log with job and step, and never with a secret; who blocks the loop is named."""

# ruff: noqa: T201  prints are what is looked for

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import structlog

from aetheris.sdk import ToolContext, tool
from aetheris.sdk.invoke import invoke
from aetheris.sdk.redaction import Redactor
from aetheris.sdk.tool_output import LONGEST_LINE, ToolOutput
from aetheris.sdk.tools import AnyTool
from aetheris.tool_executor.tool_calls import report_tool_output

HIDDEN = "hunter2hunter2"
REDACTOR = Redactor({"p@1": HIDDEN})


def context(node: str = "n") -> ToolContext:
    return ToolContext("k", 1, "i", "job-1", node)


async def said(one: AnyTool, *, reported: bool = True, **args: Any) -> Sequence[Mapping[str, Any]]:
    output = ToolOutput(report_tool_output, lambda: REDACTOR, reported=reported)
    with structlog.testing.capture_logs() as lines, output.installed([one]), output.of(one, context()):
        await invoke(one, args, context(), REDACTOR, output.raised)
    assert all(HIDDEN not in str(line) for line in lines)
    return lines


@tool("speaks", effect_class="pure")
async def speaks() -> None:
    print("a", end="")
    print("b")
    print(HIDDEN[:7], end="")
    print(HIDDEN[7:])
    sys.stderr.write("unended")
    logging.getLogger(__name__).info("told %s", HIDDEN)
    logging.getLogger("somebody.else").info("of no interest")
    await asyncio.to_thread(print, "from a thread")


@tool("blocks_a_thread", effect_class="pure")
def prints_in_a_thread() -> None:
    print("blocking")


@tool("breaks", effect_class="idempotent")
async def breaks() -> None:
    try:
        {}[HIDDEN]
    except KeyError as error:
        raise RuntimeError("it broke") from error


async def test_prints_and_log_lines_have_job_and_step() -> None:
    lines = await said(speaks)
    assert {(line["tool"], line["job_id"], line["node_id"]) for line in lines} == {("speaks@1", "job-1", "n")}
    assert [line["line"] for line in lines if line.get("stream") == "stdout"] == [
        "ab",
        "[secret p@1]",
        "from a thread",
    ]
    assert [line["line"] for line in lines if line.get("stream") == "stderr"] == ["unended"]
    assert [line["line"] for line in lines if line["event"] == "tool logged"] == ["told [secret p@1]"]
    (line,) = await said(prints_in_a_thread)
    assert line["line"] == "blocking"


async def test_a_traceback_begins_in_the_tool_and_holds_no_secret() -> None:
    (line,) = await said(breaks)
    assert (line["event"], line["error"]) == ("tool raised", "RuntimeError")
    shown = line["traceback"]
    assert "KeyError: '[secret p@1]'" in shown
    assert shown.rstrip().endswith("RuntimeError: it broke")
    assert "test_tool_output.py" in shown
    assert "sdk/invoke.py" not in shown


async def test_where_nothing_of_it_may_be_told_nothing_is() -> None:
    assert [await said(one, reported=False) for one in (speaks, breaks)] == [[], []]


async def test_what_is_said_outside_of_a_call_goes_where_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    output = ToolOutput(report_tool_output)
    with structlog.testing.capture_logs() as lines, output.installed([speaks]):
        print("outside")
        logging.getLogger("x").warning("warned")
    assert lines == []
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("outside\n", "warned\n")


async def test_a_log_that_is_written_by_the_same_streams_is_no_call_s(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        output = ToolOutput(report_tool_output)
        with output.installed([breaks]):
            structlog.configure(logger_factory=structlog.PrintLoggerFactory())
            with output.of(breaks, context()):
                await invoke(breaks, {}, context(), raised=output.raised)
    finally:
        structlog.reset_defaults()
    assert capsys.readouterr().out.count("tool raised") == 1


async def test_a_line_without_end_is_cut() -> None:
    @tool("endless", effect_class="pure")
    async def endless() -> None:
        for _ in range(100):
            print("x" * 10_000, end="")

    (line,) = await said(endless)
    assert line["line"] == "x" * LONGEST_LINE


async def test_calls_beside_each_other_are_told_apart() -> None:
    output = ToolOutput(report_tool_output)

    @tool("slow", effect_class="pure")
    async def slow(name: str) -> None:
        print(name, end="")
        await asyncio.sleep(0)
        print("!")

    async def one(name: str) -> None:
        with output.of(slow, context(name)):
            await invoke(slow, {"name": name}, context(name), raised=output.raised)

    with structlog.testing.capture_logs() as lines, output.installed([slow]):
        await asyncio.gather(*map(one, "abc"))
    assert sorted((line["node_id"], line["line"]) for line in lines) == [("a", "a!"), ("b", "b!"), ("c", "c!")]
