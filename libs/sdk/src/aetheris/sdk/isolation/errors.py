"""What ended a call in a process of its own, as the process that asked for it is told."""


class RaisedElsewhere(Exception):
    """Nobody knows whether the call took effect.

    `error_class` names what the tool has raised, or how its process ended; `acts_no_more` says that its process, and
    all that it had started, have ended.
    """

    def __init__(self, error_class: str, *, traceback: str = "", acts_no_more: bool = False) -> None:
        super().__init__(error_class)
        self.error_class = error_class
        self.traceback = traceback
        self.acts_no_more = acts_no_more
