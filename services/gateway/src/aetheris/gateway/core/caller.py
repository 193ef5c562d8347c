"""Who calls."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated client: `name` is the `by` of every command it causes."""

    name: str
    tenant: str
    operator: bool = False
    """Whether he may speak of what all tenants share."""
