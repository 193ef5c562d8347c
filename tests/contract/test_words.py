"""Words that the glossary has given up stand nowhere: a reader would have to decode them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.system import REPOSITORY

GIVEN_UP = {
    r"the (outside|world)": "the external system",
    r"an outside server": "an external server",
    r"(ever|never|was|is|are|were|being|be) born": "created",
    r"born (again|later|of|with)": "created",
    r"stillborn": "a creation that came again",
    r"courses?": "job history",
    r"bells?": "wake-up",
    r"heard of": "seen, recorded",
}
"""What is looked for, as a whole word, and what stands there instead."""

PLACES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "libs", "services", "deploy", "examples")
ENDINGS = frozenset({".md", ".py", ".json", ".yaml"})
EXCUSED = frozenset({"docs/model", "docs/adr", "libs/proofs/src/aetheris/proofs/standalone"})
"""The model and the records of decisions have words of their own; a script that is handed out is one version's."""
SPACE = r"\s+(?:#\s*)?"
"""Also the end of a line, and a comment's next one."""
NAMES = re.compile(r"aetheris:bell:|\bof course\b", re.IGNORECASE)
"""A channel of the wire is named so, and a common phrase."""


def test_words_that_were_given_up_stand_nowhere() -> None:
    assert [line for file in _files() for line in _found(file.relative_to(REPOSITORY), file.read_text())] == []


@pytest.mark.parametrize(
    "sentence", ["It asks the\noutside.", "The job was born.", "# the bell rang", "Nobody heard of it.", "its course"]
)
def test_a_sentence_with_one_is_found(sentence: str) -> None:
    assert list(_found(Path("page.md"), sentence))


@pytest.mark.parametrize("sentence", ["Seen from outside.", "Of course.", "On the outskirts.", "aetheris:bell:planner"])
def test_other_sentences_are_not(sentence: str) -> None:
    assert list(_found(Path("page.md"), sentence)) == []


def _found(name: Path, text: str) -> Iterator[str]:
    text = NAMES.sub("", text)
    for word, instead in GIVEN_UP.items():
        pattern = rf"\b{word.replace(' ', SPACE)}\b"
        for match in re.finditer(pattern, text, re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: {match[0]!r}: {instead}"


def _files() -> Iterator[Path]:
    for place in PLACES:
        path = REPOSITORY / place
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            inside = file.relative_to(REPOSITORY).as_posix()
            if file.suffix in ENDINGS and not any(inside.startswith(f"{one}/") for one in EXCUSED):
                yield file
