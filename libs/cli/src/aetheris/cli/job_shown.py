"""A job as `aetheris job` shows it: where it stands, which jobs it belongs to, and its steps."""

import json
from collections.abc import Iterator
from typing import Any

from aetheris.cli.console import fields, print_json, table
from aetheris.cli.labels import labels_shown
from aetheris.sdk.client import Job, StepView

MOST_CHILDREN = 50
"""Jobs that a job has begun that are printed; with --json, all."""


def print_job(found: Job, *, as_json: bool) -> None:
    """For people, or as JSON."""
    if as_json:
        print_json(found.model_dump(mode="json", exclude_none=True))
        return
    result = json.dumps(found.result, ensure_ascii=False) if found.result is not None else ""
    rows = (("job", found.job_id), ("goal", found.goal), ("labels", labels_shown(found)), ("status", found.status))
    fields((*rows, ("why", found.why), ("created", found.created_at), ("by", found.submitted_by), ("result", result)))
    fields(tuple(_related(found)))
    for step in found.steps:
        if step.state == "waiting" and step.attempts and step.request_id is None:  # parked, and asks nobody
            how = "--happened|--not-executed|--retry --evidence … [--as NAME]"
            fields((("settle it", f"aetheris resolve {found.job_id} --node {step.node_id} {how}"),))
    if found.steps:
        columns = ("step", "tool", "state", "tries", "effect", "external id", "reason")
        table(columns, [_row(step) for step in found.steps])


def _related(found: Job) -> Iterator[tuple[str, str]]:
    """The job that began it, those that it has begun, and the one that goes on in its place."""
    if found.begun is not None:
        kind = "in place of" if found.begun.replaces else "begun by"
        yield kind, f"job {found.begun.job_id}, by its call {found.begun.node_id}"
    for child in found.children[:MOST_CHILDREN]:
        how = "on its own" if child.detached else child.status or "not ended, as far as is told here"
        following = f", goes on as {child.continued_as}" if child.continued_as is not None else ""
        yield "has begun", f"job {child.job_id} ({child.workflow}): {how}{following}"
    if len(found.children) > MOST_CHILDREN:
        yield "has begun", f"{len(found.children) - MOST_CHILDREN} more: --json shows them"
    if found.continued_as is not None:
        yield "goes on as", f"job {found.continued_as}"


def _row(step: StepView) -> tuple[Any, ...]:
    state = step.result_type if step.result_type == "compensated" else step.state
    return (step.node_id, step.tool, state, step.attempts, step.effect, step.external_id, step.reason)
