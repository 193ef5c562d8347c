"""What can go wrong in the embedded runtime; every error says what to do next.

EmbeddedError
├── JavaMissingError  no Java that Kafka 4 runs on
├── JarsMissingError  a jar of kafka.lock can't be fetched, or is not the one that was locked
├── PortTakenError    a port kept for this data folder is in use
├── DiskFullError     too little room for the log
├── NotReadyError     a part did not answer in time, or keeps exiting
├── RefusedError      a part refuses to run with the settings or files that it is given
└── NotRunningError   nothing runs on this data folder
"""


class EmbeddedError(Exception):
    """A rule of the embedded runtime is broken; `next_step` tells the operator what to do."""

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(f"{message}. {next_step}")
        self.message = message
        self.next_step = next_step


class JavaMissingError(EmbeddedError):
    """No Java ≥ 17 was found, and the bundled one doesn't start."""


class JarsMissingError(EmbeddedError):
    """A jar of kafka.lock is not to be had, or its sha256 differs."""


class PortTakenError(EmbeddedError):
    """A port that this data folder keeps is in use by another process."""


class DiskFullError(EmbeddedError):
    """The data folder's disk has too little room."""


class NotReadyError(EmbeddedError):
    """A part did not become ready."""


class RefusedError(EmbeddedError):
    """A part refuses to run, and will as long as nobody mends what it names."""


class NotRunningError(EmbeddedError):
    """No supervisor runs on this data folder."""
