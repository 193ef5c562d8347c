"""Pages of one file, everything escaped: a job's trace, without a script (docs/replay.md), and what a passkey signs."""

import json
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from aetheris.cli.page.layout import layout

LONGEST_VALUE = 8_000
"""Characters of an argument or a result that are shown; the trace as JSON has all of it."""
MOST_DRAWN = 400
"""Steps up to which the graph is drawn; a larger one is no picture any more."""


def page_of(trace: Mapping[str, Any]) -> str:
    """The page of a job's trace (`aetheris.views.trace`)."""
    nodes, edges = trace["graph"]["nodes"], trace["graph"]["edges"]
    drawing = layout(nodes, edges) if len(nodes) <= MOST_DRAWN else None
    return _environment().get_template("trace.html").render(trace=trace, drawing=drawing)


def passkey_page(asks: Mapping[str, Any], nonce: str) -> str:
    """The page that asks a passkey; `asks` is {title, what, shown: {name: text}, button, options: {…}}.

    Every text of `shown` is written as it is, or as `exact` writes it.
    """
    return _environment().get_template("passkey.html").render(asks, nonce=nonce, given=json.dumps(asks["options"]))


def exact(text: str) -> str:
    """JSON, or lines of it, in which every character can be seen: others in JSON's own way of writing them."""
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) != 0x7F else "\\u007f"


def pretty(value: Any) -> str:
    """A JSON value as it is shown."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    left_out = len(text) - LONGEST_VALUE
    return visible(text if left_out <= 0 else f"{text[:LONGEST_VALUE]}\n… {left_out} characters more")


def visible(text: Any) -> str:
    """Text without what could steer how it is shown: control characters and marks of direction."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("aetheris.cli.page", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    found.filters["pretty"] = pretty
    return found


def _shown(value: Any) -> Any:
    """Plain text is made visible; what the template itself made is markup already."""
    return visible(value) if type(value) is str else value
