"""What can't be seen is written out, and what looks like something else is marked."""

import pytest

from aetheris.console.core.visible_text import exact, marked, other_scripts


@pytest.mark.parametrize(
    "char",
    [
        "\u202e",
        "\u2066",
        "\u200b",
        "\u200d",
        "\x00",
        "\x07",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufeff",
        "\U000e0041",
        "\r",
        "\t",
        *["\u00a0", "\u3000", "\u3164", "\u115f", "\u2800", "\ufe0f", "\u00ad", "\u034f", "\ud800"],
    ],
)
def test_what_nobody_sees_is_written_out(char: str) -> None:
    assert char not in exact(f"a{char}b")
    shown = marked(f"a{char}b")
    assert char not in shown
    assert 'class="unseen"' in shown
    assert shown.startswith("a<mark")
    assert shown.endswith("</mark>b")


def test_markup_in_a_text_is_text() -> None:
    text = "</pre><script>alert('1')</script>\u202e\"onmouseover=alert(2) \u0430dmin<b>"
    shown = str(marked(text))
    assert "<script" not in shown
    assert "<b>" not in shown
    assert shown.count("<mark ") == 2
    assert '"onmouseover' not in shown


def test_a_word_of_two_scripts_is_marked_and_says_which_letters() -> None:
    shown = str(marked("pay p\u0430yroll \u043f\u0440\u0438\u0432\u0435\u0442 na\u00efve \u65e5\u672c\u3054 ok"))
    assert shown.count('class="mixed"') == 1
    assert "U+0430" in shown
    assert "Cyrillic and Latin" in shown


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("plain", []),
        ("na\u00efve \u00aa", []),
        ("\u0430\u0440\u0440\u04cf\u0435", ["CYRILLIC"]),
        ("\uff41\uff42", ["FULLWIDTH"]),
        ("\U0001d41a", ["MATHEMATICAL"]),
        ("\u65e5\u672c\u306e", ["EAST ASIAN"]),
    ],
)
def test_scripts_beside_latin_are_named(text: str, scripts: list[str]) -> None:
    assert other_scripts(text) == scripts
