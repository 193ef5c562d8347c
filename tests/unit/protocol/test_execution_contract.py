"""All 56 (state, trigger) pairs: 9 legal, 47 refused."""

from itertools import product

import pytest

from aetheris.protocol.planning.contract import (
    TERMINAL,
    TRANSITIONS,
    ContractStatus,
    IllegalTransition,
    Trigger,
    advance,
)

PAIRS = list(product(ContractStatus, Trigger))


def test_there_are_56_pairs_of_which_9_are_legal() -> None:
    assert len(PAIRS) == 56
    assert len(TRANSITIONS) == 9


@pytest.mark.parametrize(("status", "trigger"), PAIRS)
def test_pair(status: ContractStatus, trigger: Trigger) -> None:
    if (status, trigger) in TRANSITIONS:
        assert advance(status, trigger) is TRANSITIONS[status, trigger]
    else:
        with pytest.raises(IllegalTransition):
            advance(status, trigger)


def test_terminal_states_are_never_left() -> None:
    assert not {status for status, _ in TRANSITIONS} & TERMINAL
