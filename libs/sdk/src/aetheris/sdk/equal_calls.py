"""A model's equal call: the one that runs is joined, the one that is done gives its result (docs/agents.md).

No position enters the name of a call: the first one's follows from what is called, and every later one's from the job
that it comes after. So a run that starts anew finds what it did, in whatever order it asks.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import job_id_of
from aetheris.protocol.planning.personal_fields import PERSONAL, PersonalRefused, personal_fields
from aetheris.sdk.client import AsyncClient, Conflict, Job, ResourceNotFound, StepView, Submitted

MOST_TRIES = 10
"""Of an equal call that surely fails each time."""
MOST_OCCURRENCES = 100
"""Of an equal call that is repeated on purpose."""

Submit = Callable[[str, int], Awaitable[Submitted]]
"""Submits the call under an Idempotency-Key and an occurrence."""


class PersonalTool(ValueError):
    """A tool with personal arguments, which no model calls: the name of its job would be a hash of their values.

    That name is in the log, so whoever reads it could try values, also of who is erased (docs/hidden-values.md).
    """

    code = "personal_not_served"


class NoSuchCall(ValueError):
    """What is to be repeated is no call with these arguments that has succeeded."""


@dataclass(frozen=True, slots=True)
class EqualCallKey:
    """Where an equal call is submitted: its Idempotency-Key, and which occurrence of its content it is."""

    key: str
    occurrence: int = 1

    def again(self, job_id: str) -> "EqualCallKey":
        """Behind a job that surely took no effect, or that only read."""
        return EqualCallKey(digest([self.key, "again", job_id]), self.occurrence)

    def repeat(self, job_id: str) -> "EqualCallKey":
        """Behind a job that succeeded, because somebody means it twice."""
        return EqualCallKey(digest([self.key, "repeat", job_id]), self.occurrence + 1)


@dataclass(frozen=True, slots=True)
class StandingJob:
    """The job that stands for a call; `earlier` where it had ended before it was asked for."""

    job_id: str
    status: str
    place: EqualCallKey
    earlier: Job | None = None


def check_callable(name: str, schema: Mapping[str, Any]) -> None:
    """Whether a model may be given a tool.

    Raises:
        PersonalTool: it has personal arguments, or marks that nobody understands.
    """
    try:
        is_personal = bool(personal_fields(schema))
    except PersonalRefused:
        is_personal = True
    if is_personal:
        raise PersonalTool(f"{name}: {PERSONAL} isn't served for tools that a model calls: leave it out of them")


async def found(submit: Submit, client: AsyncClient, place: EqualCallKey) -> StandingJob:
    """The job of a call: the one that stands for it, else a new one.

    Raises:
        ApiError.
    """
    tries = 1
    while (submitted := await _submitted(submit, client, place)).ended:
        job = await client.job(submitted.job_id)
        if tries == MOST_TRIES or not took_nothing(job):
            return StandingJob(job.job_id, job.status, place, job)
        place, tries = place.again(job.job_id), tries + 1
    return StandingJob(submitted.job_id, submitted.status, place)


async def place_of_repeat(client: AsyncClient, first: EqualCallKey, repeat_of: str) -> EqualCallKey:
    """Where the repeat of a call is submitted: of one that succeeded, and is an equal one of this run.

    Raises:
        NoSuchCall: it is none.
        ApiError.
    """
    try:
        tenant = (await client.job(repeat_of)).tenant
        place = first
        while (job := await client.job(job_id_of(tenant, place.key))).job_id != repeat_of:
            place = _behind(place, job)
    except ResourceNotFound:
        raise NoSuchCall from None
    if job.status != "completed" or place.occurrence == MOST_OCCURRENCES:
        raise NoSuchCall
    return place.repeat(repeat_of)


def took_nothing(job: Job) -> bool:
    """Whether an ended job surely left nothing behind, or a human found that it did not."""
    return job.ended and job.status != "completed" and all(_took_nothing(job, step) for step in job.steps)


def is_unknown(job: Job) -> bool:
    """Whether a human must say what became of a job that has ended."""
    return any(step.effect == "possible" and not _is_denied(step) for step in job.steps)


def meant(args: Mapping[str, Any], schema: Mapping[str, Any], volatile: Collection[str] = ()) -> dict[str, Any]:
    """What a call means: its arguments without volatile ones and without what the tool's schema says by default."""
    return {name: value for name, value in _without_defaults(args, schema).items() if name not in volatile}


def _behind(place: EqualCallKey, job: Job) -> EqualCallKey:
    if job.status == "completed":
        return place.repeat(job.job_id)
    if took_nothing(job):
        return place.again(job.job_id)
    raise NoSuchCall


async def _submitted(submit: Submit, client: AsyncClient, place: EqualCallKey) -> Submitted:
    """The submission; a job that was asked for in other words that mean the same is that job."""
    try:
        return await submit(place.key, place.occurrence)
    except Conflict as standing:
        job_id = standing.details.get("job_id")
        if standing.code != "idempotency_conflict" or not isinstance(job_id, str):
            raise
        job = await client.job(job_id)
        return Submitted(job_id=job_id, status=job.status)


def _took_nothing(job: Job, step: StepView) -> bool:
    return step.effect in (None, "none") or step.node_id in job.compensated or _is_denied(step)


def _is_denied(step: StepView) -> bool:
    """A human resolved it: not executed."""
    return step.effect == "possible" and step.state == "failed" and step.via == "human"


def _without_defaults(args: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Said or not, a default is the same; that one was added to the schema later makes no other call of an old one."""
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    kept: dict[str, Any] = {}
    for name, value in args.items():
        inner = properties.get(name)
        if not isinstance(inner, Mapping):
            kept[name] = value
        elif "default" not in inner or digest(inner["default"]) != digest(value):
            held = cast("Mapping[str, Any]", inner)
            kept[name] = _without_defaults(cast("dict[str, Any]", value), held) if isinstance(value, dict) else value
    return kept
