"""Who may say what concerns more than one call: the section [operate] of the policy (docs/policy.md). Pure.

The gateway asks before it writes such a word.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, model_validator

from aetheris.protocol.base.principals import PrincipalKind, RecordedPrincipal, Role
from aetheris.protocol.planning.gate import Deciders, HumanAction, Matter, gate

_NEEDED: Mapping[HumanAction, tuple[Role, ...]] = {
    HumanAction.END_WORKER: (Role.ADMINISTER,),
    HumanAction.RELEASE: (Role.OPERATE,),
    HumanAction.UNFREEZE: (Role.OPERATE, Role.ADMINISTER),
    HumanAction.REDRIVE: (Role.OPERATE, Role.ADMINISTER),
}
"""One of these he has in any case; what the policy says comes on top."""


class NamedOperators(BaseModel):
    """Whom the policy names: who is all that is said here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: tuple[str, ...] | None = Field(default=None, min_length=1, description="Patterns of names: * and ?")
    roles: tuple[Role, ...] | None = Field(default=None, min_length=1, description="Any of them will do")
    kinds: tuple[PrincipalKind, ...] | None = Field(default=None, min_length=1, description="person, agent, service")

    @model_validator(mode="after")
    def _names_somebody(self) -> "NamedOperators":
        if self.by is None and self.roles is None and self.kinds is None:
            raise ValueError("says nobody: by, roles or kinds")
        return self


class Operate(BaseModel):
    """The section; what it leaves out goes by the role alone; the end of a worker, and a redrive, by a person's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worker_end: NamedOperators | None = None
    tool_release: NamedOperators | None = None
    unfreeze: NamedOperators | None = None
    redrive: NamedOperators | None = None

    def deciders(self, action: HumanAction) -> Deciders:
        """Whom it names for an action that is in `_NEEDED`."""
        named = {
            HumanAction.END_WORKER: self.worker_end,
            HumanAction.RELEASE: self.tool_release,
            HumanAction.UNFREEZE: self.unfreeze,
            HumanAction.REDRIVE: self.redrive,
        }[action] or NamedOperators.model_construct()
        kinds = named.kinds
        if kinds is None and action in _OF_PEOPLE:
            kinds = (PrincipalKind.PERSON,)
        return Deciders(f"operate.{_SAID[action]}", named.by, self_approval=True, roles=named.roles, kinds=kinds)


_SAID: Mapping[HumanAction, str] = {
    HumanAction.END_WORKER: "worker_end",
    HumanAction.RELEASE: "tool_release",
    HumanAction.UNFREEZE: "unfreeze",
    HumanAction.REDRIVE: "redrive",
}
_OF_PEOPLE = frozenset({HumanAction.END_WORKER, HumanAction.REDRIVE})
"""Only a person says it, where the policy names no kinds."""


def may_not_operate(
    operate: Operate, action: HumanAction, by: str, said: RecordedPrincipal | None, tenant: str | None = None
) -> str | None:
    """Why he may not say this, as the gate says it; None where he may.

    Args:
        operate: the section of the policy in force.
        action: the end of a worker, the release of a tool, the end of a freeze, a redrive.
        by: his name.
        said: what is recorded beside it; where that is nothing, or about another, he has no role.
        tenant: whose it is; None: no tenant's alone.
    """
    if said is None or said.id != by or said.breaks_glass:
        said = RecordedPrincipal(id=by, kind=PrincipalKind.SERVICE, roles=())
    needed = _NEEDED[action]
    if not set(needed) & set(said.roles):
        return f"the role {' or '.join(needed)} is needed to {action}"
    return gate(operate.deciders(action), said, action, Matter(tenant))
