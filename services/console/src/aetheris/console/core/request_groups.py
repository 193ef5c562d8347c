"""Requests that one look can answer: those of one tool that one rule asks about, short enough to be read in a row."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aetheris.console.core.shown_requests import ShownRequest

LONGEST = 2_000
"""Characters of the arguments of one that is shown in a row with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestGroup:
    """At least two requests about the same version of a tool, by the same rule, which names the same people."""

    name: str
    """Of what they have in common; short, and the same wherever they are put together."""
    tool: str
    version: str
    rule: str
    requests: Sequence[ShownRequest]

    @property
    def seen(self) -> str:
        """A digest of all that is shown of them."""
        return _digest([f"{one.id} {one.seen}" for one in self.requests])


def together(requests: Iterable[ShownRequest]) -> list[RequestGroup]:
    """The groups among open requests, in the order of their first one."""
    found: dict[str, list[ShownRequest]] = {}
    for one in requests:
        if may_be_together(one):
            found.setdefault(group_of(one), []).append(one)
    return [_group(name, members) for name, members in found.items() if len(members) > 1]


def may_be_together(shown: ShownRequest) -> bool:
    """Whether nothing about it asks for a page of its own: a form, a signature, an edit, what is long, or unclear."""
    asked = shown.asked
    if shown.is_form or not shown.is_open or asked.asked_by is None or asked.asked_by.rule is None:
        return False
    if asked.to_sign is not None or asked.asked_by.signed or asked.asked_by.edited_by:
        return False
    return shown.is_bound and len(shown.pretty) <= LONGEST


def group_of(shown: ShownRequest) -> str:
    """The name of the group that it is of."""
    asked_by = shown.asked.asked_by
    said = asked_by.model_dump_json(exclude={"args_hash"}) if asked_by is not None else ""
    return _digest([str(shown.context.get("tool")), str(shown.context.get("tool_version")), said])[:16]


def _group(name: str, members: Sequence[ShownRequest]) -> RequestGroup:
    first = members[0]
    asked_by = first.asked.asked_by
    return RequestGroup(
        name=name,
        tool=str(first.context.get("tool", "")),
        version=str(first.context.get("tool_version", "")),
        rule=asked_by.rule or "" if asked_by is not None else "",
        requests=members,
    )


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
