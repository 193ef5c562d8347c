"""Who witnessed a proof is read of it: the log itself is none, and what is no cosignature is passed over."""

from datetime import UTC, datetime

from aetheris.console.core.named_witnesses import named_witnesses
from tests.unit.proofs.test_witnesses import AT, note_of, seen

BEHIND = "c2sp.org/tlog-proof@v1\nindex 3\n\n"


def test_each_witness_is_named_with_its_time() -> None:
    found = named_witnesses(BEHIND + seen(note_of(), (0, 0), (1, 60)))
    assert len({one.name for one in found}) == 2
    assert (found[0].at, found[1].at) == (at(0), at(60))


def at(after_s: int) -> str:
    return datetime.fromtimestamp(AT + after_s, UTC).isoformat()


def test_the_logs_own_signature_is_no_witnesses() -> None:
    assert named_witnesses(BEHIND + note_of()) == []


def test_lines_that_are_none_are_passed_over() -> None:
    for line in ("— name", "— name !!!", "— name AAAA", "— ", "name " + "A" * 104, "— x " + "/" * 100 + "=="):
        assert named_witnesses(f"{BEHIND}\n{line}\n") == [], line
