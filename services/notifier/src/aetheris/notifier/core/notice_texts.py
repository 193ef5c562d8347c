"""What notices say. Nothing in them was worded by who asks, but for the arguments that a route shows; pure."""

import json
import unicodedata
from collections.abc import Mapping
from typing import Any, cast

from aetheris.notifier.core.notice_routes import NoticeKind
from aetheris.protocol.base.references import HIDDEN

LONGEST = 200
"""Characters of one value."""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_TITLES: Mapping[NoticeKind, str] = {
    "approval": "Approval asked",
    "form": "An answer is asked",
    "parked": "In doubt, somebody must say what happened",
    "confirmation": "Not confirmed, somebody must accept it",
    "stuck": "A job stands still",
}


def title_of(kind: NoticeKind, tool: str | None, *, again: bool) -> str:
    """One line. `again`: nobody has answered since the first one."""
    return f"{'Still open: ' if again else ''}{_TITLES[kind]}{f': {plain(tool)}' if tool else ''}"


def plain(text: str) -> str:
    """One line, without anything that is not seen or that turns the direction of what is; long ones are cut."""
    seen = "".join(map(_seen, text[:LONGEST]))
    return seen if len(text) <= LONGEST else f"{seen}… ({len(text)} characters)"


def shown(value: Any) -> str:
    """An argument, as JSON; nothing of what is hidden in it."""
    return plain(json.dumps(_without_hidden(value), ensure_ascii=False, sort_keys=True))


def _without_hidden(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return "(hidden)" if HIDDEN in members else {name: _without_hidden(one) for name, one in members.items()}
    return [_without_hidden(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _seen(character: str) -> str:
    """Controls, formats, surrogates, and ends of lines and paragraphs by their numbers."""
    return f"\\u{{{ord(character):x}}}" if unicodedata.category(character) in _UNSEEN else character
