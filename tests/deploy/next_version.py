"""A service as its next version would look to this one: `python -m tests.deploy.next_version aetheris.planner [rules]`.

What a minor version may change is changed in all that it writes: every record has a field more, and every group of
facts a record more, of a type that this version doesn't know. With `rules` it creates jobs under rules of its own, too,
and knows those alone.
"""

import aetheris.runtime.process.lean  # noqa: F401, I001  # pyright: ignore[reportUnusedImport]  before all others

import json
import runpy
import sys
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from aetheris.proofs import records
from aetheris.protocol.messages import event_base
from aetheris.protocol.messages.commands import MESSAGES
from aetheris.protocol.messages.events import EVENTS, JobCreated, JobSealed
from aetheris.protocol.base.records import Draft, Group
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.appender import KafkaAppender

FIELD = "field_of_the_next_version"
TYPE = "type_of_the_next_version"
RULES = 2

_KNOWN = {f"io.aetheris.{name}.v1".encode() for name in {*EVENTS, *MESSAGES} - {JobSealed.event_type}}  # it is signed
_BIRTH = f"io.aetheris.{JobCreated.event_type}.v1".encode()
_append = KafkaAppender.append


async def _append_as_next(self: KafkaAppender, groups: Sequence[Group]) -> None:
    await _append(self, [_next(group) for group in groups])


def _next(group: Group) -> Group:
    changed = tuple(_with_field(draft) for draft in group)
    return (*changed, _unknown(changed[-1])) if group and group[0].topic == Topic.JOBS_EVENTS else changed


def _with_field(draft: Draft) -> Draft:
    if dict(draft.headers).get("ce_type") not in _KNOWN:
        return draft
    added: dict[str, Any] = {FIELD: {"of": "any kind"}}
    if dict(draft.headers).get("ce_type") == _BIRTH:
        added["rules"] = max(event_base.KNOWN_RULES)
    return draft.replaced(value=json.dumps(json.loads(draft.value) | added).encode())


def _unknown(draft: Draft) -> Draft:
    own = {"ce_type": f"io.aetheris.{TYPE}.v1".encode(), "ce_id": str(uuid4()).encode(), "ce_subject": draft.key}
    headers = tuple((name, own.get(name, value)) for name, value in draft.headers)
    return draft.replaced(headers=headers, value=json.dumps({"job_id": draft.key.decode()}).encode())


if __name__ == "__main__":
    if "rules" in sys.argv[2:]:
        event_base.KNOWN_RULES = records.KNOWN_RULES = frozenset({RULES})
    KafkaAppender.append = _append_as_next
    runpy.run_module(sys.argv[1], run_name="__main__")
