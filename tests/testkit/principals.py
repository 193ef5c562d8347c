"""People of tests, as commands carry them."""

from typing import Any

from aetheris.protocol.base.principals import PrincipalKind, RecordedPrincipal, Role


def person(who: str, tenant: str | None = None) -> RecordedPrincipal:
    """Somebody who may do everything in his tenant, as far as his roles say."""
    return RecordedPrincipal(id=who, kind=PrincipalKind.PERSON, roles=tuple(Role), tenant=tenant)


def said_by(who: str) -> dict[str, Any]:
    """The fields of a command that say who gives it."""
    return {"by": who, "principal": person(who)}
