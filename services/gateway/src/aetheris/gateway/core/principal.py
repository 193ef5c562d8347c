"""Who calls."""

from dataclasses import dataclass

from aetheris.protocol.base.principals import Delegation, PrincipalKind, RecordedPrincipal, Role


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client: `id` is the `by` of every command it causes."""

    id: str
    tenant: str
    kind: PrincipalKind
    roles: frozenset[Role]
    lacks: tuple[Role, ...] = ()
    """Of what is asked: any of these would reach the jobs of others too. Empty where they are in reach."""
    delegation: Delegation | None = None
    """Where it acts in another's place, now."""

    @property
    def recorded(self) -> RecordedPrincipal:
        """As it stands beside its name in what it causes."""
        return RecordedPrincipal(
            id=self.id,
            kind=self.kind,
            roles=tuple(sorted(self.roles)),
            tenant=self.tenant,
            delegation=self.delegation,
        )

    def speaks(self, *, breaks_glass: bool) -> RecordedPrincipal:
        """As `recorded`, where he may say that it is an emergency."""
        return self.recorded.model_copy(update={"breaks_glass": True}) if breaks_glass else self.recorded

    def reaches(self, submitted_by: str) -> bool:
        """Whether a job of its tenant is one that it may ask this about."""
        return not self.lacks or submitted_by == self.id

    def reads_payloads(self, submitted_by: str) -> bool:
        """Whether it may see what a job of its tenant says, beside how that stands."""
        return Role.READ_PAYLOADS in self.roles or (Role.SUBMIT in self.roles and submitted_by == self.id)
