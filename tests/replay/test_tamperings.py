"""A corpus of tamperings: each is refused by the library and by verify.py, by the same rules of the same events."""

import pytest

from tests.testkit import (
    tampered_calls,
    tampered_decisions,
    tampered_envelopes,
    tampered_goals,
    tampered_logs,
    tampered_redactions,
    tampered_statements,
    tampered_tries,
)
from tests.testkit.forged_bundles import named, opinions
from tests.testkit.tamperings import BASES, CORPUS, KEYS, honest

SOURCES = (
    tampered_calls,
    tampered_decisions,
    tampered_envelopes,
    tampered_goals,
    tampered_logs,
    tampered_redactions,
    tampered_statements,
    tampered_tries,
)
"""They fill the corpus."""
LEAST = 280


@pytest.mark.parametrize("base", BASES)
def test_what_nobody_touched_holds(base: str) -> None:
    own, other = opinions(honest(base), KEYS)
    assert (named(own), named(other)) == (set(), set())
    assert (own["ok"], other["ok"]) == (True, True)


@pytest.mark.parametrize("name", CORPUS)
def test_a_tampering_is_refused_by_its_rules(name: str) -> None:
    tampering = CORPUS[name]
    own, other = opinions(tampering.bundle, KEYS)
    assert named(own) == named(other)
    assert (own["ok"], other["ok"]) == (False, False)
    assert tampering.rules <= {rule for rule, _ in named(own)}


def test_there_are_as_many_as_are_promised() -> None:
    assert len(CORPUS) >= LEAST
