"""Where in a file a fault is said to be."""

import pytest

from aetheris.protocol.base.faults import json_line, no_such_key, toml_error_line, toml_key_line, toml_line

RULES = """# [[rules]] in a comment is none
[[rules]]
name = "a"

[[ rules ]]
  name = "b"
"odd" = 1
[rules.budget]
calls = 1
[[rules]]
"""


@pytest.mark.parametrize(
    ("index", "field", "line"),
    [(0, "name", 3), (1, "name", 6), (1, "odd", 7), (1, "calls", 5), (1, None, 5), (2, "name", 10), (3, None, None)],
)
def test_a_field_of_an_array_of_tables(index: int, field: str | None, line: int | None) -> None:
    assert toml_line(RULES, "rules", index, field) == line


def test_a_key_of_a_document() -> None:
    text = 'tools = ["a"]\n[policy]\nfile = "p"\n[other.thing]\nfile = "q"\n'
    assert toml_key_line(text, "tools") == 1
    assert toml_key_line(text, "policy") == 2
    assert toml_key_line(text, "policy", "file") == 3
    assert toml_key_line(text, "other", "thing", "file") == 5
    assert toml_key_line(text, "file") is None


def test_a_name_in_json_is_looked_for_behind_those_around_it() -> None:
    text = '{"b": 1,\n "a": {\n  "b": {\n   "b": 2}}}'
    assert json_line(text, ("a", "b", "b")) == 4
    assert json_line(text, ("a", "b", "gone")) == 3
    assert json_line(text, ("gone",)) is None


def test_what_was_meant() -> None:
    assert no_such_key("efect", ("effect", "name")) == "there is no such key; did you mean effect?"
    assert no_such_key("zzz", ("b", "a")) == "there is no such key; there are a, b"
    assert no_such_key("zzz", ()) == "there is no such key"
    assert toml_error_line("Expected '=' after a key (at line 7, column 2)") == 7
