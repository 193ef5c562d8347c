"""Templates made into pages: every text is escaped, and what can't be seen in it is written out."""

from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from aetheris.console.core.exact_json import exactly_written, is_plain_text
from aetheris.console.core.visible_text import exact, marked


@cache
def templates() -> Environment:
    """The environment of all pages."""
    found = Environment(
        loader=PackageLoader("aetheris.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    found.filters |= {"marked": _marked, "verbatim": _verbatim, "json": _json, "path": _path}
    found.filters |= {"moment": _moment, "minute": _minute}
    return found


def rendered(template: str, **data: Any) -> str:
    """A page, or a part of one."""
    return templates().get_template(template).render(data)


def _shown(value: Any) -> Any:
    """Plain text without anything unseen, fit for attributes too; what a template made is markup already."""
    return exact(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _marked(value: Any) -> Markup:
    """Text for the content of an element: what can't be seen, or looks like something else, stands out."""
    return marked(str(value))


def _verbatim(value: Any) -> Markup:
    """A text that a browser is to send back as it is."""
    return escape(str(value))


def _json(value: Any) -> Markup:
    """A value of `exactly_read`, on lines of its own; a text that could be taken for another value has its quotes."""
    return marked(value if is_plain_text(value) else exactly_written(value, indent=2))


def _path(value: Any) -> Markup:
    """A part of a URL's path."""
    return escape(quote(str(value), safe=":"))


def _moment(value: Any) -> str:
    """A time as people read it; a text that is none as it is."""
    return _time(value, "%-d %b %Y, %H:%M:%S UTC")


def _minute(value: Any) -> str:
    """The same, as short as a list wants it."""
    return _time(value, "%-d %b, %H:%M")


def _time(value: Any, form: str) -> str:
    try:
        return datetime.fromisoformat(str(value)).astimezone(UTC).strftime(form)
    except (ValueError, OverflowError):
        return str(value)
