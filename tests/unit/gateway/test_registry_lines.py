"""Lines of tools.registry that describe nothing: each is passed over and told, and none hurts another's tool."""

import json
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from structlog.testing import capture_logs

from aetheris.gateway.registry import Registry
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry, ToolRelease
from aetheris.protocol.plan.graph import Kind, Node, TaskGraph
from aetheris.protocol.planning.schemas import graph_json, pinned
from aetheris.runtime.log.table import OnChange
from aetheris.runtime.telemetry.metrics import Metrics
from tests.testkit.gateways import TOOL

CALL = Node(id="a", kind=Kind.TOOL, tool="gw.pay", args={"amount": 1})
RELEASE = ToolRelease(tenant="t", tool="gw.pay", by="ann", reason="r", at="then", below=(1,))
MODEL = ModelEntry(name="m", provider_model="test")


class ToldTable:
    """A table that says what it is told."""

    def __init__(self) -> None:
        self.listeners: list[OnChange] = []

    def on_change(self, listener: OnChange) -> None:
        self.listeners.append(listener)

    def say(self, key: str, value: bytes | None) -> None:
        for one in self.listeners:
            one(key, value)


class Gateway:
    def __init__(self) -> None:
        self.table, self.reader = ToldTable(), InMemoryMetricReader()
        self.registry = Registry(self.table, Metrics("gateway", self.reader))  # pyright: ignore[reportArgumentType]
        for line in (TOOL, MODEL, RELEASE):
            self.table.say(line.key, line.model_dump_json().encode())

    def refused(self) -> int:
        data: Any = self.reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        return next((one.data.data_points[0].value for one in metrics if one.name == "aetheris.tools.lines_refused"), 0)


def line(key: str | None = None, **says: Any) -> tuple[str, bytes]:
    body = {**TOOL.model_dump(mode="json"), "version": "2", **says}
    return key or f"{body['name']}@{body['version']}", json.dumps(body).encode()


ABSURD = [float("inf"), float("-inf"), float("nan"), -1, 1e300, "x", None, []]
BAD = [
    *(line(timeout_s=one) for one in [0, *ABSURD]),
    *(line(settles_within_s=one) for one in ABSURD if one is not None),
    *(line(duplicate_window_s=one) for one in [0, 31 * 86_400, *ABSURD]),
    *(line(schema={"type": "object", "maxProperties": one}) for one in (float("inf"), float("nan"), 2**53)),
    line(schema={"description": "\ud800"}),
    line(version="9" * 65),
    line(version="9" * 5000),  # what Python makes no number of
    line(version=""),
    line(name="a\nb"),
    line(key="gw.pay@3"),
    line(key="x"),
    line(key="model:m", name="m"),
    ("gw.pay@2", b""),
    ("gw.pay@2", b"{"),
    ("gw.pay@2", b'{"schema":' + b"[" * 100_000),
    ("\ufffd", b"\xff"),
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_line_that_describes_nothing_is_passed_over_and_told(bad: tuple[str, bytes]) -> None:
    gateway = Gateway()
    with capture_logs() as logged:
        gateway.table.say(*bad)
    assert [(one["log_level"], one["key"]) for one in logged] == [("warning", bad[0][:200])]
    assert gateway.refused() == 1
    found = gateway.registry
    assert found.newest() == {"gw.pay": TOOL}
    assert digest(graph_json(pinned(TaskGraph(nodes=(CALL,)), found.newest())))
    assert found.schema("gw.pay", "2") is None
    assert not found.verifies("gw.pay", "2")
    assert found.models() == ({} if bad[0] == MODEL.key else {"m": MODEL})


def test_a_line_that_describes_a_tool_is_not_told_nor_is_one_that_is_gone() -> None:
    gateway = Gateway()
    with capture_logs() as logged:
        gateway.table.say(*line(timeout_s=86_400, settles_within_s=0))
        assert gateway.registry.newest()["gw.pay"].version == "2"
        gateway.table.say("gw.pay@2", None)
    assert gateway.registry.newest() == {"gw.pay": TOOL}
    assert (logged, gateway.refused()) == ([], 0)


@pytest.mark.parametrize("field", ["timeout_s", "settles_within_s", "duplicate_window_s"])
@pytest.mark.parametrize("number", [float("inf"), float("nan"), -1.0, 1e12])
def test_an_entry_has_no_such_number(field: str, number: float) -> None:
    with pytest.raises(ValueError, match=field):
        RegistryEntry.model_validate({**TOOL.model_dump(mode="json"), field: number})
