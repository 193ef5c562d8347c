"""What a freeze holds: an agent, a tenant, or a tool in one tenant or in all (docs/freeze.md)."""

from collections.abc import Iterable, Iterator

from pydantic import BaseModel, ConfigDict, model_validator

NAME_LIMIT = 256
"""Characters of each name."""

ScopeNames = tuple[str | None, str | None, str | None]
"""tenant, agent, tool"""


class FreezeScope(BaseModel):
    """Whose calls a freeze holds; what is not named is anybody's. An agent is the principal that submits."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    tenant: str | None = None
    agent: str | None = None
    tool: str | None = None

    @model_validator(mode="after")
    def _names_one(self) -> "FreezeScope":
        if self.agent is not None and (self.tenant is None or self.tool is not None):
            raise ValueError("an agent is one of a tenant, and frozen with all that it calls")
        if self.tenant is None and self.tool is None:
            raise ValueError("a freeze names an agent, a tenant or a tool")
        names = [name for name in (self.tenant, self.agent, self.tool) if name is not None]
        if not all(1 <= len(name) <= NAME_LIMIT for name in names):
            raise ValueError(f"a name has 1 to {NAME_LIMIT} characters")
        return self

    @property
    def names(self) -> ScopeNames:
        """What it names."""
        return self.tenant, self.agent, self.tool

    @property
    def key(self) -> str:
        """Its name in a topic: no other scope has it, and no job."""
        if self.agent is not None:
            return f"freeze:agent:{len(self.tenant or '')}:{self.tenant}:{self.agent}"
        if self.tool is None:
            return f"freeze:tenant:{self.tenant}"
        if self.tenant is None:
            return f"freeze:everywhere:{self.tool}"
        return f"freeze:tool:{len(self.tenant)}:{self.tenant}:{self.tool}"

    def holds(self, tenant: str, agent: str, tool: str | None) -> bool:
        """Whether a call is held, of a tool (None: of none), in a job of a tenant that an agent submitted."""
        return self.concerns(tenant, agent) and self.tool in (None, tool)

    def concerns(self, tenant: str, agent: str) -> bool:
        """Whether a job may have calls that are held."""
        return self.tenant in (None, tenant) and self.agent in (None, agent)

    def __str__(self) -> str:
        if self.agent is not None:
            return f"agent {self.agent}"
        return f"tool {self.tool}" if self.tool is not None else f"tenant {self.tenant}"


def names_holding(tenant: str, agent: str, tools: Iterable[str | None]) -> Iterator[ScopeNames]:
    """What every scope names that holds a call of one of the tools, or of none, in such a job."""
    yield tenant, None, None
    yield tenant, agent, None
    for tool in tools:
        if tool is not None:
            yield tenant, None, tool
            yield None, None, tool
