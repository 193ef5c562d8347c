"""Where the log is, as the topic `policies` says: what came last, and was signed, counts."""

from pydantic import ValidationError

from aetheris.protocol.messages.log_homes import LogHome


class LogHomes:
    """Takes what is said in its order."""

    def __init__(self) -> None:
        self.last: LogHome | None = None

    @staticmethod
    def read(value: bytes) -> LogHome | None:
        """What a record says; None where it says nothing of that."""
        try:
            return LogHome.model_validate_json(value)
        except ValidationError:
            return None

    def hear(self, said: LogHome) -> bool:
        """Take what comes next; whether it counts: what was said before counts no more."""
        if self.last is not None and said.number <= self.last.number:
            return False
        self.last = said
        return True

    def next(self, cluster: str, at: str) -> LogHome:
        """What is to be said by who has the log on another cluster; `at` is RFC 3339."""
        return LogHome(number=1 if self.last is None else self.last.number + 1, cluster=cluster, at=at)


def why_moved(last: LogHome | None, cluster: str | None) -> str | None:
    """Why a log on this cluster is not the log; None: nothing says so."""
    if last is None or cluster is None or last.cluster == cluster:
        return None
    return f"the log is on Kafka cluster {last.cluster}, and these brokers are {cluster}"
