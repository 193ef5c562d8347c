"""Who may append whatever he can make, and has no try's words but those that lie in the log (docs/simulation.md).

What he writes here is what words are to stop: reports of tries. He claims what he has no word for, with none, with one
that is none, with another try's, or with what follows from those that he has read. What a service would have to sign he
leaves alone.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.words import TryWord
from aetheris.protocol.base.writers import KnownBy, rule_of
from aetheris.protocol.fold.state import IN_FLIGHT, JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.protocol.messages.events import Event
from aetheris.testkit.simulation.log import Entry
from aetheris.testkit.simulation.tape import Tape

Words = dict[TryWord, str]

_UNSEEN = len(TryWord)
_ENDS = tuple(
    (via, outcome, rule.word if rule is not None else None)
    for via in Via
    for outcome in (Outcome.RETRYABLE, Outcome.SUCCESS, Outcome.PERMANENT)
    if (rule := rule_of("tool_invocation_finished", via=via, outcome=outcome)) is None or rule.known_by is KnownBy.WORD
)
"""What he says of an end, and the word that it would take; None: nobody may."""


def forgeries(
    tape: Tape, jobs: Iterable[JobState], entries: Sequence[Entry]
) -> tuple[str, tuple[tuple[str, Event], ...]]:
    """(whose try it is, what he appends); nothing where there is no try to lie about."""
    keys = [
        (job, key, state)
        for job in jobs
        if job.terminal is None
        for key, state in job.keys.items()
        if state.invocations
    ]
    likely = [one for one in keys if one[2].status in IN_FLIGHT] or keys
    if not likely:
        return "", ()
    job, key, state = tape.pick(likely)
    tries = (*state.unresolved, *(() if state.current_invocation is None else (state.current_invocation,)))
    invocation_id = tape.pick(sorted(tries) or sorted(state.invocations))
    seen = _seen(invocation_id, entries)
    told: dict[str, Any] = {
        "job_id": job.job_id,
        "node_id": state.node_id,
        "idempotency_key": key,
        "invocation_id": invocation_id,
    }
    written = [_forgery(tape, told, seen) for _ in range(1 + tape.below(3))]
    return invocation_id, tuple((_id_of(tape, event), event) for event in written)


def _seen(invocation_id: str, entries: Sequence[Entry]) -> Words:
    """Of a try, the words that lie in the log, and all that follow from them."""
    seen: Words = {}
    for entry in entries:
        body = entry.body
        if getattr(body, "invocation_id", None) != invocation_id or getattr(body, "word", None) is None:
            continue
        for place, value in enumerate(_followers(body.word), start=1):
            if value == invocation_id:
                first = _UNSEEN - place
                seen |= dict(zip(list(TryWord)[first:], (body.word, *_followers(body.word)), strict=False))
    return seen


def _followers(word: str) -> list[str]:
    found: list[str] = []
    for _ in TryWord:
        word = sha256(b"nonce1\0" + bytes.fromhex(word)).hexdigest()
        found.append(word)
    return found


def _forgery(tape: Tape, told: dict[str, Any], seen: Words) -> Event:
    """`told`: which try of which call it is about."""
    invocation_id: str = told["invocation_id"]
    strongest = min(seen, default=_UNSEEN)
    if tape.chance(0.5):
        returned = not tape.chance(0.2)
        wanted = TryWord.NO_MORE if returned else TryWord.IN_DOUBT
        word = seen.get(wanted) or _wrong(tape, invocation_id, seen) or (None if returned else "0" * 64)
        return ev.InvocationInDoubt(**told, error_class="Forged", returned=returned, word=word)
    via, outcome, _ = tape.pick([one for one in _ENDS if one[2] is None or one[2] < strongest])
    word = _wrong(tape, invocation_id, seen)
    result = {"forged": True} if outcome.took_effect else None
    return ev.ToolInvocationFinished(**told, outcome=outcome, via=via, result=result, error="Forged", word=word)


def _wrong(tape: Tape, invocation_id: str, seen: Words) -> str | None:
    """No word at all, what is none, or the try's own for something else."""
    return tape.pick((None, *seen.values(), *seen.values(), "0" * 64, invocation_id))


def _id_of(tape: Tape, event: Event) -> str:
    """Now and then that of the report which the try itself may yet write."""
    if isinstance(event, ev.ToolInvocationFinished) and tape.chance(0.5):
        return event_id(event.job_id, event.event_type, event.invocation_id, event.via, event.outcome)
    return f"forged-{tape.draw()}"
