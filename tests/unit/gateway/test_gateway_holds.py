"""Streams and waits: how many one caller holds, and all of them together."""

from contextlib import ExitStack

import pytest

from aetheris.gateway.core.holds import Holds
from aetheris.gateway.core.problems import TooMany
from tests.testkit.tokens import entry_of


def test_a_caller_holds_so_many_and_all_of_them_so_many() -> None:
    holds = Holds(3, 2)
    ann, other_ann, bob = (
        entry_of(who, tenant).principal for who, tenant in (("ann", "acme"), ("ann", "other"), ("bob", "acme"))
    )
    with ExitStack() as first:
        first.enter_context(holds.held(ann))
        with holds.held(ann):
            with pytest.raises(TooMany, match="2 streams and waits of yours"), holds.held(ann):
                pass
            with holds.held(other_ann), pytest.raises(TooMany, match="as the gateway holds"), holds.held(bob):
                pass
        with holds.held(bob), holds.held(ann):
            pass
    with holds.held(bob), holds.held(other_ann), holds.held(ann):
        pass
