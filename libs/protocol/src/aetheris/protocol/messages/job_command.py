"""What every command about a job has."""

from aetheris.protocol.base.principals import RecordedPrincipal, speaker
from aetheris.protocol.messages.message_base import Message


class JobCommand(Message):
    """jobs.commands: written by the gateway; `by` and `tenant` are from the authenticated request."""

    job_id: str
    by: str
    tenant: str
    principal: RecordedPrincipal | None = None
    """What he was who said it; a decision by somebody of whom this is not said counts as a service's without roles."""

    @property
    def speaker(self) -> RecordedPrincipal:
        """Who says it, for the gate."""
        return speaker(self.by, self.tenant, self.principal)

    @property
    def recorded_principal(self) -> RecordedPrincipal | None:
        """What the log keeps of him; None where nothing was said."""
        return self.speaker if self.principal is not None else None
