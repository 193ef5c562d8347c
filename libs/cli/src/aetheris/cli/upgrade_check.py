"""What stands in the way of this version, where an earlier one runs: its open jobs, as this version reads them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import fold_event, logged_events
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import event_base
from aetheris.protocol.messages.envelope import NeedsUpgrade
from aetheris.protocol.messages.events import PlanGenerated
from aetheris.protocol.plan.graph import Kind
from aetheris.protocol.planning.policy import PolicyError, parse
from aetheris.sdk.tools import AnyTool
from aetheris.sdk.workflows.body_replay import NoWorkflow, replay_body
from aetheris.sdk.workflows.declaration import AnyWorkflow


@dataclass(frozen=True, slots=True)
class UpgradeFinding:
    """One thing that was looked at. `blocks`: this version would refuse it, or let it stand; `remedy`: what to do."""

    subject: str
    detail: str
    remedy: str = ""
    blocks: bool = False


def rules_and_services(told: Mapping[str, Any], version: str) -> Iterator[UpgradeFinding]:
    """Under which rules jobs are created, and who lives, as GET /api/rules tells it."""
    known, current = sorted(event_base.KNOWN_RULES), int(told["version"])
    if current in event_base.KNOWN_RULES:
        yield UpgradeFinding("rules", f"jobs are created under version {current}, which this version knows")
    else:
        detail = f"jobs are created under version {current}; this version knows {', '.join(map(str, known))}"
        yield UpgradeFinding("rules", detail, "Take a version that knows it: there is no way back.", blocks=True)
    services: Sequence[Mapping[str, Any]] = told["services"]
    for one in services:
        runs = one.get("version") or "a version that doesn't say which"
        rules = ", ".join(map(str, one["known"]))
        yield UpgradeFinding("services", f"{one['service']}/{one['name']}: {runs}, knows rules {rules}")
    if all(one.get("version") == version for one in services) and services:
        yield UpgradeFinding("services", f"all of them are {version} already")


def policy_in_force(told: Mapping[str, Any]) -> UpgradeFinding:
    """Whether this version reads the policy that was activated, as GET /api/policies tells it."""
    active = told.get("active")
    if not active:
        return UpgradeFinding("policy", "none is activated: the configured one decides")
    try:
        parse(active["policy"])
    except PolicyError as error:
        remedy = "Activate one that both versions read, before any ledger is upgraded."
        return UpgradeFinding("policy", f"activation {active['number']} is refused: {error}", remedy, blocks=True)
    return UpgradeFinding("policy", f"activation {active['number']} is read")


def open_job(
    name: str,
    records: Iterable[Record],
    codes: Mapping[str, AnyWorkflow],
    large: Mapping[str, Any],
    tools: Iterable[AnyTool] = (),
) -> Iterator[UpgradeFinding]:
    """What this version makes of a job that an earlier one has written so far; nothing, where it goes on.

    Args:
        codes: the workflows of the new code, by the name that plans call them by.
        tools: those that executors will have.
    """
    records = [*records]
    state: JobState | None = None
    plans = 0
    for logged in logged_events(records):
        if isinstance(logged.event, NeedsUpgrade):
            said = f"{name}: {logged.event.what} (offset {logged.record.offset})"
            yield UpgradeFinding("jobs", said, "A newer version wrote it: take that one, or a later one.", blocks=True)
            return
        plans += logged.type == PlanGenerated.event_type
        state, _ = fold_event(state, logged.event, logged.record.offset)
    if state is None:
        yield UpgradeFinding("jobs", f"{name}: no creation that this version reads", _STAYS, blocks=True)
    elif plans and state.revision < 0:
        yield UpgradeFinding("jobs", f"{name}: its plan is none to this version", _STAYS, blocks=True)
    elif state.terminal is None:
        yield from _pins(name, state, tools)
        if state.bodies is not None:
            yield from _bodies(name, records, state, codes, large)


_STAYS = "Let it end under the version that runs, or cancel it there."


def _pins(name: str, state: JobState, tools: Iterable[AnyTool]) -> Iterator[UpgradeFinding]:
    """Whether executors will serve what the plan is pinned to; tools that they have from elsewhere are not compared."""
    served = {(one.name, one.version): one.schema_hash for one in tools}
    known = {tool for tool, _ in served}
    wanted = dict(state.bodies.pins) if state.bodies is not None else {}
    for node_id in state.entries:
        entry = state.entry(node_id)
        if entry is not None and entry.pin is not None and entry.node.tool and state.settled_key(node_id) is None:
            wanted[entry.node.tool] = entry.pin
    for tool, pin in sorted(wanted.items()):
        if tool not in known or served.get((tool, pin.version)) == pin.schema_hash:
            continue
        other = "takes other arguments here" if (tool, pin.version) in served else "is not among these tools"
        remedy = "Keep executors that serve it as it is until the job has ended."
        yield UpgradeFinding("tools", f"{name}: {tool}@{pin.version} {other}", remedy, blocks=True)


def _bodies(
    name: str, records: Sequence[Record], state: JobState, codes: Mapping[str, AnyWorkflow], large: Mapping[str, Any]
) -> Iterator[UpgradeFinding]:
    """Whether the new code goes the way that is recorded."""
    for node_id in state.bodies.of if state.bodies is not None else ():
        entry = state.entry(node_id)
        if entry is None or entry.node.kind is not Kind.WORKFLOW or state.settled_key(node_id) is not None:
            continue
        called = entry.node.tool or ""
        if called not in codes:
            remedy = f"Give its code by --code MODULE:{called}."
            yield UpgradeFinding("workflows", f"{name}: {called} was not compared", remedy)
            continue
        try:
            found = replay_body(codes[called], logged_events(records), large, node_id)
        except (NoWorkflow, LookupError) as error:
            yield UpgradeFinding("workflows", f"{name}: {called} can't be compared: {error}", _STAYS, blocks=True)
            continue
        if found.diverges:
            remedy = "Keep the old code until it has ended; or it will be parked, for `resolve --retry --accept-code`."
            yield UpgradeFinding("workflows", f"{name}: {called} parts ways: {found.first}", remedy, blocks=True)
