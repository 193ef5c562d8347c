"""`aetheris policy test`: what a file of rules would have said of calls that were decided on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import local, source
from aetheris.cli.console import Json, errors_as_exits, print_json, progress, table
from aetheris.cli.fromlog import everything
from aetheris.cli.gateway import connected
from aetheris.cli.large import LazyResults
from aetheris.cli.reachable_log import reachable
from aetheris.cli.since import since_time
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.process import policy_file
from aetheris.views.policy_trial import Trial

policy = typer.Typer(
    name="policy", no_args_is_help=True, help="Which policy decides; another; what one would have decided before."
)


@policy.callback()
def policy_commands() -> None:
    """Which policy decides, and what one would have decided."""


@policy.command("test")
def try_on_the_past(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy, as TOML.")],
    evidence: Annotated[
        list[Path] | None, typer.Argument(metavar="[EVIDENCE]...", help="Exported bundles or streams, not the log.")
    ] = None,
    *,
    since: Annotated[
        str | None, typer.Option(help="Only what was decided from then on, by the ledger's clock: such as 30d ago.")
    ] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show which past calls a policy would have decided otherwise: calls no tool, and reads nothing but the log."""
    with errors_as_exits(as_json=as_json):
        trial = Trial(policy_file.load(file), since_time(since))
        if evidence:
            for path in evidence:
                trial.judge(*source.read_job(path, data))
        else:
            asyncio.run(_judge_log(trial, local.kafka(data), data))
        _print(trial, as_json=as_json)


@policy.command("show")
def show(*, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Which policy decides: its number, who activated it and when, its text, and those before it."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.policy()
        if as_json:
            print_json(found)
            return
        active = found.get("active")
        if active is None:
            typer.echo("none was activated: the policy that the ledgers are configured with decides")
            return
        columns = ("activation", "by", "at", "reason", "policy")
        rows = [active, *found["history"]]
        table(columns, [[one["number"], one["by"], one["at"], one.get("reason"), one["policy_hash"]] for one in rows])
        typer.echo(f"\n{active['policy']}")


@policy.command("activate")
def activate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy, as TOML.")],
    *,
    reason: Annotated[str | None, typer.Option(help="Why; it is recorded with your name.")] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Let a policy decide in every partition, without a restart; one that is broken changes nothing."""
    with errors_as_exits(as_json=as_json):
        policy_file.load(file)
        with connected(data, who) as client:
            answer = client.activate_policy(file.read_text(), reason=reason)
        if as_json:
            print_json(answer)
            return
        share = f"{answer['answered']} of {answer['partitions']} partitions"
        if answer["answered"] < answer["partitions"]:
            typer.echo(f"activation {answer['number']}: taken; {share} have answered yet")
        else:
            typer.echo(f"activation {answer['number']}: decides, in {share}")


async def _judge_log(trial: Trial, bootstrap: str, data: Path) -> None:
    """One partition after another, each job when the log has no more of it."""
    results = LazyResults(data)
    async with reachable(bootstrap, within_s=None) as log:
        for number in range(await log.partitions(Topic.JOBS_EVENTS)):
            async for records in _jobs(everything(log, Topic.JOBS_EVENTS, number)):
                trial.judge(records, results)


async def _jobs(records: AsyncIterator[Record]) -> AsyncIterator[list[Record]]:
    """The records of each job; it is complete with its seal, as far as its calls are concerned."""
    held: dict[bytes, list[Record]] = {}
    sealed: set[bytes] = set()
    async for record in records:
        key = record.key or b""
        if key in sealed:
            continue
        held.setdefault(key, []).append(record)
        if record.header("ce_type") == b"io.aetheris.job_sealed.v1":
            sealed.add(key)
            yield held.pop(key)
    for rest in held.values():
        yield rest


def _print(trial: Trial, *, as_json: bool) -> None:
    found = trial.differences
    if as_json:
        rows: list[dict[str, Any]] = [one.to_json() for one in found]
        print_json({"calls": trial.calls, "unjudged": trial.unjudged, "differ": len(found), "differences": rows})
        return
    shown = [(f"{one.job_id}/{one.node_id}", one.tool, one.time, *_sides(one)) for one in found]
    table(("call", "tool", "at", "was", "by", "would be", "by"), shown)
    progress(
        "judged", f"{trial.calls} calls: {len(found)} would be decided otherwise, {trial.unjudged} can't be judged"
    )


def _sides(one: Any) -> tuple[str, str, str, str]:
    return one.then, one.then_by, one.now, one.now_by
