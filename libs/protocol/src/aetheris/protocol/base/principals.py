"""Who acts: people, agents and services, and what each of them may do (docs/identity.md)."""

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class PrincipalKind(StrEnum):
    """Whose hands a token is in. Nothing about a person is known of the other two."""

    PERSON = "person"
    AGENT = "agent"
    SERVICE = "service"


class Role(StrEnum):
    """What a principal may do, in its tenant."""

    SUBMIT = "submit"
    """Submit jobs; see, steer and continue those that it submitted itself."""
    APPROVE = "approve"
    """See and answer requests to humans, where the gate lets it."""
    RESOLVE = "resolve"
    """Say what became of calls in doubt, and accept what could not be confirmed, where the gate lets it."""
    OPERATE = "operate"
    """Cancel, pause, resume, signal and reconcile the tenant's jobs, and release its tools."""
    READ = "read"
    """See the tenant's jobs, and how they stand."""
    READ_PAYLOADS = "read_payloads"
    """See what they say as well: arguments, results, events."""
    AUDIT = "audit"
    """Take evidence away: raw records and bundles."""
    ADMINISTER = "administer"
    """Speak of what all tenants share, such as workers."""
    BREAK_GLASS = "break_glass"
    """Decide alone, in an emergency, what a rule leaves to others; every use is an alarm."""


ORDINARY = tuple(role for role in Role if role is not Role.BREAK_GLASS)
"""What who may do everything has, where nothing else is said: an emergency is given by name."""


class Delegation(BaseModel):
    """In whose place somebody acts: a right that was lent for a time, and by whom (docs/identity.md)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    principal: str
    """The name of who lent it."""
    until: AwareDatetime
    at: AwareDatetime
    """When it was used, as the gateway says; at or behind `until` it is worth nothing."""


DELEGABLE = frozenset({Role.APPROVE, Role.RESOLVE, Role.READ, Role.READ_PAYLOADS})
"""What may be lent: to decide, and to see about what."""


class RecordedPrincipal(BaseModel):
    """Who said something, as it is recorded beside his name: what he was, and might do, when he said it.

    A kind or a role that only a newer version knows is kept as text: rules name both, and are held against them so.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    kind: Annotated[PrincipalKind | str, Field(union_mode="left_to_right")]
    roles: tuple[Annotated[Role | str, Field(union_mode="left_to_right")], ...]
    tenant: str | None = None
    """Absent where it stands beside."""
    breaks_glass: bool | None = None
    """Whether he says that this is an emergency: then the rule's names, and how many must agree, do not count."""
    delegation: Delegation | None = None
    """Where he acts in another's place: then the rule's names are held against that one's."""

    @property
    def names(self) -> frozenset[str]:
        """Who speaks, and in whose place: one voice."""
        return frozenset((self.id,) if self.delegation is None else (self.id, self.delegation.principal))

    @property
    def entitled_as(self) -> str:
        """The name that a rule's names are held against."""
        return self.id if self.delegation is None else self.delegation.principal


def speaker(by: str, tenant: str, said: RecordedPrincipal | None) -> RecordedPrincipal:
    """Who says something, for the gate: a service without roles, where nothing that fits is said beside his name."""
    if said is None or said.id != by or said.tenant not in (None, tenant):
        return RecordedPrincipal(id=by, kind=PrincipalKind.SERVICE, roles=(), tenant=tenant)
    return said.model_copy(update={"tenant": tenant})


NOBODY = RecordedPrincipal(id="", kind=PrincipalKind.SERVICE, roles=())
