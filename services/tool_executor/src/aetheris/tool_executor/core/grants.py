"""A grant as the executor holds it, until it is judged."""

from dataclasses import dataclass

from aetheris.protocol.messages.commands import ToolGrant


@dataclass(frozen=True, slots=True)
class ReceivedGrant:
    """A grant as it was read: `cause` is its ce_id, `parent` its traceparent."""

    grant: ToolGrant
    cause: str
    offset: int
    parent: bytes | None = None
    tenant: str = ""
    """Of its job, once the fold knows it."""

    @property
    def readable_from(self) -> int:
        """The offset of the authority that must be folded before the grant can be judged."""
        return max(self.grant.as_of, self.grant.birth)
