"""Sessions end, links are good once, and neither says its token."""

from aetheris.console import sessions
from aetheris.console.sessions import LINK_S, MOST_SESSIONS, Sessions
from aetheris.protocol.api import CallerView

BOB = CallerView(id="bob", tenant="default", kind="person", roles=("approve",))


class Hand:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sessions(self) -> Sessions:
        return Sessions(lambda: self.now_s, 100.0, 1000.0)


def test_a_session_ends_with_silence_and_with_age() -> None:
    hand = Hand()
    some = hand.sessions()
    idle, busy = some.begin("t", BOB), some.begin("t", BOB)
    for _ in range(12):
        hand.now_s += 90
        kept = some.find(busy)
        if hand.now_s <= 1000:
            assert kept is not None
    assert some.find(busy) is None
    assert some.find(idle) is None


def test_what_a_page_asks_by_itself_keeps_no_session() -> None:
    hand = Hand()
    some = hand.sessions()
    id_ = some.begin("t", BOB)
    hand.now_s = 90
    assert some.find(id_, is_used=False) is not None
    hand.now_s = 110
    assert some.find(id_) is None


def test_an_ended_session_is_nobody_s() -> None:
    some = Hand().sessions()
    id_, other = some.begin("t", BOB), some.begin("t", BOB)
    found = some.find(id_)
    assert found is not None
    some.end(found)
    assert some.find(id_) is None
    assert some.find(other) is not None
    assert some.find(None) is None
    assert some.find("") is None


def test_a_link_is_good_once_and_soon() -> None:
    hand = Hand()
    some = hand.sessions()
    code = some.link("t", BOB)
    assert some.linked(code) == BOB
    assert some.linked(code) == BOB, "looking uses nothing up"
    begun = some.use(code)
    assert some.find(begun) is not None
    assert (some.use(code), some.linked(code)) == (None, None)
    late = some.link("t", BOB)
    hand.now_s = LINK_S + 1
    assert (some.linked(late), some.use(late)) == (None, None)


def test_there_are_so_many_sessions_and_links_at_most() -> None:
    some = Hand().sessions()
    first, code = some.begin("t", BOB), some.link("t", BOB)
    for _ in range(MOST_SESSIONS):
        some.begin("t", BOB)
    for _ in range(sessions.MOST_LINKS):
        some.link("t", BOB)
    assert some.find(first) is None
    assert some.use(code) is None


def test_nobody_reads_a_token_off_a_session() -> None:
    some = Hand().sessions()
    session = some.find(some.begin("very-secret", BOB))
    assert session is not None
    assert "very-secret" not in repr(session)
    assert session.csrf not in repr(session)
