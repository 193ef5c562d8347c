"""Text as it is, for people: whatever can't be seen, or is easily taken for something else, is made visible.

Everything that is not printable is written as JSON writes it: controls, marks that turn the order of letters, blanks
that only look like one. A word with letters of several scripts is marked, since it may look like another one.
"""

import json
import re
import unicodedata
from collections.abc import Iterator

from markupsafe import Markup, escape

_ODD = re.compile(r"[^\x20-\x7e\n]")
"""Where to look: what is no plain ASCII."""
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Printable, as Unicode has it, and shown as nothing."""
_WORD = re.compile(r"\w+")
_ALONE = ("HIRAGANA", "KATAKANA", "HANGUL", "CJK")
"""Scripts that are written together, and hardly look like Latin."""


def exact(text: str) -> str:
    """JSON, or lines of it, in which every character can be seen: others in JSON's own way of writing them."""
    return "".join(char if _is_seen(char) else _escaped(char) for char in text)


def marked(text: str) -> Markup:
    """`exact`, with what was written otherwise, and words of several scripts, marked for the eye and for readers."""
    if text.isascii() and text.isprintable():
        return escape(text)
    found: list[Markup] = []
    at = 0
    for word in _WORD.finditer(text):
        if word[0].isascii():
            continue
        scripts = scripts_of(word[0])
        if len(scripts) > 1:
            found += [_characters(text[at : word.start()]), _mixed(word[0], scripts)]
            at = word.end()
    return Markup("").join([*found, _characters(text[at:])])


def scripts_of(text: str) -> list[str]:
    """The scripts of its letters, by their first word in Unicode's names, such as LATIN and CYRILLIC."""
    found = {_script(char) for char in text if char.isalpha()}
    if found & {*_ALONE}:
        found -= {"LATIN", *_ALONE}
        found.add("EAST ASIAN")
    return sorted(found)


def other_scripts(text: str) -> list[str]:
    """Those beside Latin: their letters may look like Latin ones."""
    return [] if text.isascii() else [one for one in scripts_of(text) if one != "LATIN"]


def _script(char: str) -> str:
    name = "LATIN" if char.isascii() else unicodedata.name(char, "UNKNOWN").split(" ")[0]
    return "LATIN" if name in ("FEMININE", "MASCULINE") else name


def _is_seen(char: str) -> bool:
    return (char.isprintable() and not _BLANK.match(char)) or char == "\n"


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) != 0x7F else "\\u007f"


def _characters(text: str) -> Markup:
    return Markup("").join(_pieces(text))


def _pieces(text: str) -> Iterator[Markup]:
    at = 0
    for match in _ODD.finditer(text):
        if _is_seen(match[0]):
            continue
        yield escape(text[at : match.start()])
        name = unicodedata.name(match[0], f"control U+{ord(match[0]):04X}")
        yield Markup('<mark class="unseen" title="{}">{}</mark>').format(name, _escaped(match[0]))
        at = match.end()
    yield escape(text[at:])


def _mixed(word: str, scripts: list[str]) -> Markup:
    letters = ", ".join(f"{char} U+{ord(char):04X}" for char in word if not char.isascii())
    title = f"letters of {' and '.join(one.capitalize() for one in scripts)}: {letters}"
    return Markup('<mark class="mixed" title="{}">{}</mark>').format(title, exact(word))
