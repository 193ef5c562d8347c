"""A job that continues another: what it says of that one, held against that one's sealed stream (docs/continue.md)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.proofs.canonical import hash_or_empty
from aetheris.proofs.compensation import succeeded
from aetheris.proofs.execution import LoadBlob, UnreadableResult, read_result
from aetheris.proofs.findings import ProofReport
from aetheris.proofs.gate import entitled, several
from aetheris.proofs.history import PERMANENT
from aetheris.proofs.phases import Settlement
from aetheris.proofs.records import Body, Fact, Violation, violation
from aetheris.proofs.validity import Validity

MAX_CONTINUED = 16
"""How many jobs, each continuing the next, stand behind one at most."""

_SEAL = ("event_count", "root", "outcome_hash", "key_id")
_WHAT = (
    "idempotency_key",
    "invocation_id",
    "tool_name",
    "args_hash",
    "result_hash",
    "result_ref",
    "external_id",
    "content_key",
    "occurrence",
)


_DEFAULT = {"occurrence": 1}


@dataclass(frozen=True, slots=True)
class Link:
    """A job of a chain, judged by itself."""

    job_id: str
    report: ProofReport
    validity: Validity
    load_blob: LoadBlob | None = None

    @property
    def recorded(self) -> Body:
        """What it says of the job that it continues; empty where it continues none."""
        created = self.validity.history.created
        return _mapping(created.body.get("continues")) if created is not None else {}

    @property
    def continues(self) -> str:
        """The job that it continues; "" where there is none."""
        return str(self.recorded.get("job_id")) if self.recorded else ""


@dataclass(frozen=True, slots=True)
class ContinuedStep:
    """What a node of an ended job came to; `undoes`: it is a compensation.

    `doubt`: the last try of a call that may have taken effect; `partial`: it has, and not as a whole.
    """

    settled: Fact | None
    start: Fact | None
    irreversible: bool
    undoes: bool
    undone: bool
    doubt: Fact | None
    partial: bool

    @property
    def unsure(self) -> bool:
        """Nobody knows from that job alone whether it took effect, or all of it."""
        return self.doubt is not None

    @property
    def is_done(self) -> bool:
        """It succeeded, whole, and stands."""
        return self.settled is not None and not (self.undoes or self.undone or self.unsure)

    def to_json(self) -> dict[str, Any]:
        """What an adoption says of it."""
        settled, start = self.settled, self.start
        body: Body = settled.body if settled is not None else {}
        fields: Body = start.body if start is not None else {}
        return {
            "idempotency_key": settled.key if settled is not None else None,
            "invocation_id": body.get("invocation_id"),
            "tool_name": fields.get("tool_name"),
            "args_hash": fields.get("args_hash"),
            "result_hash": body.get("output_hash"),
            "result_ref": body.get("result_ref"),
            "external_id": body.get("external_id"),
            "content_key": fields.get("content_key") if self.irreversible else None,
            "occurrence": fields.get("occurrence", 1) if self.irreversible else 1,
        }


def chain_violations(chain: Sequence[Link]) -> Iterator[tuple[str, Violation]]:
    """What is wrong between jobs that continue each other, the newest first: (the job that says it, what)."""
    for place, job in enumerate(chain):
        earlier = chain[place + 1] if place + 1 < len(chain) else None
        for found in _between(job, earlier, place):
            yield job.job_id, found


def steps(validity: Validity) -> dict[str, ContinuedStep]:
    """What the nodes of an ended job came to; of those with a body, the body's calls."""
    history = validity.history
    end = len(history.facts)
    revision = history.plans.in_force(end)
    undone = set(_texts(history.end.body.get("compensated"))) if history.end is not None else set[str]()
    plans = history.plans
    names = (name for name in plans.order(revision) if plans.node(name, revision).get("kind") != "workflow")
    return {name: _step(validity, name, is_undone=name in undone) for name in names}


def _between(job: Link, earlier: Link | None, place: int) -> Iterator[Violation]:
    created = job.validity.history.created
    if created is None or not (job.continues or earlier is not None):
        return
    if place >= MAX_CONTINUED:
        yield violation("continued_too_long", created, f"more than {MAX_CONTINUED} jobs continue each other")
    elif earlier is None:
        yield violation("continued_missing", created, f"job {job.continues}, which it continues, is not here")
    elif earlier.job_id != job.continues:
        yield violation("continued_other", created, f"what is here is job {earlier.job_id}, not what it continues")
    else:
        yield from _sealed(job, earlier, created)
        yield from _adopted(job, earlier, created)
        yield from _left(job, earlier, created)


def _sealed(job: Link, earlier: Link, created: Fact) -> Iterator[Violation]:
    """It is over, not completed, of one tenant, and its seal is the one named."""
    history, named = earlier.validity.history, _mapping(job.recorded.get("seal"))
    wrong = {broken.at for broken in earlier.report.violations}
    holding = [seal for seal in history.seals if seal.at not in wrong]
    if not earlier.report.seal.ok or not holding:
        yield violation("continued_not_sealed", created, f"job {earlier.job_id} has no seal that holds")
    elif not any(all(seal.body.get(name) == named.get(name) for name in _SEAL) for seal in holding):
        yield violation("continued_seal", created, f"the seal that it names is not that of job {earlier.job_id}")
    if history.end is None or history.end.type == "job_completed":
        yield violation("continued_not_failed", created, f"job {earlier.job_id} has not failed, nor was cancelled")
    if history.created is None or history.created.text("tenant") != created.text("tenant"):
        yield violation("continued_tenant", created, f"job {earlier.job_id} is another tenant's")


def _adopted(job: Link, earlier: Link, created: Fact) -> Iterator[Violation]:
    """Each adopted step is just what that job settled, or had adopted itself."""
    known = steps(earlier.validity)
    carried = {hash_or_empty(one) for one in _adoptions(earlier)}
    for one in _adoptions(job):
        node = str(one.get("node_id"))
        if one.get("job_id") != earlier.job_id:
            if hash_or_empty(one) not in carried:
                yield violation("adopted_unfounded", created, f"job {earlier.job_id} had not adopted {node} so")
        else:
            yield from _taken(known.get(node), _words(job).get(node), one, created)
    yield from _used(job, earlier, created, known)


def _taken(step: ContinuedStep | None, settlement: Body | None, one: Body, created: Fact) -> Iterator[Violation]:
    """An adoption against what the step came to, or what a person said of it."""
    node = one.get("node_id")
    if (
        step is not None
        and settlement is not None
        and settlement.get("verdict") == "happened"
        and _answers(step, settlement)
    ):
        if not all(
            one.get(name, _DEFAULT.get(name)) == reported for name, reported in _as_recorded(step, settlement).items()
        ):
            yield violation("adopted_differs", created, f"the call of {node} that is said to have happened was another")
    elif step is not None and step.unsure:
        yield violation("adopted_unsure", created, f"nobody knows what became of {node}")
    elif step is None or step.settled is None or step.undoes:
        yield violation("adopted_unsettled", created, f"{node} never succeeded")
    elif step.undone:
        yield violation("adopted_undone", created, f"{node} was undone")
    elif not all(_same(name, one, step.to_json()) for name in _WHAT):
        yield violation("adopted_differs", created, f"the call of {node} that succeeded was another")


def _same(name: str, one: Body, body: Body) -> bool:
    """A kind without a start has neither tool nor arguments to compare."""
    if body["tool_name"] is None and name in ("tool_name", "args_hash", "invocation_id"):
        return True
    given = one.get(name, _DEFAULT.get(name))
    return given == body[name] and hash_or_empty(given) == hash_or_empty(body[name])


def _left(job: Link, earlier: Link, created: Fact) -> Iterator[Violation]:
    """What was done is adopted, and not done again; what may have been done needs a human."""
    known = steps(earlier.validity)
    mine = {str(one.get("node_id")) for one in _adoptions(job) if one.get("job_id") == earlier.job_id}
    carried = {hash_or_empty(one) for one in _adoptions(job)}
    dropped = [name for name, step in known.items() if step.is_done and name not in mine]
    dropped += [str(one.get("node_id")) for one in _adoptions(earlier) if hash_or_empty(one) not in carried]
    for name in dropped:
        yield violation("adopted_missing", created, f"{name} was done, and is not adopted: it might be done again")
    words = _words(job)
    for name, step in known.items():
        if step.unsure and name not in mine and words.get(name, {}).get("verdict") != "not_executed":
            yield violation("continued_unsure", created, f"nobody has said what became of {name}")
    for name, settlement in words.items():
        yield from _recorded(earlier, known.get(name), settlement, created)
    yield from _again(job)


def _recorded(earlier: Link, step: ContinuedStep | None, settlement: Body, created: Fact) -> Iterator[Violation]:
    """A person's word is about the very call that nobody was sure of, and his to say: he submits the new job."""
    if step is None or step.doubt is None or not _answers(step, settlement):
        yield violation(
            "continued_word", created, f"nothing of {settlement.get('node_id')} was for a person to settle so"
        )
        return
    validity, doubt, at = earlier.validity, step.doubt, len(earlier.validity.history.facts)
    says = validity.named(doubt.key, at)
    yield from entitled(validity, says, created, created.text("submitted_by"))
    if several(says, created) is not None:
        yield violation(
            "votes_missing", created, f"one has said what became of {settlement.get('node_id')}: several must"
        )


def _answers(step: ContinuedStep, settlement: Body) -> bool:
    doubt = step.doubt
    if doubt is None or step.undoes or step.partial or settlement.get("verdict") not in ("happened", "not_executed"):
        return False
    return (settlement.get("idempotency_key"), settlement.get("invocation_id")) == (doubt.key, doubt.invocation_id)


def _as_recorded(step: ContinuedStep, settlement: Body) -> dict[str, Any]:
    """What an adoption says of a call that a person says happened."""
    doubt: Body = step.doubt.body if step.doubt is not None else {}
    return {
        "idempotency_key": doubt.get("idempotency_key"),
        "invocation_id": doubt.get("invocation_id"),
        "tool_name": doubt.get("tool_name"),
        "args_hash": doubt.get("args_hash"),
        "result_hash": hash_or_empty(settlement.get("result")),
        "result_ref": None,
        "external_id": None,
        "content_key": doubt.get("content_key") if step.irreversible else None,
        "occurrence": doubt.get("occurrence", 1) if step.irreversible else 1,
    }


def words_of(link: Link) -> list[dict[str, Any]]:
    """What a person said, in continuing a job, of its unsure steps: shown as his word, with his name."""
    created = link.validity.history.created
    by = created.text("submitted_by") if created is not None else ""
    return [
        {"job_id": link.job_id, "of": link.continues, "by": by}
        | {name: settlement.get(name) for name in ("node_id", "verdict", "evidence")}
        for settlement in _words(link).values()
    ]


def _words(link: Link) -> dict[str, Body]:
    return {str(one.get("node_id")): one for one in _mappings(link.recorded.get("settled"))}


def _again(job: Link) -> Iterator[Violation]:
    """An adopted step is no step of the new plan, nor does a call mean what an adopted one did."""
    history = job.validity.history
    names = {str(one.get("node_id")) for one in _adoptions(job)}
    means = {(one["content_key"], str(one.get("occurrence", 1))) for one in _adoptions(job) if one.get("content_key")}
    for start in history.starts:
        same = (start.text("content_key"), str(start.body.get("occurrence", 1))) in means
        again = start.node in names or (same and job.validity.planned(start).irreversible)
        if again and job.validity.is_valid(start):
            yield violation("adopted_again", start, f"{start.node} does again what an adopted step did")


def _used(job: Link, earlier: Link, created: Fact, known: Mapping[str, ContinuedStep]) -> Iterator[Violation]:
    """The values that it says stand for adopted results are those, to the byte of their canonical form."""
    plans = job.validity.history.plans
    yield from _given(job, created)
    for one in _mappings(job.recorded.get("uses")):
        node, pointer, target = (str(one.get(name)) for name in ("node_id", "at", "ref"))
        name, _, inner = target.partition("#")
        step = known.get(name)
        try:
            settlement = _words(job).get(name)
            given = read_result(step.settled, earlier.load_blob) if step is not None and step.settled else None
            result = given if settlement is None else settlement.get("result")
            same = hash_or_empty(at(result, inner)) == hash_or_empty(at(plans.node(node, 0), pointer)) != ""
        except (LookupError, ValueError, UnreadableResult):
            same = False
        if not same:
            yield violation("adopted_value", created, f"what {node} has of {name} is not what {name} gave")


def _given(job: Link, created: Fact) -> Iterator[Violation]:
    """A result that its references lead into is the one that is adopted under that name."""
    hashes = {f"{one.get('job_id')}/{one.get('node_id')}": one.get("result_hash") for one in _adoptions(job)}
    for one in _mappings(job.recorded.get("given")):
        name = str(one.get("name"))
        if hashes.get(name) != hash_or_empty(one.get("result")) or not hashes.get(name):
            yield violation("adopted_value", created, f"what is given as the result of {name} is another")


def at(value: Any, pointer: str) -> Any:
    """What a JSON Pointer (RFC 6901) names.

    Raises:
        LookupError, ValueError: nothing is there.
    """
    for raw in pointer.split("/")[1:]:
        name = raw.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else _mapping(value)[name]
    return cast("Any", value)


def _step(validity: Validity, name: str, *, is_undone: bool) -> ContinuedStep:
    history = validity.history
    end = len(history.facts)
    plans, revision = history.plans, history.plans.in_force(end)
    entry, tool = plans.node(name, revision), plans.tool_of(name, revision)
    irreversible = tool.get("irreversible") is True or entry.get("irreversible") is True
    harmless = entry.get("kind", "tool") != "tool" or tool.get("effect_class") == "pure"
    effect = succeeded(validity, name, end)
    settled = effect.fact if effect is not None else history.wait_end(name, end)
    start = None
    if effect is not None:
        start = next(one for one in validity.valid[effect.fact.key] if one.invocation_id == effect.fact.invocation_id)
    unsure = [key for key in validity.keys_of_node(name) if _is_unsure(validity, key)]
    doubt = validity.valid[unsure[0]][-1] if unsure and not harmless and not is_undone else None
    partial = settled is not None and settled.outcome == "compensatable_failure"
    undoes = bool(plans.compensates(name, revision))
    return ContinuedStep(settled, start, irreversible, undoes, is_undone, doubt, partial)


def _is_unsure(validity: Validity, key: str) -> bool:
    """Nobody knows whether it took effect, or only a part of it did."""
    settled = validity.final(key)
    if settled is None:
        return bool(validity.live(key, len(validity.history.facts)))
    if settled.succeeded:
        return settled.fact.outcome == "compensatable_failure"
    return not settled.sure and not _was_denied(settled)


def _was_denied(settled: Settlement) -> bool:
    """A person found that it was not executed; a cancel says no such thing."""
    fact = settled.fact
    return fact.outcome == PERMANENT and fact.text("via") == "human" and fact.text("error") != "cancelled"


def _adoptions(link: Link) -> list[Body]:
    return _mappings(link.recorded.get("adopted"))


def _mapping(value: object) -> Body:
    return cast("Body", value) if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Body]:
    return [_mapping(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [str(item) for item in cast("list[object]", value)] if isinstance(value, list) else []
