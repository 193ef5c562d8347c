"""`aetheris replay | effects | ledger | trace | why`: what a job did, and why, from its log or a file."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from aetheris.cli import local
from aetheris.cli.console import (
    CommandError,
    Exit,
    Json,
    end,
    errors_as_exits,
    fields,
    out,
    print_json,
    print_json_line,
    progress,
    shown,
    table,
)
from aetheris.cli.gateway import connected
from aetheris.cli.job_ids import of_job
from aetheris.cli.source import is_file, read_job
from aetheris.protocol.base.conditions import BadCondition
from aetheris.protocol.fold.job_log import logged_events
from aetheris.sdk.client import Client
from aetheris.sdk.loader import ToolboxError, workflows_in
from aetheris.sdk.workflows.body_replay import BodyReplay, NoWorkflow, replay_body
from aetheris.views.call_ledger import ledger_of
from aetheris.views.job_history import JobHistory, job_history
from aetheris.views.provenance import EffectFilter, origin
from aetheris.views.replayed_job import UnknownPoint
from aetheris.views.replayed_job import replay as replayed
from aetheris.views.trace import trace_of

Target = Annotated[str, typer.Argument(metavar="ID|FILE", help="A job's id, or an exported bundle or stream.")]


def replay(
    target: Target,
    *,
    to: Annotated[
        str | None, typer.Option(help="Up to an event: its id, its number, or a time (by its writer's clock).")
    ] = None,
    step: Annotated[bool, typer.Option("--step", help="Every event, and what it changed.")] = False,
    code: Annotated[
        str | None, typer.Option(help="Run this workflow over it, MODULE:FUNCTION; 1 where it would part ways.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Of several nodes of that workflow: which.")] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Tell a job again from its log, calling nothing; 1 where what is recorded does not follow from it."""
    if code is not None:
        _replay_code(target, code, node, data, as_json=as_json)
        return
    with errors_as_exits(as_json=as_json):
        found = _replay_of(target, to, data, steps=step)
        if as_json:
            print_json(found)
        else:
            _print_replay(found)
    end(Exit.HOLDS if found["ok"] else Exit.FAILED)


def effects(target: Target, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """List what a job did to the external system, and what it asked models, in log order."""
    with errors_as_exits(as_json=as_json):
        if is_file(target):
            history = _history(target, data)
            found = history.effects.to_json(history.job.job_id if history.job is not None else "")
        else:
            with of_job(target, data) as (client, job):
                found = client.effects(job)
        if as_json:
            print_json(found)
        else:
            columns = ("seq", "step", "kind", "tool", "external id, or used", "by way of", "output", "at")
            table(columns, [_effect_row(row) for row in found["effects"]])


def ledger(target: Target, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """List a job's calls as the ledger holds them, with the void, refused and open ones, and who decided what."""
    with errors_as_exits(as_json=as_json):
        found = _ledger_of(target, data)
        if as_json:
            print_json(found)
        else:
            columns = ("call", "invocation", "token", "step", "tool", "status", "effect", "external id", "by", "at")
            table((*columns, "reason"), [_call_row(call) for call in found["calls"]])


def trace(
    target: Target,
    *,
    html: Annotated[Path | None, typer.Option(help="Write one page that needs no server and no network.")] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show a job's decisions, the graph of its steps, and in one ordered list what became of each."""
    with errors_as_exits(as_json=as_json):
        found = _trace_of(target, data)
        if html is not None:
            _write_page(found, html)
        if as_json:
            print_json(found)
        elif html is None:
            _print_trace(found)


def why(
    target: Annotated[
        str | None, typer.Argument(metavar="[ID|FILE]", help="Look only into this job, bundle or stream.")
    ] = None,
    *,
    external_id: Annotated[str | None, typer.Option(help="What the external system calls it, such as re_123.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only effects of this tool.")] = None,
    since: Annotated[str | None, typer.Option(help="Only effects from this time on, by their writers' clocks.")] = None,
    where: Annotated[list[str] | None, typer.Option(help="Only where this holds (CEL): args.amount > 100.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 20,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Go back from what the external system knows to its reasons, up to the goal; 1 if nothing is found."""
    with errors_as_exits(as_json=as_json):
        if not (target or external_id or tool or since or where):
            rule = "say a job, or at least one of --external-id, --tool, --since, --where"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--external-id")
        found = (
            _why_in_file(target, data, _wanted(external_id, tool, since, where or ()))
            if target is not None and is_file(target)
            else _why(data, target, {"external_id": external_id, "tool": tool, "since": since}, where or (), limit)
        )[:limit]
        for one in found:
            if as_json:
                print_json_line(one)
            else:
                out.print(_tree(one))
    end(Exit.HOLDS if found else Exit.FAILED)


def _replay_code(target: str, code: str, node: str | None, data: Path, *, as_json: bool) -> None:
    with errors_as_exits(as_json=as_json):
        found = _code_over(target, code, node, data)
        if as_json:
            print_json({**asdict(found), "diverges": found.diverges, "first": found.first})
        else:
            fields(
                [
                    ("node", found.node_id),
                    ("calls", found.asked),
                    ("not recorded", len(found.new)),
                    ("new reads", len(found.reads)),
                    ("end", found.end),
                    ("parts ways", found.first),
                ]
            )
    end(Exit.FAILED if found.diverges else Exit.HOLDS)


def _code_over(target: str, code: str, node: str | None, data: Path) -> BodyReplay:
    if not is_file(target):
        raise CommandError(Exit.BAD_INPUT, "bad_usage", "code is run over an exported bundle or stream", field="--code")
    records, large = read_job(Path(target), data)
    try:
        (workflow,) = workflows_in(code, Path.cwd())
        return replay_body(workflow, logged_events(records), large, node)
    except ToolboxError as error:
        raise CommandError(Exit.BAD_INPUT, "bad_code", str(error), field="--code") from None
    except ValueError:
        rule = f"{code}: names no workflow, or several: write MODULE:FUNCTION"
        raise CommandError(Exit.BAD_INPUT, "bad_code", rule, field="--code") from None
    except NoWorkflow as error:
        raise CommandError(Exit.BAD_INPUT, "bad_node", str(error), field="--node") from None


def _replay_of(target: str, to: str | None, data: Path, *, steps: bool) -> dict[str, Any]:
    if not is_file(target):
        with of_job(target, data) as (client, job):
            return client.replay(job, to=to, steps=steps)
    try:
        records, large = read_job(Path(target), data)
        found, taken = replayed(records, to, large)
    except UnknownPoint as error:
        raise CommandError(Exit.BAD_INPUT, error.code, str(error), field="--to") from None
    report = found.report()
    if not report:
        raise _unborn(target)
    return {**report, **({"steps": [step.to_json() for step in taken]} if steps else {})}


def _history(target: str, data: Path) -> JobHistory:
    history = job_history(*read_job(Path(target), data))
    if history.job is None:
        raise _unborn(target)
    return history


def _unborn(target: str) -> CommandError:
    return CommandError(Exit.BAD_INPUT, "malformed_stream", f"{target}: no job is created in it", file=target)


def _ledger_of(target: str, data: Path) -> dict[str, Any]:
    if is_file(target):
        records, _ = read_job(Path(target), data)
        found = ledger_of(logged_events(records))
        if not found:
            raise _unborn(target)
        return found
    with of_job(target, data) as (client, job):
        return client.ledger(job)


def _trace_of(target: str, data: Path) -> dict[str, Any]:
    if is_file(target):
        return trace_of(_history(target, data))
    with of_job(target, data) as (client, job):
        return client.trace(job)


def _write_page(found: Mapping[str, Any], path: Path) -> None:
    # imported only where a page is made
    from aetheris.cli.page import page_of  # noqa: PLC0415

    try:
        path.write_text(page_of(found), encoding="utf-8")
    except OSError as error:
        rule = error.strerror or "cannot be written"
        raise CommandError(Exit.BAD_INPUT, "unwritable_file", f"{path}: {rule}", file=str(path)) from None
    progress("trace", f"{path}")


def _wanted(external_id: str | None, tool: str | None, since: str | None, where: Sequence[str]) -> EffectFilter:
    try:
        return EffectFilter.of(external_id, tool, since, where)
    except BadCondition as error:
        raise CommandError(Exit.BAD_INPUT, error.code, f"--{error}", field=f"--{error.field}") from None


def _why_in_file(target: str, data: Path, wanted: EffectFilter) -> list[dict[str, Any]]:
    history = _history(target, data)
    return [origin(history, row) for row in reversed(wanted.among(history))]


def _why(
    data: Path, job: str | None, asked: Mapping[str, str | None], where: Sequence[str], limit: int
) -> list[dict[str, Any]]:
    """In one job, or in all of the tenant's."""
    if job is not None:
        with of_job(job, data) as (client, job_id):
            return _pages(client, {**asked, "job_id": job_id}, where, limit)
    with connected(data) as client:
        return _pages(client, asked, where, limit)


def _pages(client: Client, asked: Mapping[str, str | None], where: Sequence[str], limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while len(found) < limit:
        page = client.why(**asked, where=where, cursor=cursor)
        found.extend(page["effects"])
        cursor = page["cursor"]
        if cursor is None:
            break
    return found


def _print_replay(found: Mapping[str, Any]) -> None:
    for step in found.get("steps", ()):
        _print_step(step)
    state, at = found["state"], found["at"]
    injected = ", ".join(f"{count} {kind}" for kind, count in found["injected"].items())
    rows = (("job", found["job_id"]), ("at", f"{at['seq']} {at['type']} {at['time']}"), ("status", state["status"]))
    fields((*rows, ("why", state.get("why")), ("revision", state["revision"]), ("injected", injected or "nothing")))
    if found["unchecked"]:
        fields((("not derived", f"{found['unchecked']} calls: a large result is not here"),))
    fields((("state hash", found["state_hash"]),))
    columns = ("step", "tool", "state", "result", "external id")
    names = ("node_id", "tool", "state", "result_type", "external_id")
    table(columns, [[step.get(name) for name in names] for step in state["steps"]])
    for one in found["differences"]:
        where = f"event {shown(one['event_id'])} at offset {one['offset']}"
        out.print(f"{'differs':<14} {shown(one['rule'])}: {where}: {shown(one['message'])}")
    out.print(Text("as recorded", "green") if found["ok"] else Text("not as recorded", "red"))


def _print_step(step: Mapping[str, Any]) -> None:
    changes = "; ".join(f"{name}: {now}" for name, now in step["changes"].items())
    text = changes if step["counts"] else "(void)"
    out.print(f"{step['seq'] or '':>5} {step['offset']:>8}  {shown(step['type']):<26} {shown(text)}".rstrip())


def _effect_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    by_way_of = row["via"] if row["stands"] else f"{row['via']}, a second effect"
    if "unanswered" in row:
        by_way_of += f"; asked since {row['unanswered']['since']} whether it stands: no answer"
    names = ("seq", "command_id", "kind")
    tool = row["tool_name"] if "model" not in row else row["model"]
    known_as = row.get("external_id") if "usage" not in row else _used(row["usage"])
    shown_so = (*(row.get(name) for name in names), tool, known_as, by_way_of)
    return (*shown_so, str(row["output_hash"])[:12], row["created_at"])


def _call_row(call: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("execution_id", "invocation_id", "token", "step_id", "tool_name", "status", "has_effect", "external_id")
    who = " ".join(dict.fromkeys(part for part in (call["decided_by"], call["via"], call["by"]) if part))
    return (*(call[name] for name in names), who, call["decided_at"], call["reason"])


def _used(usage: Mapping[str, Any]) -> str:
    """What an answer cost, where its provider says so."""
    tokens = f"{usage.get('input_tokens', 0)}+{usage.get('output_tokens', 0)} tokens"
    return tokens if "cost_usd" not in usage else f"{tokens}, {usage['cost_usd']:.4f} USD"


def _print_trace(found: Mapping[str, Any]) -> None:
    job = found["job"]
    traced = _traced_at(job["trace_id"])
    fields((("job", job["job_id"]), ("status", job["status"]), ("why", job.get("why")), ("traced as", traced)))
    out.print(_tree(found["decisions"], "leads_to"))
    arrows = [(edge["from"], edge["to"], edge["carries"]) for edge in found["graph"]["edges"]]
    table(("step", "tool", "state", "result", "external id"), [_graph_row(node) for node in found["graph"]["nodes"]])
    if arrows:
        table(("from", "to", "carries"), arrows)
    keys = [(step["node_id"], _traced_at(key["trace_id"])) for step in found["steps"] for key in step["keys"]]
    if keys:
        table(("step", "traced as"), keys)
    table(("seq", "at", "step", "what", "by"), [_entry_row(entry) for entry in found["execution_trace"]])


def _entry_row(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    metadata = entry["metadata"]
    return (*(entry[name] for name in ("seq", "time", "node_id", "action")), metadata.get("by", metadata.get("actor")))


def _traced_at(trace_id: str) -> str:
    """Where the tracing back end shows it, if AETHERIS_TRACE_URL says so; else its id."""
    return os.environ.get("AETHERIS_TRACE_URL", "{trace_id}").replace("{trace_id}", trace_id)


def _graph_row(node: Mapping[str, Any]) -> list[Any]:
    return [node.get(name) for name in ("node_id", "tool", "state", "result_type", "external_id")]


def _tree(tree: Mapping[str, Any], below: str = "because") -> Tree:
    """A tree as a terminal shows it; what came from outside can't steer it."""
    root = Tree(_label(tree), guide_style="dim")
    for inner in tree[below]:
        root.children.append(_tree(inner, below))
    return root


def _label(tree: Mapping[str, Any]) -> Text:
    at, facts = tree.get("at"), tree.get("facts", {})
    label = Text.assemble((f"{shown(tree['what'])} ", "bold"), shown(tree["title"]))
    if at is not None:
        label.append(f"  #{at['seq']} {shown(at['time'])}", "dim")
    for name in (
        "job_id",
        "args",
        "rule",
        "comment",
        "external_key",
        "plan_hash",
        "model",
        "reasoning_summary",
        "agent",
    ):
        if name in facts:
            label.append(f"\n{name}: {shown(facts[name])}", "dim")
    return label
