"""Two policies side by side: each line of both is accounted for, and nothing else is shown."""

import random

from aetheris.console.core.policy_changes import MOST_LINES, ChangedLine, as_posted, changed_lines


def test_a_change_is_shown_with_what_lies_around_it() -> None:
    was = "\n".join(f"line {n}" for n in range(20))
    now = was.replace("line 10", "line ten")
    found = changed_lines(was, now)
    assert found is not None
    assert [(one.kind, one.text) for one in found] == [
        ("skipped", "7 lines that stay"),
        *(("same", f"line {n}") for n in (7, 8, 9)),
        ("removed", "line 10"),
        ("added", "line ten"),
        *(("same", f"line {n}") for n in (11, 12, 13)),
        ("skipped", "6 lines that stay"),
    ]


def test_no_line_is_lost_whatever_the_two_are() -> None:
    for seed in range(300):
        chance = random.Random(seed)  # noqa: S311  a test's
        was, now = ([chance.choice("abcd") for _ in range(chance.randrange(30))] for _ in range(2))
        found = changed_lines("\n".join(was), "\n".join(now)) or []
        skipped = sum(int(one.text.split()[0]) for one in found if one.kind == "skipped")
        kept = [one for one in found if one.kind == "same"]
        if found:
            assert len([one for one in found if one.kind == "removed"]) + len(kept) + skipped == len(was)
            assert len([one for one in found if one.kind == "added"]) + len(kept) + skipped == len(now)
        else:
            assert was == now


def test_what_is_long_is_not_compared_and_equal_ones_have_no_change() -> None:
    assert changed_lines("", "x\n" * (MOST_LINES + 1)) is None
    assert changed_lines("a\nb", "a\nb") == []
    assert changed_lines("", "a") == [ChangedLine("added", "a")]


def test_a_form_s_line_ends_are_those_of_the_text() -> None:
    assert as_posted("a\r\nb\r\n") == "a\nb\n"
