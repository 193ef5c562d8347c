"""What the header Prefer says of waiting (RFC 7240)."""

import pytest

from aetheris.gateway.core.preferences import LONGEST_WAIT_S, wait_s
from aetheris.gateway.core.problems import BadRequestProblem


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        ([""], None),
        (["respond-async, handling=lenient"], None),
        (['foo="a, wait=5"'], None),
        (["waits=5"], None),
        (["wait=5"], 5),
        (["wait=0"], 0),
        (['Wait = "7"; why="slow, as ever"'], 7),
        (["respond-async;x=1, wait=10"], 10),
        (["respond-async", "wait=10, wait=20"], 10),
        (["wait=61"], LONGEST_WAIT_S),
        ([f"wait={'9' * 9}"], LONGEST_WAIT_S),
    ],
)
def test_the_first_wait_counts_and_the_rest_is_ignored(headers: list[str], seconds: int | None) -> None:
    assert wait_s(headers) == seconds


@pytest.mark.parametrize(
    "header", ["wait", "wait=", "wait=soon", "wait=-1", "wait=1.5", "wait=٣", "wait=1 2", "wait,x"]
)
def test_a_wait_that_is_no_number_of_seconds_is_refused_by_name(header: str) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        wait_s(["respond-async", header])
    assert refused.value.field == "Prefer"
