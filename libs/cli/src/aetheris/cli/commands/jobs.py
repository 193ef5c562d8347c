"""`aetheris submit | run | jobs | job | events | contracts | signal | resolve | tools | models`, by HTTP."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import local, receipts
from aetheris.cli.commands.approvals import BreakGlass
from aetheris.cli.console import (
    CommandError,
    Exit,
    Json,
    end,
    err,
    errors_as_exits,
    out,
    print_json,
    print_json_line,
    progress,
    shown,
    table,
)
from aetheris.cli.gateway import connected
from aetheris.cli.inputs import json_object, json_value, read_bytes, read_object
from aetheris.cli.job_ids import of_job
from aetheris.cli.job_shown import print_job
from aetheris.cli.labels import Label, labels_of
from aetheris.cli.steps import Steps
from aetheris.protocol.plan.graph import Confirmation, OnInDoubt
from aetheris.protocol.plan.prompts import Planning
from aetheris.sdk.client import (
    Client,
    Commanded,
    Contract,
    Goal,
    Job,
    JobEvent,
    JobSummary,
    Level,
    Verdict,
    calls,
)
from aetheris.sdk.workflows.declaration import plan_of

INTERRUPTED = 130

Plan = Annotated[
    Path | None, typer.Argument(metavar="[PLAN]", help="A JSON file with the plan; - reads standard input.")
]
GoalText = Annotated[str | None, typer.Option("--goal", help="Instead of a plan: what a model is to plan for.")]
Model = Annotated[str | None, typer.Option(help="With --goal: who plans; not needed where there is one only.")]
Tools = Annotated[
    list[str] | None, typer.Option("--tool", help="With --goal: a tool that the model may call, or a pattern; repeat.")
]
System = Annotated[str | None, typer.Option(help="With --goal: what the model is told about itself.")]
PlanningBy = Annotated[Planning | None, typer.Option(help="With --goal: turn by turn, or a whole plan at once.")]
LimitsOf = Annotated[
    list[str] | None, typer.Option("--limit", help="With --goal: turns=N, calls=N, tokens=N or cost_usd=X; repeat.")
]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="With --goal: of each answer.")]
Temperature = Annotated[
    float | None, typer.Option(min=0, max=2, help="With --goal: of each answer, as far as its provider takes it.")
]
Seed = Annotated[int | None, typer.Option(help="With --goal: by which its provider draws, as far as it does.")]
WorkflowName = Annotated[str | None, typer.Option("--workflow", help="Instead of a plan: the workflow that is to run.")]
WorkflowArgs = Annotated[str | None, typer.Option("--args", help="With --workflow: its arguments, a JSON object.")]
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or its beginning.")]
InDoubt = Annotated[
    OnInDoubt | None, typer.Option(help="What becomes of a call that stays in doubt; before what its tool declares.")
]
Confirming = Annotated[
    Confirmation | None,
    typer.Option(help="What becomes of the job where, as it goes on again, an effect it builds on can't be confirmed."),
]
Traced = Annotated[
    bool | None,
    typer.Option("--trace/--no-trace", help="Whether its calls are traced, whatever the share of jobs is that are."),
]
WaitS = Annotated[
    int | None, typer.Option("--wait", min=0, help="Seconds to wait for the job's end; 1 if it does not complete then.")
]
ReceiptFolder = Annotated[
    Path | None, typer.Option("--receipt", metavar="FOLDER", help="Keep the signed receipt there, for `seals audit`.")
]
IdempotencyKey = Annotated[str | None, typer.Option(help="The same key and plan name the same job.")]


def submit(
    plan: Plan = None,
    *,
    goal: GoalText = None,
    model: Model = None,
    tool: Tools = None,
    system: System = None,
    planning: PlanningBy = None,
    limit: LimitsOf = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    seed: Seed = None,
    workflow: WorkflowName = None,
    workflow_args: WorkflowArgs = None,
    label: Label = None,
    idempotency_key: IdempotencyKey = None,
    wait_s: WaitS = None,
    on_in_doubt: InDoubt = None,
    confirmation: Confirming = None,
    trace: Traced = None,
    receipts_to: ReceiptFolder = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Submit a plan, a goal or a workflow; print the job's id and status, with --wait those at its end."""
    with errors_as_exits(as_json=as_json):
        drawn = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        wanted = _workflow(workflow, workflow_args, plan, goal) or _plan_or_goal(
            plan, goal, model=model, tools=tool, system=system, planning=planning, limits=limit, drawn=drawn
        )
        with connected(data) as client:
            until_s = time.monotonic() + (wait_s or 0)
            options = _options(on_in_doubt, confirmation, trace=trace)
            labels = labels_of(label)
            submitted = client.submit(
                wanted, options=options, labels=labels, idempotency_key=idempotency_key, wait_s=wait_s
            )
            if receipts_to is not None:
                sent = calls.submit(wanted, None, None, options, None, labels=labels, wait_s=None)
                receipts.keep(submitted, receipts_to, sent.arguments()["content"])
            while wait_s is not None and not submitted.ended and (left_s := until_s - time.monotonic()) > 0:
                found = client.job(submitted.job_id, wait_s=math.ceil(left_s))
                submitted = submitted.model_copy(update={"status": found.status})
        if as_json:
            print_json(submitted.model_dump(mode="json"))
        else:
            typer.echo(f"{submitted.job_id} {submitted.status}")
    if wait_s is not None and submitted.status != "completed":
        end(Exit.FAILED)


def run(
    plan: Plan = None,
    *,
    goal: GoalText = None,
    model: Model = None,
    tool: Tools = None,
    system: System = None,
    planning: PlanningBy = None,
    limit: LimitsOf = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    seed: Seed = None,
    workflow: WorkflowName = None,
    workflow_args: WorkflowArgs = None,
    label: Label = None,
    idempotency_key: IdempotencyKey = None,
    on_in_doubt: InDoubt = None,
    confirmation: Confirming = None,
    trace: Traced = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Submit a plan, a goal or a workflow, and watch it; 0 if the job completed, 1 if it failed or was cancelled."""
    with errors_as_exits(as_json=as_json):
        drawn = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        wanted = _workflow(workflow, workflow_args, plan, goal) or _plan_or_goal(
            plan, goal, model=model, tools=tool, system=system, planning=planning, limits=limit, drawn=drawn
        )
        with connected(data) as client:
            job_id = client.submit(
                wanted,
                labels=labels_of(label),
                options=_options(on_in_doubt, confirmation, trace=trace),
                idempotency_key=idempotency_key,
            ).job_id
            progress("job", job_id)
            _watch(client, job_id)
            found = client.job(job_id)
    print_job(found, as_json=as_json)
    end(Exit.HOLDS if found.status == "completed" else Exit.FAILED)


def jobs(
    status: Annotated[str | None, typer.Option(help="Only jobs of this status.")] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME=VALUE", help="Only jobs with this label.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 50,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    with errors_as_exits(as_json=as_json):
        with connected(data) as client:
            found = _newest(client, status, label, limit)
        if as_json:
            print_json([one.model_dump(mode="json") for one in found])
        else:
            rows = [(one.job_id, _listed_status(one), one.created_at, one.submitted_by) for one in found]
            table(("job", "status", "created", "by"), rows)


def job(
    job_id: JobId,
    *,
    wait_s: Annotated[int, typer.Option("--wait", min=0, max=60, help="Seconds to wait for its end before.")] = 0,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show where a job stands; where it does not go on or has failed, why, and what to do."""
    with errors_as_exits(as_json=as_json):
        with of_job(job_id, data) as (client, job):
            found = client.job(job, wait_s=wait_s or None)
        print_job(found, as_json=as_json)


def events(
    job_id: JobId,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the job is sealed.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Only events with a higher number.")] = 0,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """List a job's events; with --follow, a line for each as it comes."""
    with errors_as_exits(as_json=as_json):
        with of_job(job_id, data) as (client, job):
            if follow:
                _interruptible(lambda: _follow_events(client, job, after, as_json=as_json))
                return
            found = client.events(job, after=after)
        if as_json:
            print_json([event.model_dump(mode="json") for event in found])
        else:
            for event in found:
                _print_event(event)


def contracts(
    job_id: JobId,
    *,
    level: Annotated[Level, typer.Option(help="How much to show of each.")] = "result",
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """List a job's execution contracts: what came of each call, and how."""
    with errors_as_exits(as_json=as_json):
        with of_job(job_id, data) as (client, job):
            found = client.contracts(job, level)
        if as_json:
            print_json([contract.model_dump(mode="json") for contract in found])
            return
        columns = ("contract", "step", "action", "state", "effect", "duplicate of", "error")
        table(columns, [_contract_row(contract) for contract in found])
        for contract in found:
            for moved in contract.transitions:
                way = f"{moved['from']} → {moved['to']}  {moved['trigger']} ({moved['actor']})"
                out.print(shown(f"{contract.node_id}  {moved['timestamp']}  {way}"))


def signal(
    job_id: JobId,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key that a node of the job waits for.")],
    *,
    payload: Annotated[str | None, typer.Option(help="What came, as JSON; the node's result.")] = None,
    payload_file: Annotated[
        Path | None, typer.Option(help="A file with it, or - for standard input: nobody else sees it there.")
    ] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Tell a job what a node of it waits for; the same may be said again."""
    with errors_as_exits(as_json=as_json):
        if payload is not None and payload_file is not None:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "give either --payload or --payload-file")
        given = payload if payload_file is None else read_bytes(payload_file)
        name = "--payload" if payload_file is None else "--payload-file"
        value = None if given is None else json_value(given, name)
        with of_job(job_id, data, who) as (client, job):
            answer = client.signal(job, key, value)
        print_answer(answer, as_json=as_json)


def resolve(
    job_id: JobId,
    *,
    node: Annotated[str, typer.Option(help="The parked step's node.")],
    evidence: Annotated[str, typer.Option(help="How you know; it is recorded with your name.")],
    happened: Annotated[bool, typer.Option("--happened", help="It took effect.")] = False,
    not_executed: Annotated[bool, typer.Option("--not-executed", help="It took no effect and never will.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Call it again, though it may act twice.")] = False,
    result: Annotated[str | None, typer.Option(help="With --happened: the call's result, as JSON.")] = None,
    accept_code: Annotated[
        str | None,
        typer.Option(help="With --retry, of a workflow: the hash of code that may go on without what was done."),
    ] = None,
    break_glass: BreakGlass = False,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Say what became of a parked step; who submitted the job may not, unless the policy's rule lets him."""
    with errors_as_exits(as_json=as_json):
        verdict = _verdict(happened=happened, not_executed=not_executed, retry=retry)
        if result is not None and verdict != "happened":
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--result: only with --happened", field="--result")
        if accept_code is not None and verdict != "retry":
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--accept-code: only with --retry", field="--accept-code")
        value = None if result is None else json_value(result, "--result")
        with of_job(job_id, data, who) as (client, job):
            step = step_of(client.job(job), node)
            answer = client.resolve(
                job,
                step,
                verdict,
                evidence=evidence,
                result=value,
                break_glass=break_glass,
                accept_code=accept_code,
            )
        print_answer(answer, as_json=as_json)


def models(data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """List the models that goals may name."""
    with errors_as_exits(as_json=as_json):
        with connected(data) as client:
            found = client.models()
        if as_json:
            print_json(found)
        else:
            columns = ("name", "provider_model", "priced")
            table(columns, [[one.get(column) for column in columns] for one in found])


def _workflow(name: str | None, args: str | None, plan: Path | None, goal: str | None) -> dict[str, Any] | None:
    """The plan of a job that runs a workflow, if one is wanted."""
    if name is not None and (plan is not None or goal is not None):
        raise CommandError(Exit.BAD_INPUT, "bad_usage", "give PLAN, --goal or --workflow: one", field="--workflow")
    if name is None and args is not None:
        raise CommandError(Exit.BAD_INPUT, "bad_usage", "--args: only with --workflow", field="--args")
    return plan_of(name, json_object(args or "{}", "--args")) if name is not None else None


def _plan_or_goal(
    plan: Path | None,
    goal: str | None,
    *,
    model: str | None,
    tools: list[str] | None,
    system: str | None,
    planning: Planning | None,
    limits: list[str] | None,
    drawn: Mapping[str, Any],
) -> dict[str, Any] | Goal:
    if (plan is None) is (goal is None):
        raise CommandError(Exit.BAD_INPUT, "bad_usage", "give PLAN, --goal or --workflow", field="--goal")
    if goal is not None:
        numbers = dict(_limit(text) for text in limits or ())
        asked = Goal(goal=goal, tools=tools or (), model=model, system=system, planning=planning, limits=numbers)
        return replace(asked, **drawn)
    for name, value in (
        ("--model", model),
        ("--tool", tools),
        ("--system", system),
        ("--planning", planning),
        ("--limit", limits),
        *((f"--{option.replace('_', '-')}", value) for option, value in drawn.items()),
    ):
        if value not in (None, []):
            raise CommandError(Exit.BAD_INPUT, "bad_usage", f"{name}: only with --goal", field=name)
    return read_object(plan or Path("-"))


def _limit(text: str) -> tuple[str, int | float]:
    name, _, number = text.partition("=")
    value = json_value(number, f"--limit {name}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CommandError(Exit.BAD_INPUT, "bad_usage", f"--limit {name}: write NAME=NUMBER", field="--limit")
    return name, value


def _options(on_in_doubt: OnInDoubt | None, confirmation: Confirmation | None, *, trace: bool | None) -> dict[str, Any]:
    wanted = {"on_in_doubt": on_in_doubt, "confirmation": confirmation, "trace": trace}
    return {name: value for name, value in wanted.items() if value is not None}


def _listed_status(job: JobSummary) -> str:
    """The status; of one that is paused or frozen by whom, and why."""
    if job.frozen is not None:
        return f"{job.status} by {job.frozen.by}" + (f": {job.frozen.reason}" if job.frozen.reason else "")
    if job.paused is None:
        return job.status
    return f"{job.status} by {job.paused.by}" + (f": {job.paused.reason}" if job.paused.reason else "")


def _newest(client: Client, status: str | None, label: str | None, limit: int) -> list[JobSummary]:
    found: list[JobSummary] = []
    cursor: str | None = None
    while len(found) < limit:
        page = client.jobs(status=status, label=label, cursor=cursor, limit=min(200, limit - len(found)))
        found.extend(page.jobs)
        cursor = page.cursor
        if cursor is None:
            break
    return found


def _watch(client: Client, job_id: str) -> None:
    """A line for each step, until the job ends; an interrupt ends the watching only."""
    steps = Steps()

    def watch() -> None:
        for event in client.follow(job_id):
            line = steps.line(event)
            if line is not None:
                err.print(shown(line))

    _interruptible(watch, f"the job goes on: aetheris job {job_id}")


def _interruptible(work: Callable[[], None], message: str = "") -> None:
    try:
        work()
    except KeyboardInterrupt:
        if message:
            err.print(message)
        raise typer.Exit(INTERRUPTED) from None


def _follow_events(client: Client, job_id: str, after: int, *, as_json: bool) -> None:
    for event in client.follow(job_id, after=after, to_seal=True):
        if as_json:
            print_json_line(event.model_dump(mode="json"))
        else:
            _print_event(event)


def _print_event(event: JobEvent) -> None:
    about = f"{shown(event.subject)}  (void)" if event.void else shown(event.subject)
    out.print(f"{event.seq:>5} {event.offset:>8}  {event.time:<26} {shown(event.type):<26} {about}")


def _contract_row(contract: Contract) -> tuple[Any, ...]:
    duplicate = contract.duplicate_of
    subject = f"{duplicate['job_id']}/{duplicate['node_id']}" if duplicate is not None else None
    named = (contract.execution_id, contract.node_id, contract.action_type, contract.status)
    return (*named, contract.has_effect, subject, contract.error_message)


def print_answer(answer: Commanded, *, as_json: bool) -> None:
    """The event that answers a command, if the log has it yet."""
    if as_json:
        print_json(answer.model_dump(mode="json"))
    elif answer.event is None:
        typer.echo("taken; the log has not answered yet")
    else:
        typer.echo(shown(answer.event))
        if answer.votes is not None:
            typer.echo(
                f"{len(answer.votes.given)} of {answer.votes.needed} say so: {shown(', '.join(answer.votes.given))}"
            )


def _verdict(*, happened: bool, not_executed: bool, retry: bool) -> Verdict:
    if happened + not_executed + retry != 1:
        rule = "say exactly one of --happened, --not-executed, --retry"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--happened")
    if happened:
        return "happened"
    return "not_executed" if not_executed else "retry"


def step_of(found: Job, node: str) -> str:
    """The execution id of a job's step.

    Raises:
        CommandError: the job has no such node, or nothing was ever asked of it.
    """
    for step in found.steps:
        if step.node_id == node and step.execution_id is not None:
            return step.execution_id
    known = any(step.node_id == node for step in found.steps)
    reason = "it has not started" if known else "the job has no such node"
    raise CommandError(Exit.BAD_INPUT, "unknown_node", f"--node {node}: {reason}", field="--node")
