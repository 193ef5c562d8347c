"""Which reports of tries are theirs: what a try says of itself counts with its word only (docs/guarantees.md)."""

from collections.abc import Mapping

from aetheris.protocol.base.words import TryWord, is_word_of
from aetheris.protocol.base.writers import rule_of
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome, Via

_ENDS: Mapping[tuple[Via, Outcome], TryWord | None] = {
    (via, outcome): rule.word
    for via in Via
    for outcome in Outcome
    if (rule := rule_of(ev.ToolInvocationFinished.event_type, via=via, outcome=outcome)) is not None
}
"""Who may say which end; the word that proves it, or None where its writer needs none."""


def is_proved_end(e: ev.ToolInvocationFinished) -> bool:
    """Whether who says it may, and where that is the try itself, has its word."""
    said = (e.via, e.outcome)
    if said not in _ENDS:
        return False
    word = _ENDS[said]
    return word is None or is_word_of(e.invocation_id, word, e.word)


def is_proved_doubt(e: ev.InvocationInDoubt) -> bool:
    """Whether it has the word of the try that it names, or claims none: then it is the ledger's own."""
    if not e.returned and e.word is None:
        return True
    return is_word_of(e.invocation_id, TryWord.NO_MORE if e.returned else TryWord.IN_DOUBT, e.word)
