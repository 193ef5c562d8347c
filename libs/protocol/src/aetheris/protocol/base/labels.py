"""Labels of a job: what who submits it calls it by, recorded with its birth; no rule and no service acts by them."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import Field

from aetheris.protocol.base.ids import NAME

MOST_LABELS = 10
LONGEST_LABEL = 100
"""Characters of a value."""

LabelName = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
LabelValue = Annotated[str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=r"^[^\x00-\x1f\x7f]*$")]
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=MOST_LABELS)]
"""Name → value."""


def are_labels(said: Any) -> bool:
    """Whether it is what labels may be."""
    if not isinstance(said, Mapping):
        return False
    found = cast("Mapping[Any, Any]", said)
    return len(found) <= MOST_LABELS and all(_is_label(name, value) for name, value in found.items())


def _is_label(name: Any, value: Any) -> bool:
    if not isinstance(name, str) or not isinstance(value, str) or NAME.fullmatch(name) is None:
        return False
    return 0 < len(value) <= LONGEST_LABEL and not any(ord(char) < 32 or ord(char) == 127 for char in value)
