"""A request to a human as its page shows it, made of the gateway's very bytes."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.console.core.exact_json import NotExact, exactly_read, exactly_written
from aetheris.console.core.visible_text import other_scripts
from aetheris.protocol.api import HumanRequest
from aetheris.protocol.base.canonical import InvalidArgs, canonical
from aetheris.protocol.base.ids import InvalidName
from aetheris.protocol.base.keys import args_hash, idempotency_key
from aetheris.protocol.planning.approvals import request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRequest:
    """What is asked, and how it stands."""

    asked: HumanRequest
    arguments: Mapping[str, Any]
    """Their numbers are texts (`exactly_read`)."""
    fields: Sequence[Mapping[str, Any]]
    """As the form has them, with numbers as texts."""
    seen: str
    """A digest of all that a decision rests on: what somebody saw is what he decides about."""

    @property
    def id(self) -> str:
        """The request's."""
        return str(self.asked.request.get("id", ""))

    @property
    def context(self) -> Mapping[str, Any]:
        """What the form says beside its fields."""
        found: Any = self.asked.request.get("context")
        return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer."""
        return self.asked.status == "waiting"

    @property
    def is_form(self) -> bool:
        """Whether the plan itself asks something; else it is about a call."""
        return self.asked.asked_by is None and "tool" not in self.context

    @property
    def can_be_edited(self) -> bool:
        """Whether its arguments can be changed here."""
        actions: Any = self.asked.request.get("actions") or {}
        return not self.is_form and "edit" in actions and bool(self.fields)

    @property
    def is_bound(self) -> bool:
        """Whether the arguments that are shown are those that the request is about: its id is made of them."""
        return self.is_form or self.canonical is not None

    @property
    def canonical(self) -> str | None:
        """The arguments in their canonical form (RFC 8785), which the call's key is made of; None where they are not
        the request's own: too large to be shown, or another's.
        """
        try:
            args = cast("dict[str, Any]", json.loads(exactly_written(self.arguments)))
            text = canonical(args).decode()
            own = self._bound_id(args)
            hashed = args_hash(args)
        except (ValueError, InvalidArgs, InvalidName, RecursionError):
            return None
        asked = self.asked.asked_by
        return text if own == self.id and (asked is None or asked.args_hash == hashed) else None

    @property
    def args_hash(self) -> str | None:
        """SHA-256 of them, as the request has it."""
        return self.asked.asked_by.args_hash if self.asked.asked_by is not None else None

    @property
    def pretty(self) -> str:
        """The arguments, to be read."""
        return exactly_written(self.arguments, indent=2)

    @property
    def scripts(self) -> list[str]:
        """Scripts beside Latin whose letters the arguments have."""
        return other_scripts(exactly_written(self.arguments))

    def _bound_id(self, args: dict[str, Any]) -> str:
        key = idempotency_key(self.asked.job_id, self.asked.node_id, str(self.context.get("tool", "")), args)
        _, _, token = self.id.partition(":")[2].partition(":")
        return request_id(self.asked.job_id, self.asked.node_id, key, int(token or 1))


def shown_request(raw: bytes) -> ShownRequest:
    """What GET /ecs/status/{request_id} answered. Raises NotExact."""
    said: Any = exactly_read(raw)
    asked = HumanRequest.model_validate_json(raw)
    request: Any = said.get("request") if isinstance(said, dict) else None
    if not isinstance(request, dict):
        raise NotExact("names no request")
    form = cast("dict[str, Any]", request)
    context: Any = form.get("context") or {}
    arguments: Any = context.get("arguments") or {}
    fields: Any = form.get("fields") or []
    return ShownRequest(asked=asked, arguments=arguments, fields=fields, seen=_seen(cast("dict[str, Any]", said)))


def _seen(said: Mapping[str, Any]) -> str:
    names = ("request", "status", "votes", "asked_by", "answer")
    text = json.dumps([said.get(name) for name in names], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
