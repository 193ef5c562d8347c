"""Barriers of a policy in one partition whose activation this process has not read: others decide by it there."""

from dataclasses import dataclass


@dataclass(slots=True)
class UnknownBarriers:
    """Until all that is activated was read; what is not there then, nobody has activated."""

    number: int = 0
    """The highest activation that one names."""
    heard: int = 0
    """How many there were."""

    def hear(self, number: int) -> None:
        """One was read."""
        self.number, self.heard = max(self.number, number), self.heard + 1

    def known(self, heard: int) -> bool:
        """All that was activated when there were so many was read; whether that ends what they held."""
        if not self.number or heard != self.heard:  # of a later one the end of the topic was not asked for
            return False
        self.number = 0
        return True
